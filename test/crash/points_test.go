package crash

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
)

// TestKillAnywhere kills a real gateway with SIGKILL, on both stores: at each
// failpoint while the script is played, and at random moments while several
// clients play it.
func TestKillAnywhere(t *testing.T) {
	if os.Getenv("SALLYPORT_CRASH_REPORT") == "" && os.Getenv("SALLYPORT_SOAK") == "" {
		t.Skip("82 kills of real gateways take about ten minutes: `make crash`")
	}
	bin := programs(t, nil)
	moments := 12
	if os.Getenv("SALLYPORT_SOAK") != "" {
		moments = 500
	}
	t.Run("released", func(t *testing.T) { released(t, bin) })
	all := map[string]tally{}
	for _, name := range []string{"postgres", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, bin, serverFor(t, name))
			h.points()
			h.moments(moments)
			all[name] = h.verdict(t)
			for _, p := range all[name].problems {
				t.Error(p)
			}
			h.forget(t)
			all[name].kills[failpoint.Pruned] = h.kills[failpoint.Pruned]
			for _, point := range failpoint.All {
				if h.kills[point] == 0 {
					t.Errorf("%s was never reached", point)
				}
			}
		})
	}
	report(t, all)
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
	stop := h.keep(failpoint.Finish)
	for n := 0; n < 2; time.Sleep(20 * time.Millisecond) {
		if r := h.call("t__queried", `{"op":"b.queried"}`, "b.queried", ""); h.killed() > 0 && r.answered && !r.again() {
			n++
		}
	}
	stop()
	h.run("")
	defer h.end()
	h.login()
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

// points kills at each failpoint once.
func (h *house) points() {
	for i, point := range failpoint.All {
		kills := []string{point}
		switch point {
		case failpoint.Pruned:
			continue // see forget
		case failpoint.Recover:
			kills = []string{failpoint.Begun, point}
		case failpoint.Moved, failpoint.Move:
			kills = []string{point + ":2", point + ":3", point + ":5"}
		case failpoint.Commit, failpoint.Committed, failpoint.Published:
			kills = []string{point + ":4", point + ":9", point + ":15"}
		}
		stop := h.keep(kills...)
		began := time.Now()
		c := h.play(fmt.Sprintf("p%d", i))
		h.t.Logf("%s: %s", point, time.Since(began).Round(time.Millisecond))
		if n := stop(); n < len(kills) {
			h.t.Errorf("%s: %d of %d kills: it is not reached", point, n, len(kills))
		}
		h.tell(c)
	}
}

// moments kills n times at random, while several clients are at work.
func (h *house) moments(n int) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("SALLYPORT_CRASH_SEED"), 10, 64); err == nil {
		seed = s
	}
	h.t.Logf("SALLYPORT_CRASH_SEED=%d chooses the same moments", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	stop := h.keep()
	over := make(chan struct{})
	var lanes sync.WaitGroup
	for lane := range 3 {
		lanes.Go(func() {
			for i := 0; ; i++ {
				h.tell(h.play(fmt.Sprintf("m%dx%d", lane, i)))
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for range n {
		before := h.killed()
		h.Eventually(enough, "the gateway is ready", func() error {
			if status, _ := h.Get("/readyz"); status != 200 {
				return errDown
			}
			return nil
		})
		time.Sleep(time.Duration(random.Int64N(int64(700 * time.Millisecond))))
		h.kill()
		h.Eventually(enough, "the gateway is dead", func() error {
			if h.killed() == before {
				return fmt.Errorf("it lives")
			}
			return nil
		})
	}
	close(over)
	lanes.Wait()
	stop()
}

// killed counts.
func (h *house) killed() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.kills {
		n += k
	}
	return n
}

// tell keeps a story for the judge.
func (h *house) tell(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.err != nil {
		h.t.Error(c.err)
	}
	h.stories = append(h.stories, c.story)
	h.settled += c.settled
}

// A tally is what came of all kills on one store.
type tally struct {
	kills                          map[string]int
	done, unknown, failed, settled int
	decisions, sagas               int
	effects, duplicates            int
	problems                       []string
}

// verdict judges everything so far. The gateway does not run before or after.
func (h *house) verdict(t *testing.T) tally {
	t.Helper()
	h.run("")
	defer h.end()
	h.login()
	e := h.evidence(t, h.stories)
	for deadline := time.Now().Add(enough); judge(e) != nil && time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		e = h.evidence(t, h.stories) // a webhook that was claimed by the dead is tried again, in time
	}
	y := tally{kills: maps.Clone(h.kills), settled: h.settled, problems: judge(e)}
	for _, s := range h.stories {
		for _, end := range s.ends {
			switch end {
			case done:
				y.done++
			case unknown:
				y.unknown++
			default:
				y.failed++
			}
		}
		y.decisions += len(s.tickets)
		if s.saga == "compensated" {
			y.sagas++
		}
	}
	seen := map[string]bool{}
	for _, line := range e.acts {
		if !strings.HasPrefix(line, "effect ") {
			continue
		}
		y.effects++
		if seen[line] {
			y.duplicates++
		}
		seen[line] = true
	}
	if r := h.Run("", "audit", "verify"); r.Code != 0 {
		y.problems = append(y.problems, "audit verify: "+r.String())
	}
	return y
}

// forget kills while old outcomes are forgotten. Whatever is unknown stays.
func (h *house) forget(t *testing.T) {
	t.Helper()
	h.run("")
	before, executed := h.unknown(), len(acts(t, h.dir))
	h.end()
	h.configure("idempotency: {retention: 1h}\n")
	h.age(t)
	ended, ready := h.run(failpoint.Pruned)
	if ready {
		<-ended
	}
	h.run("")
	defer h.end()
	if after := h.unknown(); !slices.Equal(before, after) {
		t.Errorf("unknown were %q, and are %q", before, after)
	}
	h.Eventually(enough, "the rest is forgotten", func() error {
		if e := h.evidence(t, nil); len(e.reservations) != len(before) {
			return fmt.Errorf("%d reservations", len(e.reservations))
		}
		return nil
	})
	if now := acts(t, h.dir); len(now) != executed {
		t.Errorf("forgetting had an effect: %q", now[executed:])
	}
	if r := h.Run("", "audit", "verify"); r.Code != 0 {
		t.Errorf("audit verify: %s", r)
	}
}

func report(t *testing.T, all map[string]tally) {
	var b strings.Builder
	total := 0
	for _, store := range slices.Sorted(maps.Keys(all)) {
		y := all[store]
		n := 0
		fmt.Fprintf(&b, "\n%s\n", store)
		for _, point := range slices.Sorted(maps.Keys(y.kills)) {
			fmt.Fprintf(&b, "  %-22s %4d\n", point, y.kills[point])
			n += y.kills[point]
		}
		total += n
		fmt.Fprintf(&b, "  kills %d; calls done %d, failed %d, unknown for good %d, settled by an operator %d; decisions %d; sagas undone %d; effects %d, duplicates %d\n",
			n, y.done, y.failed, y.unknown, y.settled, y.decisions, y.sagas, y.effects, y.duplicates)
	}
	fmt.Fprintf(&b, "kills in all: %d\n", total)
	t.Log(b.String())
	if file := os.Getenv("SALLYPORT_CRASH_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
}
