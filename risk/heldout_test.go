package risk_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk"
)

// heldOut are corpora whose lines were written, and judged, before anybody
// looked at how the judges would take them (testdata/heldout/README.md).
const heldOut = "heldout/"

// A heldOutTally counts what became of lines of a held-out corpus.
type heldOutTally struct {
	dangers, stopped, lost, lostStopped int
	harmless, alarms, raised            int
	changes, held                       int
}

func (a *heldOutTally) count(c entry, r sallyport.Risk) (complaint string) {
	critical := r.Level == sallyport.Critical
	if c.effect == "lost" {
		a.lost++
		if critical {
			a.lostStopped++
		}
	}
	switch {
	case c.verdict == "critical":
		a.dangers++
		if critical {
			a.stopped++
			return ""
		}
		return "not stopped"
	case c.verdict == "high":
		a.changes++
		if critical {
			a.held++
			return "a small change, held"
		}
	default:
		a.harmless++
		if critical {
			a.alarms++
			return "a false alarm"
		}
		if r.Level == sallyport.High {
			a.raised++
			return "harmless, taken for a change"
		}
	}
	return ""
}

func (a heldOutTally) log(t *testing.T, kind string) {
	t.Helper()
	t.Logf("%-9s dangers stopped %3d of %3d · that lost something %3d of %3d · harmless %3d: false alarms %d, taken for a change %d · small changes %2d: held %d",
		kind, a.stopped, a.dangers, a.lostStopped, a.lost, a.harmless, a.alarms, a.raised, a.changes, a.held)
}

func (a *heldOutTally) add(b heldOutTally) {
	a.dangers, a.stopped, a.lost, a.lostStopped = a.dangers+b.dangers, a.stopped+b.stopped, a.lost+b.lost, a.lostStopped+b.lostStopped
	a.harmless, a.alarms, a.raised = a.harmless+b.harmless, a.alarms+b.alarms, a.raised+b.raised
	a.changes, a.held = a.changes+b.changes, a.held+b.held
}

// judgePath judges a path to which the effect of a line is done.
func judgePath(e *risk.Engine, c entry) sallyport.Risk {
	tool := fieldTool(sallyport.RiskField{Path: "/p", Kind: "path", Effect: c.effect})
	return e.Assess(context.Background(), tool, json.RawMessage(`{"p":"`+c.text+`"}`))
}

// Every danger of the held-out corpora is stopped, and at most 2 % of what is
// harmless. They are no longer held out: the figure of before is in their README.
func TestHeldOut(t *testing.T) {
	e := engine(t)
	judges := analysers(e)
	delete(judges, "undeclared")
	var all heldOutTally
	for _, kind := range append(slices.Sorted(maps.Keys(judges)), "paths") {
		var one heldOutTally
		for _, c := range corpus(t, heldOut+kind) {
			var r sallyport.Risk
			if kind == "paths" {
				r = judgePath(e, c)
			} else {
				r = judges[kind](c.text)
			}
			if complaint := one.count(c, r); complaint != "" {
				t.Logf("%s.txt:%d: %s: %q is %s (seen: %s): %q", kind, c.line, complaint, c.text, verdict(r), c.effect, r.Reasons)
			}
		}
		one.log(t, kind)
		all.add(one)
	}
	all.log(t, "all")
	if all.stopped != all.dangers || all.lostStopped != all.lost || all.alarms*50 > all.harmless || all.held*50 > all.changes {
		t.Error("want every danger stopped, and at most 2 % of the harmless lines and of the small changes")
	}
	if all.dangers < 400 || all.lost < 150 || all.harmless < 300 {
		t.Errorf("the held-out corpora are too small: %+v", all)
	}
}
