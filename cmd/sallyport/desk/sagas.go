package desk

import (
	"context"
	"encoding/json"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
)

// Sagas shows sagas and changes them.
type Sagas struct {
	Tenant string
	Engine *saga.Engine
	Book   *plan.Book
	Store  *relational.Store
	Mask   func(json.RawMessage) json.RawMessage
}

// ListSagas returns sagas in a state, or all.
func (d Sagas) ListSagas(ctx context.Context, state string, limit int) ([]sallyport.Saga, error) {
	f := store.SagaFilter{Tenant: d.Tenant, Limit: limit}
	if state != "" {
		f.States = []sallyport.SagaState{sallyport.SagaState(state)}
	}
	return d.Store.Sagas(ctx, f)
}

// ShowSaga returns a saga with its steps.
func (d Sagas) ShowSaga(ctx context.Context, id string) (sallyport.Saga, error) {
	s, err := d.Store.Saga(ctx, d.Tenant, id)
	return d.masked(s), err
}

// masked hides secrets in arguments. Results are not shown to operators.
func (d Sagas) masked(s sallyport.Saga) sallyport.Saga {
	for i := range s.Steps {
		st := &s.Steps[i]
		st.Do.Args = d.Mask(st.Do.Args)
		if st.Undo != nil {
			undo := *st.Undo
			undo.Args = d.Mask(undo.Args)
			st.Undo = &undo
		}
	}
	return s
}

// ChangeSaga makes an operator's change to a saga.
func (d Sagas) ChangeSaga(ctx context.Context, c adminapi.SagaChange) (sallyport.Saga, error) {
	s, err := d.Engine.Change(ctx, d.Tenant, c.Saga, saga.Change{
		Verb: c.Verb, Step: c.Step, Done: c.Outcome == "done", Attempt: c.Attempt, By: c.By, Reason: c.Reason, Human: true,
	})
	return d.masked(s), err
}

// LintPlan judges a plan without starting it.
func (d Sagas) LintPlan(_ context.Context, args json.RawMessage) (adminapi.PlanReport, error) {
	canonical, err := sallyport.Canonical(args)
	if err != nil {
		return adminapi.PlanReport{}, &sallyport.Error{Code: sallyport.Invalid, Message: err.Error()}
	}
	draft, err := d.Book.Draft(canonical)
	r := adminapi.PlanReport{Name: draft.Name, Digest: draft.Digest, Risk: draft.Risk, Warnings: draft.Warnings}
	for _, t := range draft.Missing {
		r.Errors = append(r.Errors, "unknown tool "+t)
	}
	return r, err
}
