package upstream

import (
	"context"
	"encoding/json"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/request"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/wire"
)

// do does one job on the server.
func (se *session) do(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	switch {
	case job.Tool.Shelf == "":
		return se.callTool(ctx, job)
	case job.Kind == sallyport.Subscribe:
		return sallyport.Output{Content: json.RawMessage(`{"content":[]}`)}, se.s.follow(ctx, se, job.Tool.Origin.Name)
	}
	return se.read(ctx, job)
}

// read reads a resource, gets a prompt, or asks how an argument could go on.
func (se *session) read(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	method, name, b, err := request.Of(job)
	if err != nil {
		return sallyport.Output{}, outcome.NotSent(err)
	}
	m, err := se.converse(ctx, job, link.Request{Method: method, Name: name}, b)
	if err == nil && m.Error != nil {
		return sallyport.Output{}, se.refused(job, m.Error)
	}
	if err != nil {
		return sallyport.Output{}, se.s.fail(err)
	}
	se.answered.Store(true)
	out, err := result.Reading(job.Kind, m.Result)
	if err != nil {
		return out, se.s.fail(fmt.Errorf("%w: %w", link.ErrMalformed, err))
	}
	return out, nil
}

// refused says what a server's error means for a reading.
func (se *session) refused(job sallyport.Job, e *wire.Error) error {
	return result.Refused(job.Kind, e.Code, se.s.fail(e))
}
