// Package isolate runs JavaScript and Wasm modules in V8 isolates of workerd,
// Cloudflare's runtime: a fresh isolate for each call, with nothing but its
// input, in a process that is caged (package cage) and serves one call at a time.
//
// workerd enforces no limits itself: a loop without end holds its whole process.
// So a process that runs into its deadline or its memory is killed, and that
// harms nobody else. A process that served one owner may serve the same one
// again, a bounded number of times, and never another; see docs/threat-model.md.
package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/isolate/workerd"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/places"
	"sallyport.dev/sallyport/tier/pool"
)

// A Config says where a Host finds and keeps things.
type Config struct {
	House   *cage.House // confines the processes; one Host at a time has its folder
	Cache   string      // folder that has workerd
	MaxRuns int         // at once. 0 means 16
	Queue   int         // runs that may wait for one of MaxRuns to end; more are refused
	Warm    int         // fresh processes that wait for a call of their kind, and as many used ones; 0 means none
	Broker  tier.Broker
}

// A Host runs isolates. It is safe for concurrent use.
type Host struct {
	cfg     Config
	house   *cage.House
	program *os.File
	places  places.Places
	fresh   *pool.Pool[kind, *process]
	shelf   *shelf
	again   time.Duration // until a process that served a call answers again

	mu      sync.Mutex
	running map[string]*call
	closed  bool
	idle    sync.WaitGroup // calls, and processes that end
}

var _ tier.Tier = (*Host)(nil)

// Open makes a Host. It refuses where workerd is missing or another than it must be.
func Open(cfg Config) (_ *Host, err error) {
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = 16
	}
	h := &Host{cfg: cfg, house: cfg.House, places: places.New(cfg.MaxRuns, cfg.Queue), again: pingPatience, running: map[string]*call{}}
	defer func() {
		if err != nil {
			h.free()
		}
	}()
	if h.program, err = workerd.Find(cfg.Cache); err != nil {
		return nil, err
	}
	if err := h.makeRoot(); err != nil {
		return nil, err
	}
	h.fresh = pool.New(cfg.Warm, pool.Care[kind, *process]{Make: h.start, Alive: (*process).alive, Discard: (*process).end})
	h.shelf = &shelf{max: cfg.Warm, of: map[seat][]*process{}}
	return h, nil
}

// Probe proves each protection of the cages, and runs a module.
func (h *Host) Probe(ctx context.Context, _ string) (platform string, err error) {
	proof, err := h.house.Prove(ctx)
	if err != nil {
		return "", err
	}
	l := sallyport.DefaultLimits()
	l.Timeout = startPatience
	began := time.Now()
	res, err := h.Run(ctx, tier.Request{
		Argv: []string{"probe.js"}, Limits: l,
		Module: &tier.Module{Language: "javascript", Code: []byte("console.log(6*7)")},
	})
	if err == nil && (res.ExitCode != 0 || string(res.Stdout) != "42\n") {
		err = fmt.Errorf("a module that prints 42 ended with %d, %q", res.ExitCode, res.Stdout)
	}
	if err != nil {
		if _, ours := errors.AsType[*sallyport.Error](err); ours || ctx.Err() != nil {
			return "", err
		}
		e := tier.Unavailable("see `sallyport doctor`", "V8 isolates do not run on this host: %v", err)
		return "", e
	}
	return fmt.Sprintf("%s %s ran a module in %d ms; cages: %s", platformName, workerd.Version, time.Since(began).Milliseconds(), proof), nil
}

const platformName = "workerd"

// List returns the runs that go on now.
func (h *Host) List() []tier.Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]tier.Running, 0, len(h.running))
	for _, c := range h.running {
		all = append(all, tier.Running{ID: c.id, CallID: c.request.CallID, Started: c.began})
	}
	return all
}

// Kill ends one run with its process, and reports whether it existed.
func (h *Host) Kill(id string) bool {
	h.mu.Lock()
	c := h.running[id]
	h.mu.Unlock()
	if c != nil {
		c.stop(tier.ErrKilled)
	}
	return c != nil
}

// Close ends every run and process; the House stays. It may be repeated.
func (h *Host) Close() error {
	h.mu.Lock()
	was := h.closed
	h.closed = true
	for _, c := range h.running {
		c.stop(tier.ErrClosed)
	}
	h.mu.Unlock()
	if was {
		h.idle.Wait()
		return nil
	}
	h.places.Close()
	h.fresh.Close()
	h.shelf.close()
	h.idle.Wait()
	h.free()
	return nil
}

func (h *Host) free() {
	if h.program != nil {
		h.program.Close()
	}
}

func (h *Host) rootDir() string { return filepath.Join(h.house.Dir(), "root") }
