package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/link"
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
	var r link.Request
	name := job.Tool.Origin.Name
	var b []byte
	switch job.Kind {
	case sallyport.ReadResource:
		r.Method, r.Name = "resources/read", name
		b = wire.AppendString([]byte(`{"uri":`), name)
	case sallyport.GetPrompt:
		r.Method, r.Name = "prompts/get", name
		b = wire.AppendString([]byte(`{"name":`), name)
		if len(job.Args) > len(`{}`) {
			b = append(append(b, `,"arguments":`...), job.Args...)
		}
	case sallyport.Complete:
		r.Method = "completion/complete"
		b = completeParams(job)
	default:
		return sallyport.Output{}, outcome.NotSent(fmt.Errorf("a server is not asked to %s", job.Kind))
	}
	m, err := se.converse(ctx, job, r, b)
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

// completeParams begins the parameters of completion/complete, in which the
// prompt or template has the name that its server knows.
func completeParams(job sallyport.Job) []byte {
	kind, by := "ref/resource", "uri"
	if job.Tool.Shelf == sallyport.Prompts {
		kind, by = "ref/prompt", "name"
	}
	b := wire.AppendString([]byte(`{"ref":{"type":"`+kind+`","`+by+`":`), job.Tool.Origin.Name)
	b = append(b, '}')
	for _, name := range []string{"argument", "context"} {
		if v := wire.Member(json.RawMessage(job.Args), name); v != nil {
			b = append(append(append(b, `,"`+name...), `":`...), v...)
		}
	}
	return b
}

// codeNoResource is what a resource that is not there was in earlier revisions.
const codeNoResource = -32002

// refused says what a server's error means for a reading.
func (se *session) refused(job sallyport.Job, e *wire.Error) error {
	err := se.s.fail(e)
	ours, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		return err
	}
	told := *ours
	switch {
	case e.Code == codeNoResource, e.Code == wire.CodeInvalidParams && job.Kind == sallyport.ReadResource, e.Code == wire.CodeMethodNotFound:
		told.Code, told.Hint = sallyport.NotFound, "list what there is"
	case e.Code == wire.CodeInvalidParams:
		told.Code, told.Hint = sallyport.Invalid, "correct the arguments"
	}
	return &told
}
