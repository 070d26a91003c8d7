package microvm

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport.dev/sallyport/microvm/kernel"
	"sallyport.dev/sallyport/microvm/snapshot"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/places"
	"sallyport.dev/sallyport/tier/pool"
	"sallyport.dev/sallyport/tier/rundir"
	"sallyport.dev/sallyport/tier/verified"
)

// A Host runs microVMs. It is safe for concurrent use.
type Host struct {
	cfg       Config
	dir       *rundir.Dir
	kernel    *kernel.Guest
	images    verified.Images
	snapshots snapshot.Store
	spawn     *child.Spawner
	places    places.Places
	pool      *pool.Pool[waitKey, *machine]
	parked    *pool.Pool[waitKey, *machine]
	making    chan struct{} // holds one while a snapshot is made
	deafAfter time.Duration // without taking in what is said to it, a guest ends
	work      sync.WaitGroup

	life  context.Context //nolint:containedctx // ends with the Host
	close context.CancelFunc

	mu        sync.Mutex
	running   map[string]*run
	machines  map[string]*machine
	freeUIDs  []int
	ready     map[kind]*ready
	preparing map[kind]bool
	asked     map[kind]int // how often, while there was no snapshot
	chosen    *chosen      // by the probe; nil before
	closed    bool
	idle      sync.WaitGroup // machines
}

// Open takes the runtime folder, deletes whatever an earlier Host that was killed
// left behind, and is then ready to run. It boots nothing: see Probe.
func Open(cfg Config) (*Host, error) {
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = 8
	}
	cfg.FirstUID = cmp.Or(cfg.FirstUID, defaultUID)
	if err := Missing(cfg); err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, places: places.New(cfg.MaxRuns, cfg.Queue), making: make(chan struct{}, 1), deafAfter: deafAfter,
		snapshots: snapshot.Store{Dir: filepath.Join(cfg.Cache, "microvm")},
		running:   map[string]*run{}, machines: map[string]*machine{}, ready: map[kind]*ready{}, preparing: map[kind]bool{}, asked: map[kind]int{},
	}
	for i := range uids {
		h.freeUIDs = append(h.freeUIDs, cfg.FirstUID+i)
	}
	h.life, h.close = context.WithCancel(context.Background())
	h.pool = pool.New(cfg.Warm, pool.Care[waitKey, *machine]{Make: h.hatch, Alive: (*machine).alive, Discard: h.letGo})
	h.parked = pool.New(cfg.Parked, pool.Care[waitKey, *machine]{Make: h.park, Alive: (*machine).fresh, Discard: h.letGo})
	if err := h.take(); err != nil {
		h.free()
		return nil, err
	}
	return h, nil
}

// take takes the folder and everything that lasts as long as the Host.
func (h *Host) take() (err error) {
	if h.dir, err = rundir.Take(h.cfg.Dir, func() error { return os.RemoveAll(h.runsDir()) }); err != nil {
		return err
	}
	if err := os.MkdirAll(h.runsDir(), 0o700); err != nil {
		return err
	}
	h.spawn = child.NewSpawner()
	h.kernel, err = kernel.Open(h.cfg.Cache, h.cfg.Programs)
	return err
}

// OpenFree opens a Host in the first of base's folders that no living Host uses.
func OpenFree(base string, cfg Config) (*Host, error) {
	return rundir.OpenFree(base, func(n int, dir string) (*Host, error) {
		c := cfg
		c.Dir = dir
		c.FirstUID = cmp.Or(cfg.FirstUID, defaultUID) + n*uids // no two Hosts share users
		return Open(c)
	})
}

func (h *Host) runsDir() string { return filepath.Join(h.cfg.Dir, "runs") }

// List returns the sandboxes that exist now.
func (h *Host) List() []tier.Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]tier.Running, 0, len(h.running))
	for _, r := range h.running {
		all = append(all, tier.Running{ID: r.id, CallID: r.callID, Started: r.began})
	}
	return all
}

// Kill ends one sandbox, and reports whether it existed.
func (h *Host) Kill(id string) bool {
	h.mu.Lock()
	r := h.running[id]
	h.mu.Unlock()
	if r == nil {
		return false
	}
	r.cancel(tier.ErrKilled)
	return true
}

// Waiting tells how many guests wait, restored, for a request.
func (h *Host) Waiting() int { return h.pool.Ready() }

// Close ends every guest and frees the runtime folder. It is idempotent.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.idle.Wait()
		return nil
	}
	h.closed = true
	h.close()
	h.places.Close()
	for _, r := range h.running {
		r.cancel(tier.ErrClosed)
	}
	h.mu.Unlock()
	h.pool.Close()
	h.parked.Close()
	h.work.Wait()
	h.idle.Wait()
	h.free()
	return nil
}

// within is ctx for as long as the Host lives.
func (h *Host) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.life, func() { cancel(tier.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (h *Host) free() {
	h.close()
	h.pool.Close()
	h.parked.Close()
	h.images.Close()
	for _, r := range h.ready {
		r.of.Close()
	}
	if h.kernel != nil {
		h.kernel.Close()
	}
	if h.spawn != nil {
		h.spawn.Stop()
	}
	h.dir.Close()
}
