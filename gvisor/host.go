package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/gpu"
	"sallyport.dev/sallyport/gvisor/trace"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/places"
	"sallyport.dev/sallyport/tier/pool"
	"sallyport.dev/sallyport/tier/rundir"
	"sallyport.dev/sallyport/tier/verified"
)

// A Config says where a Host finds and keeps things.
type Config struct {
	Programs string // folder of RuntimeProgram and InitProgram
	Dir      string // runtime folder, absolute, 0700; one Host at a time
	Images   tier.Images
	MaxRuns  int         // at once. 0 means 16
	Queue    int         // runs that may wait for one of MaxRuns to end; more are refused
	Warm     int         // sandboxes that wait, started, for the next request of their kind; 0 means none
	Broker   tier.Broker // nil refuses requests that are to reach something
	GPUs     gpu.Machine // where GPUs are looked for: the zero value is here
}

// A Host runs sandboxes. It is safe for concurrent use.
type Host struct {
	cfg    Config
	dir    *rundir.Dir
	init   *os.File // the program of process 1, held open
	images verified.Images
	spawn  *child.Spawner
	places places.Places
	starts *places.Starts

	closing chan struct{}
	graves  sync.WaitGroup

	warm *pool.Pool[warmKey, *sandbox]

	version string // of gVisor in RuntimeProgram

	mu       sync.Mutex
	running  map[string]*sandbox
	deleting map[string]*sandbox // see bury
	closed   bool
	idle     sync.WaitGroup
	platform string // found by Probe; "" before
	gathered string // version of the driver whose libraries lie in driverDir
}

// Open takes the runtime folder, deletes whatever an earlier Host that was
// killed left behind (processes, cgroups, folders), and is then ready to run.
// It refuses where gVisor's sandboxes could not be bounded.
func Open(cfg Config) (*Host, error) {
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = 16
	}
	if err := rundir.Privileged(); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, places: places.New(cfg.MaxRuns, cfg.Queue), starts: places.NewStarts(startsAtOnce()), running: map[string]*sandbox{}, deleting: map[string]*sandbox{}, closing: make(chan struct{})}
	h.warm = pool.New(cfg.Warm, pool.Care[warmKey, *sandbox]{Make: h.hatch, Alive: (*sandbox).alive, Discard: h.letGo})
	ok := false
	defer func() {
		if !ok {
			h.free()
		}
	}()
	if err := h.openPrograms(); err != nil {
		return nil, err
	}
	var err error
	if h.dir, err = rundir.Take(cfg.Dir, h.removeRuns); err != nil {
		return nil, err
	}
	if err := h.writeConstants(); err != nil {
		return nil, err
	}
	h.spawn = child.NewSpawner()
	ok = true
	return h, nil
}

// startsAtOnce is how many sandboxes may start at once. Measured on two
// processors: fewer leave processors without work while one waits for the kernel,
// more hold each other up (see docs/spec.md).
func startsAtOnce() int { return 8 * runtime.NumCPU() }

func (h *Host) openPrograms() error {
	for _, p := range []string{RuntimeProgram, InitProgram} {
		f, err := os.Open(filepath.Join(h.cfg.Programs, p))
		if err != nil {
			return tier.Unavailable("run `make build`; the programs lie beside each other", "%s is missing: %v", p, err)
		}
		if p == InitProgram {
			h.init = f
			continue
		}
		f.Close()
		h.version = RuntimeVersion(f.Name())
	}
	return nil
}

func (h *Host) runsDir() string   { return filepath.Join(h.cfg.Dir, "runs") }
func (h *Host) bundle() string    { return filepath.Join(h.cfg.Dir, "bundle") }
func (h *Host) traceFile() string { return filepath.Join(h.cfg.Dir, "trace.json") }
func (h *Host) exitsFile() string { return filepath.Join(h.cfg.Dir, "trace-exits.json") }

func (h *Host) traceOf(s *sandbox) string {
	if s.exits {
		return h.exitsFile()
	}
	return h.traceFile()
}

// OpenFree opens a Host in the first of base's folders that no living Host uses.
func OpenFree(base string, cfg Config) (*Host, error) {
	return rundir.OpenFree(base, func(_ int, dir string) (*Host, error) {
		c := cfg
		c.Dir = dir
		return Open(c)
	})
}

