// Package wasm runs one WASI module in one child process and destroys it.
//
// Read Host.Run first. A module has what WASI gives it: arguments, variables,
// standard streams, the clocks, random bytes, and a small disk in memory that
// holds the files of the request. It has no file of the host, no network and no
// other process. The child (package guest) compiles it to machine code with wazero
// and is itself confined by a cage (package cage): what breaks out of the module is
// in a process that can do nothing.
//
// Compiling and running are apart. A module is compiled in a child that is given
// the module and nothing else, and its code is kept under the module's digest; a
// run starts from that code in a child of its own, which may have waited, started,
// without a request. Each child is taken once.
//
// Limits are enforced outside the module's reach: memory by the runtime, by page,
// and above that by the child's control group; the disk and the output by their
// bounds; time and CPU from outside of the child.
package wasm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/places"
	"sallyport.dev/sallyport/tier/pool"
)

// Program is the child's; it lies beside the other programs.
const Program = "sallyport-wasm"

// Language is that of the modules that a Host runs.
const Language = "wasm"

// A Config says where a Host finds and keeps things.
type Config struct {
	Programs string      // folder of Program
	House    *cage.House // confines the children
	Dir      string      // folder of compiled modules, absolute, 0700; may be shared and may vanish
	MaxRuns  int         // at once. 0 means 16
	Queue    int         // runs that may wait for one of MaxRuns to end; more are refused
	Warm     int         // children that wait, with a module, for its next request; 0 means none
}

// A Host runs modules. It is safe for concurrent use.
type Host struct {
	cfg     Config
	program *os.File
	version string // of wazero in the program
	store   store
	places  places.Places
	warm    *pool.Pool[nature, *instance]

	compiling chan struct{} // holds one for each module that is being compiled

	mu       sync.Mutex
	running  map[string]*instance
	pending  map[string]*making // by digest
	closed   bool
	idle     sync.WaitGroup
	stopping context.CancelCauseFunc
	life     context.Context //nolint:containedctx // the host's own; ended by Close
}

// Open makes a Host. It refuses where the children could not be confined.
func Open(cfg Config) (*Host, error) {
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = 16
	}
	if cfg.House == nil {
		return nil, tier.Unavailable("see `sallyport doctor`", "there is no cage for the children that run modules")
	}
	path := filepath.Join(cfg.Programs, Program)
	program, err := os.Open(path)
	if err != nil {
		return nil, tier.Unavailable("run `make build`; the programs lie beside each other", "%s is missing: %v", Program, err)
	}
	h := &Host{
		cfg: cfg, program: program, version: RuntimeVersion(path), places: places.New(cfg.MaxRuns, cfg.Queue),
		compiling: make(chan struct{}, max(1, runtime.NumCPU()/2)), running: map[string]*instance{}, pending: map[string]*making{},
	}
	if h.store, err = openStore(cfg.Dir, program); err != nil {
		program.Close()
		return nil, err
	}
	h.life, h.stopping = context.WithCancelCause(context.Background())
	h.warm = pool.New(cfg.Warm, pool.Care[nature, *instance]{Make: h.hatch, Alive: (*instance).alive, Discard: h.discard})
	return h, nil
}

// probe is a module whose _start calls proc_exit(42).
//
//go:embed probe.wasm
var probe []byte

const probeCode = 42

// Probe proves the cage, and runs a module in it.
func (h *Host) Probe(ctx context.Context, _ string) (string, error) {
	if _, err := h.cfg.House.Prove(ctx); err != nil {
		return "", tier.Unavailable("see `sallyport doctor`", "the child that would run modules cannot be confined on this host: %v", err)
	}
	l := sallyport.DefaultLimits()
	res, err := h.Run(ctx, tier.Request{Argv: []string{"probe"}, Module: &tier.Module{Language: Language, Code: probe}, Limits: l})
	if err == nil && (res.ExitCode != probeCode || res.KilledBy != "") {
		err = fmt.Errorf("it ended with %d %s", res.ExitCode, res.KilledBy)
	}
	if err != nil {
		return "", tier.Unavailable("see the log of sallyport-sandboxd", "a module cannot be run on this host: %v", err)
	}
	return platform, nil
}

// platform is how modules run: compiled, by wazero.
const platform = "wazero"

// List returns the runs that exist now.
func (h *Host) List() []tier.Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]tier.Running, 0, len(h.running))
	for _, s := range h.running {
		if !s.waiting && !s.over {
			all = append(all, tier.Running{ID: s.id, CallID: s.callID, Started: s.began})
		}
	}
	return all
}

// Kill ends one run, and reports whether it existed.
func (h *Host) Kill(id string) bool {
	h.mu.Lock()
	s := h.running[id]
	there := s != nil && !s.waiting && !s.over
	h.mu.Unlock()
	if there {
		s.cancel(tier.ErrKilled)
	}
	return there
}

// Close ends every run. It is idempotent.
func (h *Host) Close() error {
	h.mu.Lock()
	was := h.closed
	h.closed = true
	h.mu.Unlock()
	if !was {
		h.stopping(tier.ErrClosed)
		h.places.Close()
	}
	h.warm.Close()
	h.idle.Wait()
	if was {
		return nil
	}
	return h.program.Close()
}

// discard ends a child that nobody took.
func (h *Host) discard(s *instance) {
	if err := s.end(); err != nil {
		slog.Error("a child that waited could not be ended", "sandbox", s.id, "err", err)
	}
	h.forget(s)
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
