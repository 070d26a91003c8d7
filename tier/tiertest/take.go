package tiertest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/tier"
)

const canaries = `
import glob, os, random, uuid
places = ["/tmp/canary", "/dev/shm/canary", os.path.expanduser("~/canary"), "/run/canary"]
found = [p for p in places if os.path.exists(p)] + [k for k in os.environ if k == "CANARY"]
found += [p for p in glob.glob("/proc/[0-9]*/cmdline") if b"sleep" in open(p, "rb").read()]
for p in places:
    open(p, "w").write("x")
os.environ["CANARY"] = "1"
if os.fork() == 0:
    os.setsid(); os.execvp("sleep", ["sleep", "1000"])
print(found, random.random(), uuid.uuid4(), os.urandom(8).hex())
`

const canariesOfJS = `
const found = [];
if (globalThis.canary) found.push("global");
if (({}).canary) found.push("prototype");
if (Array.prototype.map.canary || Math.canary || console.canary) found.push("builtin");
try { globalThis.canary = 1 } catch {}
try { Object.prototype.canary = 1 } catch {}
try { Array.prototype.map.canary = Math.canary = console.canary = 1 } catch {}
setTimeout(() => console.log("late"), 50);
console.log(JSON.stringify(found), Math.random(), crypto.randomUUID());
`

// canaryRun looks for what other runs have left, and leaves as much as it can.
func (s Subject) canaryRun(t testing.TB) tier.Request {
	t.Helper()
	if s.Modules == "" {
		// A file by its usual name: so an interpreter that waits can be given it.
		return tier.Request{Image: "default", Argv: []string{"python3", "main.py"}, Limits: s.over(deed{}.limits), Files: []tier.File{{Path: "main.py", Content: []byte(canaries)}}}
	}
	return s.needs(t, deed{js: canariesOfJS, wasi: []string{"canary"}})
}

// settle runs something until there is a sandbox that waits for its kind, which it
// shows by the next run having one.
func settle(t testing.TB, h tier.Tier, r tier.Request) {
	t.Helper()
	within(t, "a sandbox waits", func() bool {
		res := run(t, h, r)
		time.Sleep(200 * time.Millisecond)
		return res.Receipt.Warm
	})
}

// oneTake: a sandbox is taken once. What one run leaves behind no other one finds,
// also where sandboxes wait.
func oneTake(t *testing.T, s Subject) {
	if s.Again {
		t.Run("owners", func(t *testing.T) { owners(t, s) })
	}
	if s.Reaches {
		t.Run("ways", func(t *testing.T) { waysOfTheirOwn(t, s) })
	}
	waiting := []int{0, 3}
	if s.briefly() {
		waiting = waiting[1:] // its first takes find none that waits
	}
	for _, n := range waiting {
		t.Run(fmt.Sprint("waiting=", n), func(t *testing.T) { takes(t, s, n) })
	}
}

// takes takes sandboxes one after the other from a host where some may wait, and goes on
// until some had waited.
func takes(t *testing.T, s Subject, waiting int) {
	h, _ := s.Open(t, Config{Warm: waiting})
	r := s.canaryRun(t)
	ids, lines, warm := map[string]bool{}, map[string]bool{}, 0
	one := func() {
		res := run(t, h, r)
		if !strings.HasPrefix(string(res.Stdout), "[] ") && string(res.Stdout) != "[]" || ids[res.ID] || lines[string(res.Stdout)] {
			t.Errorf("run in %s: %s %s", res.ID, res.Stdout, res.Stderr)
		}
		ids[res.ID], lines[string(res.Stdout)] = true, true
		if res.Receipt.Warm {
			warm++
		}
		time.Sleep(100 * time.Millisecond) // for another to wait
	}
	for range map[bool]int{false: 8, true: 4}[s.briefly()] {
		one()
	}
	if waiting > 0 { // else the test shows nothing
		within(t, "two runs have sandboxes that waited", func() bool {
			if warm < 2 && !t.Failed() {
				one()
			}
			return warm > 1 || t.Failed()
		})
	}
}

const unique = `
import os, random, socket, tempfile, time, uuid
def line(p):
    try: return open(p).read().strip()
    except OSError: return ""
a = time.monotonic()
print(time.time(), socket.gethostname(), line("/etc/machine-id"), line("/proc/sys/kernel/random/boot_id"), sep="|")
print(os.urandom(32).hex(), random.random(), random.SystemRandom().random(), uuid.uuid4(), uuid.uuid1(), tempfile.mktemp(),
      line("/proc/sys/kernel/random/uuid"), hash("x"), sep="|")
assert time.monotonic() >= a
`

const uniqueOfJS = `
console.log([Date.now() / 1000, "", "", ""].join("|"));
console.log([Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(32))].join("")].join("|"));
`

// clones: sandboxes that come of one start share neither randomness nor a clock,
// and each has the time of the host before its first instruction.
func clones(t *testing.T, s Subject) {
	n := 6
	switch {
	case soak:
		n = 20
	case s.briefly():
		n = 3
	}
	h, _ := s.Open(t, Config{Warm: 2, Runs: n, Queue: n})
	r := s.uniqueRun(t)
	settle(t, h, r)
	seen := map[string]int{}
	within(t, "one that waited is a clone", func() bool {
		time.Sleep(1500 * time.Millisecond) // what waits gets older
		return s.atOnce(t, h, r, n, seen) > 0 || t.Failed()
	})
}

// atOnce runs some at once, and tells how many of them had waited.
func (s Subject) atOnce(t *testing.T, h tier.Tier, r tier.Request, n int, seen map[string]int) (warm int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			from := time.Now()
			res, err := h.Run(t.Context(), r)
			lines := strings.Split(strings.TrimSpace(string(res.Stdout)), "\n")
			if err != nil || len(lines) != 2 {
				t.Errorf("%q, %q, %v", res.Stdout, res.Stderr, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if res.Receipt.Warm {
				warm++
			}
			s.judgeClone(t, i, seen, lines, from, time.Now())
		})
	}
	all.Wait()
	return warm
}

func (s Subject) uniqueRun(t testing.TB) tier.Request {
	t.Helper()
	if s.Modules == "" {
		r := tier.Request{Image: "default", Argv: []string{"python3", "main.py"}, Limits: s.over(deed{}.limits), Files: []tier.File{{Path: "main.py", Content: []byte(unique)}}}
		return r
	}
	return s.needs(t, deed{js: uniqueOfJS, wasi: []string{"unique"}})
}

// judgeClone judges what one of them said: its time, its names, its random values.
func (s Subject) judgeClone(t *testing.T, i int, seen map[string]int, lines []string, from, to time.Time) {
	t.Helper()
	known := strings.Split(lines[0], "|")
	at, err := strconv.ParseFloat(known[0], 64)
	clock := time.UnixMicro(int64(at * 1e6))
	if err != nil || clock.Before(from.Add(-s.Clock)) || clock.After(to.Add(s.Clock)) {
		t.Errorf("clone %d: its clock was %v, the host's from %v to %v", i, clock, from, to)
	}
	values := strings.Split(lines[1], "|")
	if s.Modules == "" && s.Names { // a started interpreter that is copied keeps the seed of its hashes: see docs/threat-model.md
		values = values[:len(values)-1]
	}
	if s.Names {
		values = append(values, known[1:]...)
	}
	for _, v := range values {
		if before, ok := seen[v]; ok || v == "" {
			t.Errorf("clones %d and %d both had %q", before, i, v)
		}
		seen[v] = i
	}
}