// NewGroup makes a cgroup that is reaped with the Host's own. memory 0 means
// unlimited.
func (h *Host) NewGroup(name string, memory int64) (cgroup.Group, error) {
	return h.dir.Groups.New(name, memory, 0)
}

// Start starts a process that the kernel kills with the Host, if its
// SysProcAttr asks for that.
func (h *Host) Start(cmd *exec.Cmd) error { return h.spawn.Start(cmd) }

// removeRuns deletes what an earlier Host left in the folder.
func (h *Host) removeRuns() error {
	var errs []error
	runs, _ := filepath.Glob(filepath.Join(h.runsDir(), "*")) // the pattern is well-formed
	for _, dir := range runs {
		errs = append(errs, removeRun(dir))
	}
	return errors.Join(append(errs, os.RemoveAll(h.runsDir()))...)
}

// writeConstants writes the files that are the same for every sandbox.
func (h *Host) writeConstants() error {
	root := filepath.Join(h.bundle(), "root")
	for _, d := range []string{h.runsDir(), root} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	spec, err := bundleSpec(root, "")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(h.bundle(), "config.json"), spec, 0o600); err != nil {
		return err
	}
	for file, exits := range map[string]int{h.traceFile(): trace.NoExits, h.exitsFile(): fdReport} {
		events, err := trace.Config(fdLimits, exits)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, events, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Probe runs `true` in a sandbox, with systrap or else ptrace, and says why
// none of them works. The platform that worked is used from then on. It never
// looks at what a host claims to support.
func (h *Host) Probe(ctx context.Context, image string) (platform string, err error) {
	var why []string
	for _, p := range []string{"systrap", "ptrace"} {
		l := sallyport.DefaultLimits()
		l.Timeout = bootPatience
		res, err := h.run(ctx, p, tier.Request{Image: image, Argv: []string{"/bin/true"}, Limits: l})
		if err == nil && res.ExitCode == 0 && res.KilledBy == "" {
			h.mu.Lock()
			h.platform = p
			h.mu.Unlock()
			return p, nil
		}
		if err == nil {
			err = fmt.Errorf("`true` ended with %d %s", res.ExitCode, res.KilledBy)
		}
		why = append(why, p+": "+err.Error())
		if ctx.Err() != nil {
			break
		}
	}
	e := tier.Unavailable("see `sallyport doctor`", "gVisor cannot run a program on this host")
	e.Err = fmt.Errorf("%w: %s", sallyport.ErrNotExecuted, strings.Join(why, "; "))
	e.Message += ": " + strings.Join(why, "; ")
	return "", e
}

// List returns the sandboxes that exist now.
func (h *Host) List() []tier.Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]tier.Running, 0, len(h.running))
	for _, s := range h.running {
		if !s.ended && !s.waiting {
			all = append(all, tier.Running{ID: s.id, CallID: s.callID, Started: s.began})
		}
	}
	for _, s := range h.deleting {
		all = append(all, tier.Running{ID: s.id, CallID: s.callID, Started: s.began, Deleting: true})
	}
	return all
}

// Kill ends one sandbox, and reports whether it existed.
func (h *Host) Kill(id string) bool {
	h.mu.Lock()
	s := h.running[id]
	ended := s == nil || s.ended || s.waiting
	h.mu.Unlock()
	if ended {
		return false
	}
	s.cancel(tier.ErrKilled)
	return true
}

// Close ends every sandbox and frees the runtime folder. It is idempotent.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.idle.Wait()
		return nil
	}
	h.closed = true
	close(h.closing)
	h.places.Close()
	for _, s := range h.running {
		s.cancel(tier.ErrClosed)
	}
	h.mu.Unlock()
	h.warm.Close()
	h.idle.Wait()
	h.graves.Wait()
	h.free()
	return nil
}

func (h *Host) free() {
	h.warm.Close()
	h.images.Close()
	if h.spawn != nil {
		h.spawn.Stop()
	}
	if h.init != nil {
		h.init.Close()
	}
	h.dir.Close()
}
