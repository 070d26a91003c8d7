package microvm_test

import (
	"encoding/json"
	"net"
	"os"
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
socket.gethostbyname(socket.gethostname()) # the name is known there
print(json.dumps({
  "urandom": os.urandom(32).hex(), "random": random.getrandbits(128), "uuid4": str(uuid.uuid4()), "tls": ssl.RAND_bytes(32).hex(),
  "machine-id": read("/etc/machine-id"), "boot-id": read("/proc/sys/kernel/random/boot_id"), "kernel's uuid": read("/proc/sys/kernel/random/uuid"),
  "hostname": socket.gethostname(), "/etc/hostname": read("/etc/hostname"),
  "temp": os.path.basename(tempfile.mktemp()), "clock": time.time(), "monotonic": time.monotonic(),
}), flush=True)
`

// FO-49: copies of a snapshot in which Python has been started differ in
// everything that is meant to be unique, and have the host's time.
func TestFO49ClonesDiffer(t *testing.T) {
	clones := 4
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
	microvmtest.Differ(t, all)
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
