package risk_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk"
)

// heldOut are corpora whose lines were written, and judged, before anybody
// looked at how the judges would take them (testdata/heldout/README.md).
const (
	heldOut  = "heldout/"
	heldOut2 = "heldout2/" // with tables and a tree of its own
	doors    = "doors/"    // what seems to be read and is run; a tree of its own
)

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

// judge judges each line of a kind's corpus in a folder.
func (a *heldOutTally) judge(t *testing.T, e *risk.Engine, folder, kind string) {
	t.Helper()
	judge := analysers(e)[kind]
	for _, c := range corpus(t, folder+kind) {
		var r sallyport.Risk
		if kind == "paths" {
			r = judgePath(e, c)
		} else {
			r = judge(c.text)
		}
		if complaint := a.count(c, r); complaint != "" {
			t.Logf("%s%s.txt:%d: %s: %q is %s (seen: %s): %q", folder, kind, c.line, complaint, c.text, verdict(r), c.effect, r.Reasons)
		}
	}
}

// Every danger of the held-out corpora is stopped, and at most 2 % of what is
// harmless. They are no longer held out: the figures of before are in their READMEs.
func TestHeldOut(t *testing.T) {
	e := engine(t)
	for folder, want := range map[string]heldOutTally{
		heldOut:  {dangers: 400, lost: 150, harmless: 300},
		heldOut2: {dangers: 160, lost: 80, harmless: 320},
	} {
		files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		var all heldOutTally
		for _, f := range files {
			var one heldOutTally
			kind := strings.TrimSuffix(filepath.Base(f), ".txt")
			one.judge(t, e, folder, kind)
			one.log(t, kind)
			all.add(one)
		}
		all.log(t, folder)
		if all.stopped != all.dangers || all.lostStopped != all.lost || all.alarms*50 > all.harmless || all.held*50 > all.changes {
			t.Errorf("%s: want every danger stopped, and at most 2 %% of the harmless lines and of the small changes", folder)
		}
		if all.dangers < want.dangers || all.lost < want.lost || all.harmless < want.harmless {
			t.Errorf("%s: the corpora are too small: %+v", folder, all)
		}
	}
}
