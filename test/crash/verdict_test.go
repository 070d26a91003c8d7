package crash

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/failpoint"
)

// A tally is what came of all kills on one store.
type tally struct {
	kills                          map[string]int
	houses, keys                   int
	done, unknown, failed, settled int
	decisions, sagas               int
	effects, duplicates            int
	problems                       []string
}

// add counts another house in.
func (y *tally) add(z tally) {
	if y.kills == nil {
		y.kills = map[string]int{}
	}
	for point, n := range z.kills {
		y.kills[point] += n
	}
	y.houses++
	y.done, y.unknown, y.failed, y.settled = y.done+z.done, y.unknown+z.unknown, y.failed+z.failed, y.settled+z.settled
	y.decisions, y.sagas, y.keys = y.decisions+z.decisions, y.sagas+z.sagas, y.keys+z.keys
	y.effects, y.duplicates = y.effects+z.effects, y.duplicates+z.duplicates
}

// verdict judges everything so far. The gateway runs.
func (h *house) verdict(t *testing.T) tally {
	t.Helper()
	h.login()
	e := h.evidence(t, h.stories)
	for deadline := time.Now().Add(time.Minute); judge(e) != nil && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		e = h.evidence(t, h.stories) // a webhook is on its way
	}
	y := tally{kills: h.kills, settled: h.settled, problems: append(judge(e), h.sights.judge(e.reservations)...), keys: len(h.sights.all)}
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

// forget kills while old outcomes are forgotten: all that ended is made two hours
// older. Whatever is unknown stays. The gateway does not run before or after.
func (h *house) forget(t *testing.T) {
	t.Helper()
	before, executed := h.unknown(), len(acts(t, h.dir))
	h.configure("idempotency: {retention: 1h}\n")
	for _, table := range []string{"reservations", "tickets", "sagas"} {
		h.change("UPDATE " + table + " SET updated_at = updated_at - 7200000000000")
	}
	h.strike(failpoint.Pruned)
	h.run("")
	defer h.end()
	if after := h.unknown(); !maps.Equal(before, after) {
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

func report(t *testing.T, all map[string]*tally, began time.Time) string {
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
		fmt.Fprintf(&b, "  kills %d in %d houses; calls done %d, failed %d, unknown for good %d, settled by an operator %d; decisions %d; sagas undone %d; effects %d, duplicates %d; histories of keys %d\n",
			n, y.houses, y.done, y.failed, y.unknown, y.settled, y.decisions, y.sagas, y.effects, y.duplicates, y.keys)
	}
	fmt.Fprintf(&b, "kills in all: %d, in %s\n", total, time.Since(began).Round(time.Second))
	if file := os.Getenv("SALLYPORT_CRASH_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
	return b.String()
}
