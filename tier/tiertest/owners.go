package tiertest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/tier"
)

// work keeps one processor busy for a while.
var work = deed{
	py: "x = 0\nfor i in range(2_000_000): x += i\nprint('done')", wasi: []string{"work"},
	js: "let x = 0; for (let i = 0; i < 2e8; i++) x = (x + i) | 0; console.log('done')",
}

// owners: a process of the host that has run one owner's code never runs another's,
// whoever waits, and that of nobody in particular never anybody's again. Which
// process ran it is seen by its use of the processor.
func owners(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{Warm: 2})
	r := s.needs(t, work)
	ran := map[int]string{} // process → owner
	for i, owner := range []string{"a", "a", "b", "", "a", "", "b"} {
		r.Owner = owner
		pid := 0
		within(t, "it is seen which process ran it", func() bool { pid = worker(t, h, r); return pid > 0 })
		before, again := ran[pid]
		if again && (owner == "" || before != owner) {
			t.Errorf("run %d, of %q, was in process %d, which had run the code of %q", i, owner, pid, before)
		}
		ran[pid] = owner
		time.Sleep(200 * time.Millisecond)
	}
}

// worker runs something busy and tells which process was, 0 where none was seen to be,
// or another one, as one that starts, was nearly as busy.
func worker(t *testing.T, h tier.Tier, r tier.Request) (pid int) {
	t.Helper()
	before := ticks(t)
	used := map[int]int{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if res, err := h.Run(t.Context(), r); err != nil || string(res.Stdout) != "done\n" {
			t.Errorf("%+v, %v", res, err)
		}
	}()
	for live := true; live; live = !closed(ended) {
		for p, n := range ticks(t) {
			used[p] = n - before[p]
		}
		time.Sleep(50 * time.Millisecond) // looking takes time from it
	}
	pids := slices.SortedFunc(maps.Keys(used), func(a, b int) int { return used[b] - used[a] })
	if len(pids) == 0 || used[pids[0]] < 4 { // it had ended when it was looked at
		t.Logf("no process was busy: %v", used)
		return 0
	}
	if len(pids) > 1 && used[pids[0]] < 2*used[pids[1]] {
		t.Logf("not clear: %v", used)
		return 0
	}
	return pids[0]
}

// ticks is how much each descendant of this process has used of the processors.
func ticks(t *testing.T) map[int]int {
	t.Helper()
	all := map[int]int{}
	for _, pid := range proc.Descendants(t, os.Getpid()) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		all[pid] = user + system
	}
	return all
}
