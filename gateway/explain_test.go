package gateway

import (
	"slices"
	"testing"

	"sallyport.dev/sallyport"
)

// An explanation says what Call would do, and does none of it.
func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		edit     func(*world)
		args     string
		refused  sallyport.Code // "" if allowed
		approval []string
	}{
		{name: "allowed"},
		{name: "bad by schema", args: `{"bad":1}`, refused: sallyport.Invalid},
		{name: "denied", edit: func(w *world) { w.verdict = Verdict{} }, refused: sallyport.Denied},
		{name: "unknown", edit: func(w *world) { w.tools = nil }, refused: sallyport.NotFound},
		{name: "critical", edit: func(w *world) { w.risk.Level = sallyport.Critical }, approval: []string{"built-in: risk is critical"}},
		{name: "policy wants a human", approval: []string{"p2"},
			edit: func(w *world) { w.verdict.Demands = []sallyport.Demand{{Policy: "p2"}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.edit != nil {
				tt.edit(w)
			}
			if tt.args == "" {
				tt.args = `{"a":1}`
			}
			x, err := w.Explain(t.Context(), call(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			if got := x.Refused; (got == nil) != (tt.refused == "") || got != nil && got.Code != tt.refused {
				t.Errorf("refused: %+v, want %q", got, tt.refused)
			}
			if !slices.Equal(x.Approval, tt.approval) {
				t.Errorf("approval: %q, want %q", x.Approval, tt.approval)
			}
			if len(w.ran)+len(w.entries)+len(w.ledger.tickets)+len(w.ledger.res) > 0 {
				t.Error("an explanation ran, recorded or reserved something")
			}
			if _, err := w.Call(t.Context(), call(tt.args)); x.Refused != nil && sallyport.CodeOf(err) != x.Refused.Code {
				t.Errorf("Call says %v", err)
			}
		})
	}
	if _, err := newWorld(t).Explain(t.Context(), sallyport.Request{Credential: "x"}); sallyport.CodeOf(err) != sallyport.Unauthenticated {
		t.Errorf("a bad credential: %v", err)
	}
}
