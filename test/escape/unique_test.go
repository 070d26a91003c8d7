package escape_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
)

const uniqueValues = `
import os, random, tempfile, time, uuid
for v in (time.time(), os.urandom(16).hex(), random.random(), random.SystemRandom().random(), uuid.uuid4(), uuid.uuid1(), tempfile.mktemp(),
          open("/proc/sys/kernel/random/uuid").read().strip(), hash("x")):
    print(v)
`

// Sandboxes that were started ahead share neither randomness nor a clock.
func TestFO49_NothingIsShared(t *testing.T) {
	b := newBench(t)
	r := gvisor.Request{Image: "default", Argv: []string{"python3", "run.py"}, Limits: sallyport.DefaultLimits()}
	r.Files = []gvisor.File{{Path: "run.py", Content: []byte(uniqueValues)}}
	type answer struct {
		lines []string
		warm  bool
		from  time.Time
	}
	var mu sync.Mutex
	var all []answer
	one := func() {
		from := time.Now()
		res, err := b.host.Run(t.Context(), r)
		lines := strings.Fields(string(res.Stdout))
		if err != nil || len(lines) != 9 {
			t.Errorf("%q, %v", res.Stdout, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, answer{lines, res.Receipt.Warm, from})
	}
	for range 3 { // each warm one waits a while before it is taken
		b.warmUp(t, r)
		time.Sleep(time.Second)
		var both sync.WaitGroup
		both.Go(one)
		both.Go(one)
		both.Wait()
	}
	seen, warm := map[string]bool{}, 0
	for _, a := range all {
		if a.warm {
			warm++
		}
		at, err := strconv.ParseFloat(a.lines[0], 64)
		if d := time.UnixMicro(int64(at * 1e6)).Sub(a.from); err != nil || d < -time.Second || d > time.Minute {
			t.Errorf("its clock was %v off", d)
		}
		for _, v := range a.lines[1:] {
			if seen[v] {
				t.Errorf("two sandboxes had %s", v)
			}
			seen[v] = true
		}
	}
	if warm < 3 {
		t.Errorf("control: only %d of %d were warm", warm, len(all))
	}
}
