package saga

import (
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
)

// A View is a saga as its agent sees it.
type View struct {
	ID       string              `json:"id"`
	Name     string              `json:"name"`
	Version  string              `json:"version,omitempty"`
	State    sallyport.SagaState `json:"state"`
	Undoing  bool                `json:"undoing"`
	Reason   string              `json:"reason,omitempty"`
	Failure  string              `json:"failure,omitempty"`
	Ticket   string              `json:"ticket,omitempty"` // that a human must decide, or has
	Digest   string              `json:"digest,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
	Steps    []StepView          `json:"steps"`
}

// A StepView is one step of a View.
type StepView struct {
	ID       string                  `json:"id"`
	Tool     string                  `json:"tool"`
	Undo     string                  `json:"compensate,omitempty"`
	NoReturn bool                    `json:"point_of_no_return,omitempty"`
	State    sallyport.StepState     `json:"state"`
	Attempts []sallyport.SagaAttempt `json:"attempts,omitempty"`
	Result   json.RawMessage         `json:"result,omitempty"`
}

// ViewOf shows a saga, with what its steps returned if results is set.
func ViewOf(s sallyport.Saga, results bool) View {
	v := View{ID: s.ID, Name: s.Name, Version: s.Version, State: s.State, Undoing: s.Undoing, Reason: s.Reason, Failure: s.Failure,
		Ticket: s.Ticket, Digest: s.Digest, Warnings: s.Warnings, Steps: []StepView{}}
	for _, st := range s.Steps {
		one := StepView{ID: st.ID, Tool: st.Do.Tool, NoReturn: st.NoReturn, State: st.State, Attempts: st.Attempts}
		if st.Undo != nil {
			one.Undo = st.Undo.Tool
		}
		if results {
			one.Result = st.Result
		}
		if a := st.Last(s.Undoing); s.State == sallyport.SagaAwaiting && a != nil && a.Outcome == "" && a.Ticket != "" {
			v.Ticket = a.Ticket
		}
		v.Steps = append(v.Steps, one)
	}
	return v
}

// Text says the same in a few lines.
func (v View) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "saga %s (%s): %s\n", v.ID, v.Name, v.State)
	if v.Reason != "" {
		fmt.Fprintf(&b, "%s\n", v.Reason)
	}
	for _, s := range v.Steps {
		fmt.Fprintf(&b, "  %-16s %-24s %s\n", s.ID, s.Tool, s.State)
	}
	for _, w := range v.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}
