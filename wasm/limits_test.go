package wasm_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/wasm"
	"sallyport.dev/sallyport/wasm/wasmtest"
)

// Every limit that ends a run, or is refused in it, is told by name.
func TestLimits(t *testing.T) {
	h, _ := wasmtest.Open(t)
	code := wasmtest.Go(t, program)
	grow := wasmtest.Module{Pages: 1, Body: slices.Concat(wasmtest.I32(1<<14), []byte{wasmtest.Grow, 0, wasmtest.Drop})}.Bytes()
	own := wasmtest.Module{Pages: 1, MaxPages: 2, Body: slices.Concat(wasmtest.I32(2), []byte{wasmtest.Grow, 0, wasmtest.Drop})}.Bytes()
	for name, c := range map[string]struct {
		r      tier.Request
		l      sallyport.Limits
		killed tier.KilledBy
		hit    []string
		exit   int
		says   string
	}{
		"as much memory as there is": {r: request(code, "take", "60"), l: sallyport.Limits{Memory: 96 << 20}, says: "taken\n"},
		"more memory than there is":  {r: request(code, "take", "400"), l: sallyport.Limits{Memory: 96 << 20}, killed: tier.KilledByMemory, hit: []string{tier.LimitMemory}, exit: 2},
		"refused memory, and lives":  {r: request(grow), hit: []string{tier.LimitMemory}},
		"its own bound of memory":    {r: request(own)},
		"a table that grows":         {r: request(tables()), killed: tier.KilledByMemory, exit: 137},
		"a loop":                     {r: request(code, "spin"), l: sallyport.Limits{Timeout: time.Second}, killed: tier.KilledByTimeout, exit: 137, says: "so far\n"},
		"a sleep":                    {r: request(code, "sleep"), l: sallyport.Limits{Timeout: time.Second}, killed: tier.KilledByTimeout, exit: 137, says: "so far\n"},
		"a full disk":                {r: request(code, "disk", "100"), l: sallyport.Limits{Disk: 16 << 20}, hit: []string{tier.LimitDisk}, says: "write /tmp/big: I/O error\n"},
		"a disk that holds it":       {r: request(code, "disk", "15"), l: sallyport.Limits{Disk: 16 << 20}, says: "<nil>\n"},
		"a flood":                    {r: request(code, "flood", "64"), l: sallyport.Limits{Output: 1000}, hit: []string{tier.LimitOutput}},
	} {
		t.Run(name, func(t *testing.T) {
			var res tier.Result
			await.Longer(cmp.Or(c.l.Timeout, await.Patience), func(d time.Duration) bool { // a short time may not be enough to say something
				c.l.Timeout = d
				c.r.Limits = c.l.Or(sallyport.DefaultLimits())
				res = run(t, h, c.r)
				return c.says == "" || len(res.Stdout) > 0
			})
			if res.KilledBy != c.killed || !slices.Equal(res.LimitsHit, c.hit) || res.ExitCode != c.exit {
				t.Errorf("killed by %q, limits %q, exit %d, stderr %.300q; want %q, %q, %d", res.KilledBy, res.LimitsHit, res.ExitCode, res.Stderr, c.killed, c.hit, c.exit)
			}
			if c.says != "" && string(res.Stdout) != c.says {
				t.Errorf("stdout %.200q, want %q", res.Stdout, c.says)
			}
			if res.Truncated != slices.Contains(c.hit, tier.LimitOutput) || int64(len(res.Stdout)) > c.r.Limits.Output {
				t.Errorf("truncated %v with %d bytes", res.Truncated, len(res.Stdout))
			}
			if c.killed != "" && res.Receipt.Exit != string(c.killed) {
				t.Errorf("the receipt says %q", res.Receipt.Exit)
			}
		})
	}
}

// tables is a module that doubles a table without end.
func tables() []byte {
	// loop: ref.null func, i32.const 1<<20, table.grow 0, drop, br 0
	body := slices.Concat([]byte{wasmtest.Loop, 0x40, 0xd0, 0x70}, wasmtest.I32(1<<20), []byte{0xfc, 15, 0, wasmtest.Drop, wasmtest.Br, 0, wasmtest.End})
	return wasmtest.Module{Pages: 1, Table: 1, Body: body}.Bytes()
}

