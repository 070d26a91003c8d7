package adminapi

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport.dev/sallyport"
)

// Sagas keeps sequences of calls that end done or undone. (saga)
type Sagas interface {
	// ListSagas lists without steps.
	ListSagas(ctx context.Context, state string, limit int) ([]sallyport.Saga, error)
	ShowSaga(ctx context.Context, id string) (sallyport.Saga, error)
	ChangeSaga(ctx context.Context, c SagaChange) (sallyport.Saga, error)
	// LintPlan judges the arguments of saga_run.
	LintPlan(ctx context.Context, args json.RawMessage) (PlanReport, error)
}

// A SagaChange is an operator's word on a saga.
type SagaChange struct {
	Saga, Verb, By string
	Step           string // of skip and resolve
	Outcome        string // of resolve: done or failed
	Attempt        int    // of resolve: that was looked at; 0 will do where there was one only
	Reason         string
}

// A PlanReport says what a plan would do.
type PlanReport struct {
	Name     string         `json:"name"`
	Digest   string         `json:"digest"`
	Risk     sallyport.Risk `json:"risk"`
	Errors   []string       `json:"errors,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
}

func (s *Server) listSagas(c call) (any, error) {
	limit, err := c.limit(100)
	if err != nil {
		return nil, err
	}
	state, err := oneOf("state", c.FormValue("state"), sallyport.SagaStates...)
	if err != nil {
		return nil, err
	}
	list, err := s.Sagas.ListSagas(c.Context(), state, limit)
	return struct {
		Sagas []sallyport.Saga `json:"sagas"`
	}{orEmpty(list)}, err
}

func (s *Server) showSaga(c call) (any, error) {
	return s.Sagas.ShowSaga(c.Context(), c.PathValue("id"))
}

func (s *Server) changeSaga(c call) (any, error) {
	var in struct {
		Step, Outcome, Reason string
		Attempt               int
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	verb := c.PathValue("verb")
	switch {
	case !slices.Contains([]string{"pause", "resume", "cancel", "retry", "skip", "resolve"}, verb):
		return nil, &sallyport.Error{Code: sallyport.NotFound, Message: "no such change: " + verb, Hint: "pause, resume, cancel, retry, skip or resolve"}
	case (verb == "skip" || verb == "resolve") && in.Step == "":
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "which step?", Hint: "`sallyport saga status` shows them"}
	case verb == "resolve" && in.Outcome != "done" && in.Outcome != "failed":
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "how did it end?", Hint: "done (it acted) or failed (it did not)"}
	case (verb == "skip" || verb == "resolve") && in.Reason == "":
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "a reason is needed: how do you know?", Hint: "give --reason"}
	}
	return s.Sagas.ChangeSaga(c.Context(), SagaChange{
		Saga: c.PathValue("id"), Verb: verb, By: c.actor(), Step: in.Step, Outcome: in.Outcome, Attempt: in.Attempt, Reason: in.Reason,
	})
}

func (s *Server) lintPlan(c call) (any, error) {
	var in json.RawMessage
	if err := c.body(&in); err != nil {
		return nil, err
	}
	return s.Sagas.LintPlan(c.Context(), in)
}
