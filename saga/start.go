package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/store"
)

// unknownSaga is the same whether a saga never was, is somebody else's, or
// takes no calls.
func unknownSaga(id string) error {
	return &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Resolve, Message: fmt.Sprintf("unknown saga %.64q", id),
		Hint: "saga_status lists your own; only an open one takes calls"}
}

// idOf is the saga that a call starts: the same call, the same saga.
func idOf(callID string) string { return sallyport.SagaKeyPrefix + strings.TrimPrefix(callID, "call_") }

// Start makes a saga of a plan. job is the call of saga_run; it passed every
// check, and was approved if the plan asked for it. The saga is durable when
// Start returns, and runs on its own.
func (e *Engine) Start(ctx context.Context, job sallyport.Job) (sallyport.Saga, error) {
	d, err := e.Book.Draft(job.Args)
	if err == nil && len(d.Missing) > 0 {
		err = &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("unknown tool %.64q", d.Missing[0]), Hint: "list the tools: the name may have changed"}
	}
	if err != nil {
		return sallyport.Saga{}, notExecuted(err)
	}
	s := e.fresh(job)
	s.Name, s.Version, s.Digest, s.Steps, s.Warnings = d.Name, d.Version, d.Digest, d.Steps, d.Warnings
	s.State, s.Ticket, s.WakeAt = sallyport.SagaRunning, job.Ticket, e.Now()
	if job.Ticket != "" {
		t, err := e.Ledger.Ticket(ctx, job.Who.Tenant, job.Ticket)
		if err == nil && t.Binding.Plan != d.Digest {
			err = &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute, Message: "the plan, or a tool of it, is no longer what was approved",
				Hint: "make a new call: it needs a new approval"}
		}
		if err != nil {
			return s, notExecuted(err)
		}
		s.Demands = t.Demands
	}
	return e.create(ctx, s)
}

func notExecuted(err error) error {
	out := sallyport.Error{Code: sallyport.CodeOf(err), Step: sallyport.Execute, Message: "the saga was not started", Err: sallyport.ErrNotExecuted}
	if o, ours := errors.AsType[*sallyport.Error](err); ours {
		out.Message, out.Hint = o.Message, o.Hint
	}
	return &out
}

// fresh is a new saga of whoever made the call.
func (e *Engine) fresh(job sallyport.Job) sallyport.Saga {
	now := e.Now()
	return sallyport.Saga{
		Tenant: job.Who.Tenant, ID: idOf(job.CallID), Principal: job.Who.ID, OnBehalfOf: job.Who.OnBehalfOf, Actor: job.Who.Actor,
		Profile: job.Profile, CallID: job.CallID, Trace: job.Trace, Authorized: now, CreatedAt: now,
	}
}

func (e *Engine) create(ctx context.Context, s sallyport.Saga) (sallyport.Saga, error) {
	entry, err := entry(s, note{by: s.Principal, reason: "started"})
	if err != nil {
		return s, err
	}
	s, err = e.Store.CreateSaga(ctx, s, entry)
	e.kick()
	return s, err
}

// Begin opens an ad-hoc saga for an agent's own sequence of calls.
func (e *Engine) Begin(ctx context.Context, job sallyport.Job) (sallyport.Saga, error) {
	var in struct {
		Name    string  `json:"name"`
		Timeout float64 `json:"timeout_seconds"`
	}
	if err := json.Unmarshal(job.Args, &in); err != nil {
		return sallyport.Saga{}, notExecuted(&sallyport.Error{Code: sallyport.Invalid, Message: err.Error()})
	}
	s := e.fresh(job)
	s.Name, s.AdHoc, s.State, s.WakeAt = in.Name, true, sallyport.SagaOpen, e.Now().Add(e.OpenFor)
	if at := e.Now().Add(time.Duration(in.Timeout * float64(time.Second))); in.Timeout > 0 && at.Before(s.WakeAt) {
		s.WakeAt = at
	}
	if s.Name == "" {
		s.Name = "ad hoc"
	}
	return e.create(ctx, s)
}

// Own finds a saga of the caller's own.
func (e *Engine) Own(ctx context.Context, who sallyport.Principal, id string) (sallyport.Saga, error) {
	s, err := e.Store.Saga(ctx, who.Tenant, id)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return s, err
	}
	if err != nil || s.Principal != who.ID || s.OnBehalfOf != who.OnBehalfOf {
		return sallyport.Saga{}, unknownSaga(id)
	}
	return s, nil
}

// Mine lists the caller's own sagas, the newest first.
func (e *Engine) Mine(ctx context.Context, who sallyport.Principal, limit int) ([]sallyport.Saga, error) {
	all, err := e.Store.Sagas(ctx, store.SagaFilter{Tenant: who.Tenant, Principal: who.ID, Limit: limit})
	own := all[:0]
	for _, s := range all {
		if s.OnBehalfOf == who.OnBehalfOf {
			own = append(own, s)
		}
	}
	return own, err
}

// Enter implements gateway.Plans for the agents' doors. A saga is undone through
// the profile in which it was opened, where the tools of another may not be.
func (e *Engine) Enter(ctx context.Context, who sallyport.Principal, profile, saga string) error {
	s, err := e.Own(ctx, who, saga)
	switch {
	case err != nil:
		return err
	case s.State != sallyport.SagaOpen:
		return unknownSaga(saga)
	case s.Profile != profile:
		return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Resolve, Message: fmt.Sprintf("saga %.64q was opened through another profile", saga),
			Hint: "call through the profile in which it was opened: it is undone there"}
	}
	return nil
}

// During implements gateway.Plans for the agents' doors.
func (e *Engine) During(ctx context.Context, who sallyport.Principal, at time.Time) (bool, error) {
	all, err := e.Mine(ctx, who, 0)
	return slices.ContainsFunc(all, func(s sallyport.Saga) bool {
		return s.AdHoc && !s.CreatedAt.After(at) && (!s.State.Final() || !s.UpdatedAt.Before(at))
	}), err
}

// Judge implements gateway.Plans for the agents' doors: a call that starts a
// plan binds its digest, one that joins an ad-hoc saga brings what undoes it.
func (e *Engine) Judge(_ context.Context, q gateway.Question, saga string, _ []sallyport.Demand) gateway.PlanVerdict {
	if saga != "" && plan.IsRun(q.Tool) {
		return gateway.PlanVerdict{Refused: "a plan cannot be part of an open saga: rolling that back would not undo it"}
	}
	if plan.IsRun(q.Tool) {
		return gateway.PlanVerdict{Digest: plan.JudgedDigest(q.Risk)}
	}
	if saga == "" || q.Tool.Origin.Backend == plan.Backend {
		return gateway.PlanVerdict{}
	}
	st := sallyport.SagaStep{Do: e.Book.Call(q.Tool, plan.Call{}, q.Args), Undo: e.Book.Undo(q.Tool, q.Args)}
	st.Do.Risk = q.Risk
	return gateway.PlanVerdict{Joins: &st}
}
