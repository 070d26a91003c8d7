package microvm_test

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
)

// unique tells, of the machine and of the interpreter, what no two copies may have
// in common.
const unique = `
import json, os, random, socket, ssl, tempfile, time, uuid
read = lambda p: open(p).read().strip()
print(json.dumps({
  "urandom": os.urandom(32).hex(), "random": random.getrandbits(128), "uuid4": str(uuid.uuid4()), "tls": ssl.RAND_bytes(32).hex(),
  "machine-id": read("/etc/machine-id"), "boot-id": read("/proc/sys/kernel/random/boot_id"), "kernel's uuid": read("/proc/sys/kernel/random/uuid"),
  "hostname": socket.gethostname(), "/etc/hostname": read("/etc/hostname"), "address": socket.gethostbyname(socket.gethostname()) and os.urandom(8).hex(),
  "temp": os.path.basename(tempfile.mktemp()), "clock": time.time(), "monotonic": time.monotonic(),
}), flush=True)
`

// differ says what two or more of the reports have in common.
func differ(t *testing.T, all []map[string]any) {
	t.Helper()
	for key := range all[0] {
		seen := map[any]int{}
		for _, r := range all {
			seen[r[key]]++
		}
		if len(seen) != len(all) && key != "clock" && key != "monotonic" {
			t.Errorf("%s is the same in several of %d copies: %v", key, len(all), seen)
		}
	}
}

// FO-49: copies of a snapshot in which Python has been started differ in
// everything that is meant to be unique, and have the host's time.
func TestFO49ClonesDiffer(t *testing.T) {
	clones := 8
	if os.Getenv("SALLYPORT_ESCAPE") != "" {
		clones = 20 // as many as the case wants; half a minute of two processors
	}
	h := microvmtest.Open(t, func(c *microvm.Config) { c.MaxRuns, c.Broker = clones, closed{} })
	r := python(unique)
	r.Way.Reach = []string{"example.com:443"} // so that the modules with generators are in the snapshot
	if err := h.Prepare(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	all := make([]map[string]any, clones)
	behind := make([]time.Duration, clones)
	var wg sync.WaitGroup
	for i := range clones {
		wg.Go(func() {
			began := time.Now()
			var told time.Time
			r := r
			r.Told = func(bool, []byte) { told = time.Now() }
			res, err := h.Run(t.Context(), r)
			if err != nil || json.Unmarshal(res.Stdout, &all[i]) != nil {
				t.Errorf("%v %q %q", err, res.Stdout, res.Stderr)
				return
			}
			clock := time.Unix(0, int64(all[i]["clock"].(float64)*1e9))
			if behind[i] = told.Sub(clock); clock.Before(began) || clock.After(told.Add(50*time.Millisecond)) {
				t.Errorf("the clock says %v, between %v and %v", clock, began, told)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	differ(t, all)
	t.Logf("clocks, with the way of what was said: %v", behind)
}

// closed is a broker that lets nothing out.
type closed struct{}

func (closed) Authority(time.Duration) (tier.Authority, error) { return tier.Authority{}, nil }

func (closed) Open(_ string, w tier.Way, _ tier.Authority, _ time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	return func() tier.Passed {
		l.Close()
		return tier.Passed{Egress: sallyport.AppliedEgress{Rules: w.Reach}}
	}, nil
}

// FO-47: what waits is used once, and has nothing of a run before it.
func TestFO47WaitsOnce(t *testing.T) {
	h := microvmtest.Open(t, func(c *microvm.Config) { c.Warm = 1 })
	r := request("sh", "-c", `cat /tmp/canary 2>/dev/null; echo canary >/tmp/canary; cat /proc/sys/kernel/random/boot_id; pgrep -c sleep; setsid sleep 1000 & true`)
	if err := h.Prepare(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	warm, boots := 0, map[string]bool{}
	for range 3 {
		res := run(t, h, r)
		out := strings.Fields(string(res.Stdout))
		if len(out) != 2 || boots[out[0]] || out[1] != "0" {
			t.Errorf("%q", res.Stdout)
		}
		boots[strings.Join(out[:1], "")] = true
		if res.Receipt.Warm {
			warm++
		}
		for end := time.Now().Add(time.Minute); h.Waiting() == 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if warm != 2 {
		t.Errorf("%d of 2 runs took what waited", warm)
	}
}

// What one session has in memory, all its siblings have: a nonce that nobody else
// knows proves it. From there each goes its own way, and differs in all that is
// meant to be unique.
func TestFork(t *testing.T) {
	h := microvmtest.Open(t)
	s, err := h.OpenSession(t.Context(), request("-"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say := func(s *microvm.Session, language, code string) string {
		t.Helper()
		res, err := s.Run(t.Context(), language, []byte(code), nil)
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%v %d %q %q", err, res.ExitCode, res.Stdout, res.Stderr)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	report := func(s *microvm.Session) (r map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(say(s, "python", unique)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	say(s, "python", "import os; nonce = os.urandom(16).hex()")
	say(s, "shell", "echo file >kept; mkdir -p deep; cd deep")
	before := report(s) // its generators have been used, and its boot id was read
	f, err := s.Fork(t.Context(), make([]tier.Way, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the source was paused for %v", f.Paused)
	nonce := say(s, "python", "print(nonce)")
	if len(nonce) != 32 {
		t.Fatalf("nonce %q", nonce)
	}
	all := []map[string]any{report(s)}
	for i, c := range f.Siblings {
		if got := say(c, "python", "print(nonce); nonce = 'another'"); got != nonce {
			t.Errorf("sibling %d has %q in memory, not %q", i, got, nonce)
		}
		if got := say(c, "shell", "pwd; cat ../kept; echo other >../kept"); got != "/home/agent/deep\nfile" {
			t.Errorf("sibling %d: %q", i, got)
		}
		r := report(c)
		if r["monotonic"].(float64) < before["monotonic"].(float64) {
			t.Errorf("sibling %d's monotonic clock went back: %v, before %v", i, r["monotonic"], before["monotonic"])
		}
		if off := time.Since(time.Unix(0, int64(r["clock"].(float64)*1e9))); off < -50*time.Millisecond || off > time.Minute {
			t.Errorf("sibling %d's clock is off by %v", i, off)
		}
		all = append(all, r)
	}
	differ(t, append(all, before)[:len(all)])
	if got := say(s, "python", "print(nonce)") + say(s, "shell", "cat ../kept"); got != nonce+"file" {
		t.Errorf("the source has what its siblings changed: %q", got)
	}
	if _, err := s.Fork(t.Context(), tier.Way{Reach: []string{"example.com:443"}}); err == nil {
		t.Error("a sibling reaches more than its source could")
	}
	for _, c := range f.Siblings {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
