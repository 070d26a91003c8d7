// Package saga is the backend of the saga tools: it hands calls of saga_run and
// its like to the engine. The steps themselves are calls of their own, on the
// whole path.
package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
)

// A Backend runs the saga tools. It holds nothing.
type Backend struct{ engine *saga.Engine }

// New returns the backend of an engine.
func New(e *saga.Engine) *Backend { return &Backend{e} }

// Info describes the backend.
func (b *Backend) Info() sallyport.Info { return sallyport.Info{Name: "saga", Isolation: "builtin"} }

// Check is nil: the engine is there as long as the gateway is.
func (b *Backend) Check(context.Context) error { return nil }

// Close frees nothing; whoever made the engine ends it.
func (b *Backend) Close() error { return nil }

// Run runs one saga tool.
func (b *Backend) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if err := ctx.Err(); err != nil {
		return sallyport.Output{}, fmt.Errorf("%w (%w)", err, sallyport.ErrNotExecuted)
	}
	var in struct {
		ID      string  `json:"id"`
		Wait    float64 `json:"wait_seconds"`
		Results bool    `json:"results"`
		Reason  string  `json:"reason"`
	}
	if err := json.Unmarshal(job.Args, &in); err != nil {
		return sallyport.Output{}, refused(err)
	}
	switch job.Tool.Origin.Name {
	case plan.ToolRun:
		s, err := b.engine.Start(ctx, job)
		return show(s, false, err)
	case plan.ToolBegin:
		s, err := b.engine.Begin(ctx, job)
		return show(s, false, err)
	case plan.ToolStatus:
		if in.ID == "" {
			return b.list(ctx, job.Who)
		}
		s, err := b.await(ctx, job.Who, in.ID, time.Duration(in.Wait*float64(time.Second)))
		return show(s, in.Results, err)
	case plan.ToolCommit, plan.ToolRollback:
		s, err := b.engine.Own(ctx, job.Who, in.ID)
		if err == nil {
			verb := map[string]string{plan.ToolCommit: "commit", plan.ToolRollback: "cancel"}[job.Tool.Origin.Name]
			s, err = b.engine.Change(ctx, s.Tenant, s.ID, saga.Change{Verb: verb, By: job.Who.ID, Reason: in.Reason})
		}
		return show(s, false, err)
	}
	return sallyport.Output{}, refused(fmt.Errorf("no saga tool %q", job.Tool.Origin.Name))
}

// refused is a failure before anything was done.
func refused(err error) error {
	e := &sallyport.Error{Code: sallyport.CodeOf(err), Step: sallyport.Execute, Message: err.Error(), Err: sallyport.ErrNotExecuted}
	if e.Code == sallyport.Internal {
		e.Code = sallyport.Invalid
	}
	return e
}

// await returns the saga when it no longer goes on by itself, or the time is up.
func (b *Backend) await(ctx context.Context, who sallyport.Principal, id string, wait time.Duration) (sallyport.Saga, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		s, err := b.engine.Own(context.WithoutCancel(ctx), who, id)
		if err != nil || s.State != sallyport.SagaRunning && s.State != sallyport.SagaCompensating {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (b *Backend) list(ctx context.Context, who sallyport.Principal) (sallyport.Output, error) {
	all, err := b.engine.Mine(ctx, who, 50)
	if err != nil {
		return sallyport.Output{}, err
	}
	views := make([]saga.View, 0, len(all))
	text := ""
	for _, s := range all {
		views = append(views, saga.ViewOf(s, false))
		text += fmt.Sprintf("%s %s %s\n", s.ID, s.State, s.Name)
	}
	return output(text, map[string]any{"sagas": views})
}

// show is a saga as its agent sees it. A refusal is a result that says why:
// nothing was done.
func show(s sallyport.Saga, results bool, err error) (sallyport.Output, error) {
	if err != nil {
		if code := sallyport.CodeOf(err); code == sallyport.NotFound || code == sallyport.Conflict {
			return sallyport.Output{}, notDone{err}
		}
		return sallyport.Output{}, err
	}
	v := saga.ViewOf(s, results)
	return output(v.Text(), v)
}

// notDone marks an error of ours as one that had no effect.
type notDone struct{ error }

func (n notDone) Unwrap() []error { return []error{n.error, sallyport.ErrNotExecuted} }

func output(text string, structured any) (sallyport.Output, error) {
	b, err := json.Marshal(map[string]any{
		"content": []map[string]string{{"type": "text", "text": text}}, "structuredContent": structured,
	})
	return sallyport.Output{Content: b}, err
}
