package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/request"
	"sallyport.dev/sallyport/backend/upstream/task"
	"sallyport.dev/sallyport/wire"
)

// call makes a call, as a task where its server takes it in no other way.
func (se *session) call(ctx context.Context, job sallyport.Job, r link.Request) (wire.Message, error) {
	_, _, params, err := request.Of(job)
	if err != nil {
		return wire.Message{}, outcome.NotSent(err)
	}
	if !se.takesTasks() {
		return se.converse(ctx, job, r, params)
	}
	augment := task.Augment(cmp.Or(max(job.Timeout, 0), se.s.o.Call))
	if job.Tool.ByTask {
		return se.converse(ctx, job, r, append(params, augment...))
	}
	m, err := se.converse(ctx, job, r, params)
	if err == nil && m.Error != nil && task.Wanted(m.Error.Code) { // it was not known when the tool was listed
		return se.converse(ctx, job, r, append(params, augment...))
	}
	return m, err
}

// takesTasks reports whether a server with sessions can be asked for tasks.
func (se *session) takesTasks() bool {
	return se.era == eraLegacy && wire.IsObject(wire.Path(se.says.Capabilities, "tasks", "requests", "tools", "call"))
}

// await waits for the end of a call, where its answer is a task.
func (se *session) await(ctx context.Context, job sallyport.Job, r link.Request, m wire.Message) (wire.Message, error) {
	st, made, err := task.Made(m.Result, se.era == eraLegacy)
	if !made {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("%w: %w", link.ErrMalformed, err)
	}
	r.Desk.Task(st.ID)
	at := &place{se: se, desk: r.Desk}
	defer at.leave()
	e := &task.Errand{
		Server: se.s.Name, Legacy: se.era == eraLegacy, Cancels: se.era != eraLegacy || wire.IsObject(wire.Path(se.says.Capabilities, "tasks", "cancel")), Job: job,
		Send: func(ctx context.Context, method, id string, params json.RawMessage) (wire.Message, error) {
			return at.send(ctx, job, method, id, params)
		},
	}
	m.Result, err = e.Follow(ctx, st)
	return m, err
}

// A place is the connection on which a task is asked for.
type place struct {
	mu    sync.Mutex // guards what follows
	se    *session
	desk  *asked.Desk
	moved *asked.Desk // one that is not the call's own, to be closed here
}

// send makes a request about a task. Where the connection is over, the next request
// takes the server's next one: a task may outlive it.
func (at *place) send(ctx context.Context, job sallyport.Job, method, id string, params json.RawMessage) (wire.Message, error) {
	at.mu.Lock()
	se, desk := at.se, at.desk
	at.mu.Unlock()
	r := link.Request{ID: ids.Add(1), Method: method, Name: id, Notify: job.Notify, Desk: desk, Room: job.Room, Quiet: method != "tasks/result", Params: params}
	_ = r.Room.Want(ctx, 0)
	if r.Notify == nil {
		r.Notify = func(sallyport.Notice) {}
	}
	if job.Key = ""; se.era == eraModern { // the key is the call's
		r.Params = append(se.meta().Job(append(params[:len(params)-1:len(params)-1], `,"_meta":`...), job, r.ID), '}')
	}
	m, err := se.link.Exchange(ctx, r)
	if errors.Is(err, link.ErrGone) {
		at.move(ctx, se, job, id)
	}
	return m, err
}

func (at *place) move(ctx context.Context, lost *session, job sallyport.Job, id string) {
	select {
	case <-lost.link.Done():
		lost.s.leave(lost)
	default:
	}
	next, err := lost.s.acquire(ctx)
	if err != nil || next.era != lost.era {
		return
	}
	at.onto(ctx, lost, next, job, id)
}

func (at *place) onto(ctx context.Context, lost, next *session, job sallyport.Job, id string) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.se == lost {
		if at.se = next; at.desk != nil {
			at.moved.Close()
			at.moved = next.room.Open(ctx, job)
			at.moved.Task(id)
			at.desk = at.moved
		}
	}
}

// leave closes what onto opened. What is sent from now on has nobody to be asked.
func (at *place) leave() {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.moved.Close()
	at.desk, at.moved = nil, nil
}
