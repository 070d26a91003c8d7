package tiertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// pause waits for a while and prints a line.
func pause(d time.Duration, line string) deed {
	return deed{
		sh: fmt.Sprintf("sleep %g; echo %s", d.Seconds(), line), wasi: []string{"pause", d.String(), line},
		js: fmt.Sprintf("await new Promise((done) => setTimeout(done, %d)); console.log(%s)", d.Milliseconds(), quoted(line)),
	}
}

// crowd is how many places a host has there, how many want one, and how many of them
// go away, in each of how many rounds.
func (s Subject) crowd() (limit, creates, cancels, rounds int) {
	switch {
	case soak:
		return 20, 100, 30, 5
	case s.briefly():
		return 2, 5, 2, 2
	}
	return 3, 12, 4, 5
}

// manyCreates: a full host queues, within its bound, and then says so. Those that
// are cancelled, in the queue or in mid-run, leave nothing; nobody is answered with
// what another one said.
func manyCreates(t *testing.T, s Subject) {
	limit, creates, cancels, rounds := s.crowd()
	h, dir := s.Open(t, Config{Runs: limit, Queue: creates})
	g := groundOf(t, s, h, dir)
	var most atomic.Int64
	over := make(chan struct{})
	go func() {
		for ; !closed(over); time.Sleep(2 * time.Millisecond) {
			most.Store(max(most.Load(), int64(len(h.List()))))
		}
	}()
	for round := range rounds {
		var all sync.WaitGroup
		var ran atomic.Int64
		for i := range creates {
			r := s.needs(t, pause(50*time.Millisecond, fmt.Sprint(i)))
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i < cancels {
					time.AfterFunc(time.Duration(20+60*i)*time.Millisecond, cancel)
				}
				res, err := h.Run(ctx, r)
				for e, ok := errors.AsType[*sallyport.Error](err); ok && e.RetryAfter > 0; e, ok = errors.AsType[*sallyport.Error](err) { // it waited long for a place, where all is slow
					res, err = h.Run(ctx, r)
				}
				switch {
				case err == nil && string(res.Stdout) == fmt.Sprintln(i):
					ran.Add(1)
				case i < cancels && errors.Is(err, context.Canceled):
				default:
					t.Errorf("create %d: %q, %v", i, res.Stdout, err)
				}
			})
		}
		all.Wait()
		if n := ran.Load(); n < int64(creates-cancels) {
			t.Errorf("round %d: %d ran", round, n)
		}
	}
	close(over)
	if n := most.Load(); n > int64(limit) || n < 2 {
		t.Errorf("%d sandboxes at once, %d are allowed", n, limit)
	}
	g.quiet(t, h)
	t.Run("a full queue says so", func(t *testing.T) { fullQueue(t, s) })
	t.Run("all places are free again", func(t *testing.T) {
		var all sync.WaitGroup
		r := s.needs(t, pause(50*time.Millisecond, "still"))
		for range limit {
			all.Go(func() {
				if res, err := h.Run(t.Context(), r); err != nil || string(res.Stdout) != "still\n" {
					t.Errorf("%q, %v", res.Stdout, err)
				}
			})
		}
		all.Wait()
	})
}

func fullQueue(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{Runs: 1, Queue: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r := s.needs(t, hang("up"))
	errs := make(chan error, 3)
	for range 3 {
		go func() { _, err := h.Run(ctx, r); errs <- err }()
	}
	told := <-errs
	cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("of those that were taken, one ended with %v", err)
		}
	}
	e, ok := errors.AsType[*sallyport.Error](told)
	if !ok || e.Code != sallyport.Unavailable || e.RetryAfter == 0 || !errors.Is(told, sallyport.ErrNotExecuted) {
		t.Errorf("the third was refused with %v", told)
	}
}

// listAndKill: what runs is listed, by its own id and its call's, and can be ended
// by that id; nothing else can.
func listAndKill(t *testing.T, s Subject) {
	h, dir := s.Open(t, Config{Runs: 4})
	g := groundOf(t, s, h, dir)
	ended := map[string]chan error{}
	var up atomic.Int64
	for _, call := range []string{"one", "two"} {
		r := s.needs(t, hang("up"))
		r.CallID = call
		r.Told = func(bool, []byte) { up.Add(1) }
		ended[call] = make(chan error, 1)
		go func() { _, err := h.Run(t.Context(), r); ended[call] <- err }()
	}
	within(t, "both are listed", func() bool { return len(h.List()) == 2 && up.Load() == 2 })
	ids := map[string]string{}
	for _, r := range h.List() {
		if r.ID == "" || r.Deleting || time.Since(r.Started) > time.Hour {
			t.Errorf("%+v", r)
		}
		ids[r.CallID] = r.ID
	}
	for _, none := range []string{"", "no-such-sandbox", "../" + ids["one"], ids["one"] + "x", "one"} {
		if h.Kill(none) {
			t.Errorf("%q was killed", none)
		}
	}
	if len(ids) != 2 || ids["one"] == ids["two"] || !h.Kill(ids["one"]) {
		t.Fatalf("%v", ids)
	}
	if err := arrives(t, ended["one"]); err == nil || errors.Is(err, sallyport.ErrNotExecuted) || errors.Is(err, context.Canceled) {
		t.Errorf("one was killed by its id: %v", err)
	}
	if l := h.List(); len(without(l, ids["one"])) != 1 || h.Kill(ids["one"]) {
		t.Errorf("the other is there alone: %+v", l)
	}
	if !h.Kill(ids["two"]) {
		t.Error("two is not there")
	}
	if err := arrives(t, ended["two"]); err == nil {
		t.Error("two ended by itself")
	}
	g.quiet(t, h)
}

func without(all []tier.Running, id string) (rest []tier.Running) {
	for _, r := range all {
		if r.ID != id {
			rest = append(rest, r)
		}
	}
	return rest
}

func arrives(t *testing.T, c chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("it goes on")
		return nil
	}
}

// nothingIsLeft: however runs end, the host is as it was before them: processes,
// files, sockets, mounts, control groups.
func nothingIsLeft(t *testing.T, s Subject) {
	h, dir := s.Open(t, Config{Runs: 4})
	small := say("what is made once for a kind is made")
	small.limits.Memory = memoryLimit
	run(t, h, s.needs(t, small))
	g := groundOf(t, s, h, dir)
	for name, d := range map[string]deed{
		"exits":       say("x"),
		"fails":       {sh: "exit 3", js: "throw 1", wasi: []string{"exit", "3"}},
		"killed":      {sh: "kill -9 $$"},
		"times out":   {sh: "sleep 60 & sleep 60", js: "for (;;);", wasi: []string{"spin"}, limits: sallyport.Limits{Timeout: 500 * time.Millisecond}},
		"too large":   {py: take(beyond), js: "const all = []; for (;;) all.push(new Array(1e5).fill(1))", wasi: []string{"take", "260"}, limits: sallyport.Limits{Memory: memoryLimit}},
		"leaves":      {sh: "setsid sleep 60 & mkdir -p /tmp/a/b; mkfifo /tmp/p; echo x >/dev/shm/x; exec sleep 0.1"},
		"a flood":     {sh: "timeout 0.5 yes", limits: sallyport.Limits{Output: 1000}},
		"makes trees": {py: "import os\nfor i in range(200): os.mkdir('d'); os.chdir('d')"},
	} {
		if r, ok := s.request(t, d); ok {
			t.Run(name, func(t *testing.T) { run(t, h, r) })
		}
	}
	g.quiet(t, h)
}
