// Package cage starts child processes that the operating system confines: they
// have network, process, mount, IPC and host name namespaces of their own, a
// read-only root that holds nothing but what they need, a uid of their own
// without capabilities, no way to gain any, limits, a filter that lists the
// system calls they may make, landlock where the kernel has it, a control group,
// and only the descriptors that they are given. They end with this process.
//
// It is for programs that run other people's code in one process of ours: what
// breaks out of such a program is still in its cage. A House proves each
// protection before the first program starts.
package cage

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/rundir"
)

// Program is the name of the program that confines itself and becomes another.
const Program = "sallyport-cage"

// A Config says where a House finds and keeps things.
type Config struct {
	Programs string // folder of Program
	Dir      string // runtime folder, absolute, 0700; one House at a time
	FirstUID int    // of the uids that caged programs have, one each; 0 means some of this folder's own
	Max      int    // children at once, at most 256. 0 means 64
}

// The uids of caged programs own nothing on the host. Each folder has others, since
// the kernel counts processes by uid. systemd's list of uids leaves these to nobody.
const (
	lowestUID  = 1_900_000_000
	uidsOf     = 256
	uidFolders = 950_000
)

// OpenFree opens a House in the first of base's folders that no living House uses.
func OpenFree(base string, cfg Config) (*House, error) {
	return rundir.OpenFree(base, func(_ int, dir string) (*House, error) {
		c := cfg
		c.Dir = dir
		return Open(c)
	})
}

// Dir is the runtime folder. What is beside the House's own there is the caller's.
func (h *House) Dir() string { return h.cfg.Dir }

// A House starts caged programs. It is safe for concurrent use.
type House struct {
	cfg     Config
	dir     *rundir.Dir
	path    string
	program *os.File
	spawn   *child.Spawner
	without protection // for tests: protections that no child has

	mu     sync.Mutex
	proof  *Proof          // nil before Prove
	free   []int           // uids
	living map[*Child]bool // false until it has been launched
	closed bool
	idle   sync.WaitGroup
}

// Open takes the runtime folder and ends whatever an earlier House that was killed
// left behind. Nothing is started yet: see Prove.
func Open(cfg Config) (_ *House, err error) {
	if cfg.Max == 0 {
		cfg.Max = 64
	}
	cfg.Max = min(cfg.Max, uidsOf)
	if err := rundir.Privileged(); err != nil {
		return nil, err
	}
	h := &House{cfg: cfg, living: map[*Child]bool{}}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	if h.path, err = filepath.Abs(filepath.Join(cfg.Programs, Program)); err != nil {
		return nil, err
	}
	if h.program, err = os.Open(h.path); err != nil {
		return nil, tier.Unavailable("run `make build`; the programs lie beside each other", "%s is missing: %v", Program, err)
	}
	if h.dir, err = rundir.Take(cfg.Dir, nil); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(h.emptyDir(), 0o755); err != nil {
		return nil, err
	}
	if h.cfg.FirstUID == 0 {
		h.cfg.FirstUID = lowestUID + int(binary.BigEndian.Uint32(h.dir.ID[:])%uidFolders)*uidsOf
	}
	for n := range cfg.Max {
		h.free = append(h.free, h.cfg.FirstUID+n)
	}
	h.spawn = child.NewSpawner()
	return h, nil
}

// emptyDir is where a child mounts its own empty root, if it has no other.
func (h *House) emptyDir() string { return filepath.Join(h.cfg.Dir, "empty") }

// take takes a uid that no other child has.
func (h *House) take(c *Child) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return tier.Unavailable("start it again", "the sandbox host is closed")
	case len(h.free) == 0:
		e := tier.Unavailable("try again", "all %d cages are in use", h.cfg.Max)
		e.RetryAfter = time.Second
		return e
	}
	c.uid = h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	h.living[c] = false
	h.idle.Add(1)
	return nil
}

// launched has a child end with the House from now on.
func (h *House) launched(c *Child) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ours := h.living[c]; ours { // else it has ended by now
		h.living[c] = true
	}
	if h.closed {
		c.Kill()
	}
}

// give gives the uid of a child that is gone back.
func (h *House) give(c *Child) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ours := h.living[c]; ours {
		delete(h.living, c)
		h.free = append(h.free, c.uid)
		h.idle.Done()
	}
}

// Close ends every child and frees the runtime folder. It is idempotent.
func (h *House) Close() error {
	h.mu.Lock()
	was := h.closed
	h.closed = true
	for c, launched := range h.living {
		if launched {
			c.Kill()
		}
	}
	h.mu.Unlock()
	h.idle.Wait()
	if !was {
		h.release()
	}
	return nil
}

func (h *House) release() {
	if h.spawn != nil {
		h.spawn.Stop()
	}
	if h.program != nil {
		h.program.Close()
	}
	h.dir.Close()
}

// failed is the error of a cage that could not be made.
func failed(err error) error {
	if _, ours := errors.AsType[*sallyport.Error](err); ours {
		return err
	}
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the sandbox could not be made",
		Hint: "see `sallyport doctor`", Err: errors.Join(sallyport.ErrNotExecuted, err),
	}
}
