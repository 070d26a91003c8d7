package crash

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
)

// TestKillAnywhere kills a real gateway with SIGKILL, on both stores: at each
// failpoint and at random moments, while several clients play the script.
func TestKillAnywhere(t *testing.T) {
	houses, sweeps, moments := 1, 1, 14 // of each store: 32 kills
	switch {
	case os.Getenv("SALLYPORT_SOAK") != "":
		houses, moments = 12, 30
	case os.Getenv("SALLYPORT_CRASH_REPORT") != "":
		houses, sweeps, moments = 2, 2, 25
	}
	began, bin := time.Now(), programs(t, nil)
	t.Run("released", func(t *testing.T) { released(t, bin) })
	all := map[string]*tally{"postgres": {}, "sqlite": {}}
	for _, name := range []string{"postgres", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			server := serverFor(t, name)
			for n := range houses {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					h := newHouse(t, bin, server)
					h.besiege(blows(seedOf(t, n), sweeps, moments))
					y := h.verdict(t)
					h.end()
					for _, p := range y.problems {
						t.Error(p)
					}
					h.forget(t)
					all[name].add(y)
					report(t, all, began) // so far: a long run may be cut
				})
			}
			y := all[name]
			for _, point := range failpoint.All {
				if y.kills[point] < houses {
					t.Errorf("%s was reached %d times", point, y.kills[point])
				}
			}
			if y.done == 0 || y.settled == 0 || y.decisions == 0 || y.sagas == 0 {
				t.Errorf("too little happened for this to show anything: %+v", *y)
			}
		})
	}
	t.Log(report(t, all, began))
}

func serverFor(t *testing.T, store string) *postgrestest.Server {
	if store == "postgres" {
		return postgrestest.New(t)
	}
	return nil
}

// TestKillAnywhereNotices takes a protection away: that a call was begun is no
// longer durable. The same kill then shows.
func TestKillAnywhereNotices(t *testing.T) {
	const intent = "t.log(b.Intent)\n"
	h := newHouse(t, programs(t, map[string][2]string{"store/relational/ledger.go": {intent, intent + "if true { return nil }\n"}}), nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for n := 0; n < 2; time.Sleep(20 * time.Millisecond) {
			if r := h.call("t__queried", `{"op":"b.queried"}`, "b.queried", ""); h.killed() > 0 && r.answered && !r.again() {
				n++
			}
		}
	}()
	h.strike(failpoint.Finish)
	h.run("")
	defer h.end()
	<-over
	e := h.evidence(t, []story{{name: "b", saga: "compensated", ends: map[string]string{"b.queried": done}}})
	if problems := judge(e); !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, "b.queried was executed ") }) {
		t.Errorf("a call that acted again was not noticed: %q, %q", problems, e.acts)
	}
}

// TestSagaIsTakenOver: of two gateways on one database, the one that drives a
// saga is killed in the middle of it. The other undoes it, after the lease.
func TestSagaIsTakenOver(t *testing.T) {
	first := newHouse(t, programs(t, nil), postgrestest.New(t))
	other := &house{Gateway: first.Join(t), t: t, dir: first.dir, url: first.url, kills: map[string]int{}}
	other.Env = first.Env
	for _, h := range []*house{first, other} {
		h.configure("sagas: {lease: 1s}\n")
	}
	other.run("")
	defer other.end()
	other.login()
	ended, _ := first.run(failpoint.Moved + ":2")
	var taken []*client
	for i := 0; first.killed() == 0 && i < 50; i++ {
		c := &client{house: first, story: story{name: fmt.Sprint("t", i)}}
		for deadline := time.Now().Add(enough); first.killed() == 0 && time.Now().Before(deadline); {
			if r := c.call("saga_run", c.plan(), c.name+".saga", ""); r.ok() {
				break
			}
		}
		taken = append(taken, c)
	}
	<-ended
	for _, c := range taken {
		c.house = other
		if c.err = c.undone(); c.err != nil {
			t.Error(c.err)
		}
		other.tell(c)
	}
	e := other.evidence(t, other.stories)
	for _, p := range judge(e) {
		t.Error(p)
	}
	if first.kills[failpoint.Moved] != 1 || !slices.Contains(e.acts, "effect "+taken[len(taken)-1].name+".saga.one.undo") {
		t.Errorf("nothing was taken over: kills %v, acts %q", first.kills, e.acts)
	}
}

// released shows that the program that is released ignores the variable, and
// holds no trace of the mechanism.
func released(t *testing.T, bin string) {
	t.Helper()
	names := func(program string) (found []string) {
		b, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{"SALLYPORT_FAILPOINT"}, failpoint.All...) {
			if bytes.Contains(b, []byte(name)) {
				found = append(found, name)
			}
		}
		return found
	}
	if found := names(stage.Program(t, "sallyport")); found != nil {
		t.Errorf("the released program holds %q", found)
	}
	if found := names(filepath.Join(bin, "sallyport")); len(found) != 1+len(failpoint.All) {
		t.Errorf("the control: the tests' program holds only %q", found)
	}
	g := stage.New(t)
	g.Env = []string{"SALLYPORT_FAILPOINT=" + failpoint.Recover}
	g.Start()
	g.Stop()
}
