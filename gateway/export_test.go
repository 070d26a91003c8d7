package gateway

import (
	"context"
	"encoding/json"
	"testing"

	"sallyport.dev/sallyport"
)

// A World is the gateway of fakes for tests outside of this package, which may
// give it a real ledger.
type World struct{ *world }

// NewWorld returns a world of one tool, echo.
func NewWorld(t *testing.T) World { return World{newWorld(t)} }

// Ran returns how many calls were executed.
func (w World) Ran() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ran)
}

// Judge makes every call high, and as the function says.
func (w World) Judge(amounts func(args json.RawMessage) []sallyport.Amount) {
	w.Assessor = judge(amounts)
}

type judge func(args json.RawMessage) []sallyport.Amount

func (j judge) Assess(_ context.Context, _ sallyport.Tool, args json.RawMessage) sallyport.Risk {
	return sallyport.Risk{Level: sallyport.High, Reasons: []string{"changes something"}, Amounts: j(args)}
}

// Manifest changes the tool's manifest.
func (w World) Manifest(change func(*sallyport.Manifest)) {
	tool := w.tools["echo"]
	change(&tool.Manifest)
	w.tools["echo"] = tool
}

// Runs changes what a call does.
func (w World) Runs(run func(context.Context, sallyport.Job) (sallyport.Output, error)) { w.run = run }

// Call1 is a request for echo by ann.
func Call1(args string) sallyport.Request { return call(args) }

// Demand makes the policies demand a human, or not.
func (w World) Demand(human bool) {
	w.verdict.Demands = nil
	if human {
		w.verdict.Demands = []sallyport.Demand{{Policy: "test"}}
	}
}