// While modules misbehave, others are none the worse, and nothing stays behind.
func TestHostileNeighbours(t *testing.T) {
	dir := t.TempDir()
	h, _ := wasmtest.Open(t, func(c *wasm.Config) { c.Dir = filepath.Join(dir, "compiled") })
	code := wasmtest.Go(t, program)
	run(t, h, request(code, "exit", "0")) // compiled
	var all sync.WaitGroup
	for _, args := range [][]string{{"spin"}, {"take", "400"}, {"flood", "1024"}, {"disk", "1000"}} {
		all.Go(func() {
			r := request(code, args...)
			r.Limits.Timeout, r.Limits.Memory = 3*time.Second, 128<<20
			if _, err := h.Run(t.Context(), r); err != nil {
				t.Errorf("%q: %v", args, err)
			}
		})
	}
	for range 10 {
		r := request(code, "echo")
		r.Stdin = []byte("42")
		if res := run(t, h, r); string(res.Stdout) != "42" || res.KilledBy != "" {
			t.Errorf("a neighbour was disturbed: %+v", res)
		}
	}
	all.Wait()
	if left := h.List(); len(left) > 0 {
		t.Errorf("%+v still runs", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "compiled", "*")); len(left) != 1 {
		t.Errorf("the folder holds %q, not just the module", left)
	}
}

func TestCancelKillAndClose(t *testing.T) {
	h, _ := wasmtest.Open(t)
	code := wasmtest.Go(t, program)
	begin := func(ctx context.Context) (id string, ended chan error) {
		ended = make(chan error, 1)
		out := make(chan struct{}, 8)
		r := request(code, "sleep")
		r.CallID, r.Told = "call", func(bool, []byte) { out <- struct{}{} }
		go func() {
			_, err := h.Run(ctx, r)
			ended <- err
		}()
		<-out
		all := h.List()
		if len(all) != 1 || all[0].CallID != "call" || all[0].Started.IsZero() {
			t.Fatalf("%+v runs", all)
		}
		return all[0].ID, ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, ended := begin(ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	id, ended := begin(t.Context())
	if !h.Kill(id) || h.Kill("sp-none") {
		t.Error("Kill says that it did not find what runs, or found what does not")
	}
	if err := <-ended; sallyport.CodeOf(err) != sallyport.Canceled || errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("killed: %v", err)
	}
	stopped, stop := context.WithCancelCause(t.Context())
	r := request(code, "sleep")
	r.Told = func(bool, []byte) { stop(tier.ErrStopped) }
	if res, err := h.Run(stopped, r); err != nil || res.KilledBy != tier.KilledByCaller || string(res.Stdout) != "so far\n" {
		t.Errorf("stopped: %+v, %v", res, err)
	}
	_, ended = begin(t.Context())
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; sallyport.CodeOf(err) != sallyport.Canceled {
		t.Errorf("closed: %v", err)
	}
	if _, err := h.Run(t.Context(), request(code)); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("after Close: %v", err)
	}
}

// What this tier does not have is refused before anything runs.
func TestRefused(t *testing.T) {
	h, _ := wasmtest.Open(t)
	good := wasmtest.Module{Pages: 1}.Bytes()
	for name, change := range map[string]func(*tier.Request){
		"no module":        func(r *tier.Request) { r.Module = nil },
		"other language":   func(r *tier.Request) { r.Module.Language = "javascript" },
		"a way out":        func(r *tier.Request) { r.Way.Reach = []string{"example.com:443"} },
		"a GPU":            func(r *tier.Request) { r.GPU = true },
		"too large":        func(r *tier.Request) { r.Module.Code = make([]byte, sallyport.MaxModule+1) },
		"a file elsewhere": func(r *tier.Request) { r.Files = []tier.File{{Path: "../x"}} },
		"no time":          func(r *tier.Request) { r.Limits.Timeout = 0 },
	} {
		r := request(bytes.Clone(good))
		change(&r)
		if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, hidden := range []bool{false, true} {
		_, err := h.Run(t.Context(), request(wasmtest.Module{Pages: 60_000, Hidden: hidden}.Bytes()))
		if sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), "3750 MiB of memory from the start") {
			t.Errorf("memory that is too large from the start, hidden %v: %v", hidden, err)
		}
	}
	r := request(good)
	r.Limits.Disk = 64 << 10
	for i := range 20 {
		r.Files = append(r.Files, tier.File{Path: strings.Repeat("d", i+1), Content: make([]byte, 3000)})
	}
	if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Invalid || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("files in pages that do not fit: %v", err)
	}
}
