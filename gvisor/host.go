package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/cgroup"
	"sallyport.dev/sallyport/gvisor/child"
	"sallyport.dev/sallyport/gvisor/places"
	"sallyport.dev/sallyport/gvisor/pool"
	"sallyport.dev/sallyport/gvisor/trace"
	"sallyport.dev/sallyport/gvisor/verified"
)

// A Config says where a Host finds and keeps things.
type Config struct {
	Programs string // folder of RuntimeProgram and InitProgram
	Dir      string // runtime folder, absolute, 0700; one Host at a time
	Images   Images
	MaxRuns  int    // at once. 0 means 16
	Queue    int    // runs that may wait for one of MaxRuns to end; more are refused
	Warm     int    // sandboxes that wait, started, for the next request of their kind; 0 means none
	Broker   Broker // nil refuses requests that are to reach something
}

// ErrInUse means that a living Host has the runtime folder.
var ErrInUse = errors.New("in use")

// A Host runs sandboxes. It is safe for concurrent use.
type Host struct {
	cfg    Config
	groups cgroup.Hierarchy
	lock   *os.File
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
}

// Open takes the runtime folder, deletes whatever an earlier Host that was
// killed left behind (processes, cgroups, folders), and is then ready to run.
// It refuses where gVisor's sandboxes could not be bounded.
func Open(cfg Config) (*Host, error) {
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = 16
	}
	if err := Privileged(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(cfg.Dir) {
		return nil, unavailable("give an absolute folder", "runtime folder %q is not absolute", cfg.Dir)
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
	if err := h.takeDir(); err != nil {
		return nil, err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	key, err := groupKey(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if h.groups, err = cgroup.Find(info, key); err != nil {
		return nil, unavailable("mount a cgroup hierarchy with the memory controller, or run sallyport-sandboxd where one is delegated", "%v", err)
	}
	if err := h.reap(); err != nil {
		return nil, unavailable("end the processes named, or reboot", "an earlier sandbox host left something that cannot be removed: %v", err)
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

// Privileged says why this process may not run sandboxes, or nil.
func Privileged() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return unavailable("start sallyport-sandboxd as root; the gateway itself needs no privileges",
		"the sandbox host needs root to make namespaces and cgroups; this is uid %d", os.Geteuid())
}

func unavailable(hint, format string, args ...any) *sallyport.Error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}

func (h *Host) openPrograms() error {
	for _, p := range []string{RuntimeProgram, InitProgram} {
		f, err := os.Open(filepath.Join(h.cfg.Programs, p))
		if err != nil {
			return unavailable("run `make build`; the programs lie beside each other", "%s is missing: %v", p, err)
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

// takeDir makes the runtime folder and locks it.
func (h *Host) takeDir() error {
	if err := os.MkdirAll(h.cfg.Dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(h.cfg.Dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o077 != 0 {
		return unavailable("remove it, or choose another", "runtime folder %s must be a folder of root with mode 0700", h.cfg.Dir)
	}
	f, err := os.OpenFile(filepath.Join(h.cfg.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	h.lock = f
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		e := unavailable("stop it, or choose another runtime folder", "another sandbox host uses %s", h.cfg.Dir)
		e.Err = errors.Join(e.Err, ErrInUse)
		return e
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

// groupKey names the cgroups of one runtime folder: this very folder, since
// containers that share a cgroup file system may each have one at this path.
func groupKey(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("the runtime folder %s: %w", dir, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", dir, st.Dev, st.Ino))
	return hex.EncodeToString(sum[:6]), nil
}

// OpenFree opens a Host in the first of base's folders 0, 1, … that no living
// Host uses, and reaps the others that nobody uses. So several gateways can
// live on one machine, and whichever starts next cleans up after any that was
// killed.
func OpenFree(base string, cfg Config) (*Host, error) {
	var host *Host
	for n := range 64 {
		c := cfg
		c.Dir = filepath.Join(base, strconv.Itoa(n))
		if _, err := os.Stat(c.Dir); host != nil && err != nil {
			continue
		}
		h, err := Open(c)
		switch {
		case errors.Is(err, ErrInUse):
		case err != nil && host == nil:
			return nil, err
		case err != nil:
			slog.Warn("an earlier sandbox host's folder could not be cleaned", "dir", c.Dir, "err", err)
		case host == nil:
			host = h
		default:
			h.Close()
		}
	}
	if host == nil {
		return nil, unavailable("stop some of them", "64 sandbox hosts use %s already", base)
	}
	return host, nil
}

// NewGroup makes a cgroup that is reaped with the Host's own. memory 0 means
// unlimited.
func (h *Host) NewGroup(name string, memory int64) (cgroup.Group, error) {
	return h.groups.New(name, memory, 0)
}

// Start starts a process that the kernel kills with the Host, if its
// SysProcAttr asks for that.
func (h *Host) Start(cmd *exec.Cmd) error { return h.spawn.Start(cmd) }

// reap deletes what an earlier Host left. Only this Host's folder and cgroups
// are touched; the lock says that nobody else uses them.
func (h *Host) reap() error {
	var errs []error
	for _, g := range h.groups.Groups() {
		if err := g.Kill(10 * time.Second); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, g.Remove())
	}
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
		l.Timeout = 20 * time.Second
		res, err := h.run(ctx, p, Request{Image: image, Argv: []string{"/bin/true"}, Limits: l})
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
	e := unavailable("see `sallyport doctor`", "gVisor cannot run a program on this host")
	e.Err = fmt.Errorf("%w: %s", sallyport.ErrNotExecuted, strings.Join(why, "; "))
	e.Message += ": " + strings.Join(why, "; ")
	return "", e
}

// List returns the sandboxes that exist now.
func (h *Host) List() []Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]Running, 0, len(h.running))
	for _, s := range h.running {
		if !s.ended && !s.waiting {
			all = append(all, Running{ID: s.id, CallID: s.callID, Started: s.began})
		}
	}
	for _, s := range h.deleting {
		all = append(all, Running{ID: s.id, CallID: s.callID, Started: s.began, Deleting: true})
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
	s.cancel(errKilled)
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
		s.cancel(errClosed)
	}
	h.mu.Unlock()
	h.warm.Close()
	h.idle.Wait()
	h.graves.Wait()
	for _, f := range h.groups.Folders() {
		_ = unix.Rmdir(f)
	}
	h.free()
	return nil
}

func (h *Host) free() {
	h.warm.Close()
	h.images.Close()
	if h.spawn != nil {
		h.spawn.Stop()
	}
	for _, f := range []*os.File{h.init, h.lock} {
		if f != nil {
			f.Close()
		}
	}
}
