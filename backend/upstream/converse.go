package upstream

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/wire"
)

// converse makes a request of a job, under a new id each time that its server asks
// for something first. params are those of each, without _meta and the closing brace.
func (se *session) converse(ctx context.Context, job sallyport.Job, r link.Request, params []byte) (wire.Message, error) {
	if r.Notify = job.Notify; r.Notify == nil {
		r.Notify = func(sallyport.Notice) {}
	}
	if se.era == eraLegacy {
		se.setLevel(ctx, job.Level)
		if l, ok := se.link.(*web.Link); ok && job.Ask != nil {
			l.AwaitEar(ctx)
		}
		r.Desk = se.room.Open(ctx, job)
		defer r.Desk.Close()
	}
	r.Room = job.Room
	m, err := asked.Converse(ctx, job, r.Desk, func(more []byte) (wire.Message, error) {
		r.ID = ids.Add(1)
		_ = r.Room.Want(ctx, 0) // what was said before needs none
		if r.Desk != nil {
			r.Desk.Token(r.ID)
		}
		r.Params = append(se.meta().Job(slices.Concat(params, more, []byte(`,"_meta":`)), job, r.ID), '}')
		return se.link.Exchange(ctx, r)
	})
	if err != nil || m.Error != nil || r.Method != "tools/call" {
		return m, err
	}
	return se.await(ctx, job, r, m)
}

// setLevel has a server with sessions log what a caller wants to hear.
func (se *session) setLevel(ctx context.Context, name string) {
	if name == "" || !wire.IsObject(wire.Member(se.says.Capabilities, "logging")) {
		return
	}
	se.level.Lower(name, func(params json.RawMessage) error {
		m, err := se.request(ctx, "logging/setLevel", params, true)
		if err == nil && m.Error != nil {
			err = m.Error
		}
		return err
	})
}
