package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/microvm/snapshot"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/ahead"
	"sallyport.dev/sallyport/tier/payload"
)

// A kind is what a snapshot is of.
type kind struct {
	image   string // digest
	ram     int64
	started bool // a sandbox has been, and waits for its program
	program ahead.Kind
	leads   bool // it has a way out
}

// base is the kind in which nothing has been started.
func (k kind) base() kind { return kind{image: k.image, ram: k.ram} }

// A ready is a snapshot that guests are made of.
type ready struct {
	of      vmm.Snapshot
	streams mux.State
	facts   payload.Facts
	bounds  guest.Bounds
	used    time.Time // guarded by the host's mu
}

// maxReady bounds the snapshots that are held, of 100 MB and more each: kinds are
// as many as the names that callers give their scripts.
const maxReady = 8

// made is what a snapshot of a kind is made with.
func (h *Host) made(c vmm.Identity, k kind) snapshot.Made {
	m := snapshot.Made{VMM: c, Protocol: guest.Protocol, Kernel: h.kernel.Digest, Image: k.image, Memory: k.ram, Leads: k.leads}
	if k.started {
		sum := sha256.Sum256(k.orders())
		m.Program = string(k.program) + " " + hex.EncodeToString(sum[:8])
	}
	return m
}

// machineOf is what a guest of a kind is. The last word is for process 1: signals
// between its threads are work that it does without.
func (h *Host) machineOf(k kind, image *os.File) vmm.Machine {
	return vmm.Machine{
		Memory: k.ram, Kernel: h.kernel.Image, Initrd: h.kernel.Initrd, ACPI: h.kernel.Kernel.ACPI, Root: image,
		Append: "quiet reboot=t panic=-1 init_on_alloc=0 init_on_free=0 random.trust_cpu=on lsm= audit=0 GODEBUG=asyncpreemptoff=1",
	}
}

// have returns the snapshot of a kind, if there is one by now.
func (h *Host) have(k kind) *ready {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.ready[k]
	if r != nil {
		r.used = time.Now()
	}
	return r
}

// prepare returns the snapshot of a kind: as it is held, from the cache, or made.
// One is made at a time.
func (h *Host) prepare(ctx context.Context, c *chosen, k kind, image *os.File) (*ready, error) {
	if r := h.have(k); r != nil {
		return r, nil
	}
	ctx, leave, err := h.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return h.prepared(ctx, c, k, image)
}

// alone waits until nobody else makes a snapshot, and holds h.making until leave. What it
// returns ends with the Host, too.
func (h *Host) alone(ctx context.Context) (_ context.Context, leave func(), err error) {
	ctx, end := h.within(ctx)
	select {
	case h.making <- struct{}{}:
		return ctx, func() { <-h.making; end() }, nil
	case <-ctx.Done():
		defer end()
		return nil, nil, context.Cause(ctx)
	}
}

// Preconditions: h.making is held.
func (h *Host) prepared(ctx context.Context, c *chosen, k kind, image *os.File) (*ready, error) {
	if r := h.have(k); r != nil {
		return r, nil
	}
	m, of, err := h.snapshots.Load(h.made(c.id, k))
	if err == nil {
		r := &ready{of: of, streams: m.Streams}
		r.facts, _ = payload.ParseFacts(m.Facts)
		r.bounds = m.Bounds
		return h.hold(k, r)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("a snapshot is not used, and made again", "err", err)
	}
	var r *ready
	if k.started {
		r, err = h.startAhead(ctx, c, k, image)
	} else {
		r, err = h.bootOnce(ctx, c, k, image)
	}
	if err != nil {
		return nil, err
	}
	keep := snapshot.Manifest{Made: h.made(c.id, k), Streams: r.streams, Facts: r.facts.Append(nil), Bounds: r.bounds}
	if err := h.snapshots.Keep(keep, r.of); err != nil {
		slog.Warn("a snapshot could not be kept", "err", err)
	}
	return h.hold(k, r)
}

// hold keeps a snapshot at hand, at the cost of the one that was not used for
// longest. Its files close when nobody who makes a guest of it has them any more.
func (h *Host) hold(k kind, r *ready) (*ready, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		r.of.Close()
		return nil, tier.ErrClosed
	}
	r.used = time.Now()
	var oldest kind
	for o, other := range h.ready {
		if old := h.ready[oldest]; old == nil || other.used.Before(old.used) {
			oldest = o
		}
	}
	if len(h.ready) >= maxReady {
		delete(h.ready, oldest)
	}
	h.ready[k] = r
	return r, nil
}

// bootOnce boots a guest until its process 1 answers, and saves it.
func (h *Host) bootOnce(ctx context.Context, c *chosen, k kind, image *os.File) (*ready, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.hello(c.id), errBoot)
	defer cancel()
	m, p, err := h.place(k.ram, 0)
	if err != nil {
		return nil, err
	}
	defer m.destroy() //nolint:errcheck // it is logged where it matters: a run's
	if m.vm, err = c.backend.Boot(ctx, p, h.machineOf(k, image)); err != nil {
		return nil, because(ctx, err)
	}
	m.talk(mux.New(m.vm.Agent(), true, guest.Streams()...))
	hello, err := m.hear(ctx, guest.Hello, h.cfg.hello(c.id))
	if err != nil {
		return nil, err
	}
	if protocol, kernel, ok := guest.ParseHello(hello); !ok || protocol != guest.Protocol {
		return nil, fmt.Errorf("the guest speaks protocol %d (%.80q), not %d", protocol, kernel, guest.Protocol)
	}
	return m.saved(ctx)
}

func because(ctx context.Context, err error) error {
	if e := context.Cause(ctx); e != nil {
		return errors.Join(e, err)
	}
	return err
}

// saved makes a snapshot of a guest.
func (m *machine) saved(ctx context.Context) (*ready, error) {
	if err := m.freeze(ctx); err != nil {
		return nil, err
	}
	of, err := m.vm.Save(ctx)
	if err != nil {
		return nil, err
	}
	return &ready{of: of, streams: m.mux.State(), facts: m.facts, bounds: m.bounds}, nil
}

// startAhead makes a guest of the base kind, starts what is to wait in it, and
// saves it.
func (h *Host) startAhead(ctx context.Context, c *chosen, k kind, image *os.File) (*ready, error) {
	base, err := h.prepared(ctx, c, k.base(), image)
	if err != nil {
		return nil, err
	}
	m, err := h.restore(ctx, c, k.base(), base, image, k.ram, 0)
	if err != nil {
		return nil, err
	}
	defer m.destroy() //nolint:errcheck // nothing ran in it
	if err := m.renew(ctx, guest.Bounds{}, bootPatience); err != nil {
		return nil, err
	}
	if err := m.launch(ctx, guest.Launch{Memory: k.ram, Ahead: k.program != "", Leads: k.leads}); err != nil {
		return nil, err
	}
	if _, err := m.mux.Stream(guest.Orders).Write(k.orders()); err != nil {
		return nil, err
	}
	if err := m.awaitReady(ctx); err != nil {
		return nil, err
	}
	if err := m.renew(ctx, boundsOf(sallyport.DefaultLimits()), bootPatience); err != nil {
		return nil, err
	}
	return m.saved(ctx)
}

// orders are what process 1 is told before a kind's snapshot is made.
func (k kind) orders() []byte {
	start := k.program.Start(ahead.Place{Folder: tier.WorkDir, Leads: k.leads, Forks: true})
	r := tier.Request{Argv: start.Argv, Env: start.Env}
	if start.File != "" { // process 1 deletes it
		r.Files = []tier.File{{Path: start.File, Content: start.Text}}
	}
	b := r.AppendProgram(appendNature(nil, sallyport.DefaultLimits(), k.leads), tier.Environment(r.Env, false, k.ram))
	return payload.Append(b, payload.Ahead, nil)
}

// awaitReady waits until what was started ahead waits.
func (m *machine) awaitReady(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.mux.Close() })
	defer stop()
	late := time.AfterFunc(waitPatience, func() { _ = m.mux.Close() })
	defer late.Stop()
	k, data, err := payload.Read(m.mux.Stream(guest.Report))
	if err != nil || k != payload.Ready {
		return fmt.Errorf("it ended before it was ready: %q %.300q %w", k, data, err)
	}
	m.facts, m.known = payload.ParseFacts(data)
	return nil
}

// waitPatience bounds the start of an interpreter, which is slow when emulated.
const waitPatience = 2 * time.Minute

// launch makes the sandbox in a guest.
func (m *machine) launch(ctx context.Context, l guest.Launch) error {
	if err := m.say(guest.Start, l.Append(nil)); err != nil {
		return err
	}
	return m.heed(ctx, bootPatience)
}

// appendNature writes what a sandbox is like, whatever runs in it.
func appendNature(b []byte, l sallyport.Limits, leads bool) []byte {
	l.Processes++ // Linux counts the program's first task, which sallyport-init leaves out
	b = tier.AppendBounds(b, l)
	b = payload.Append(b, payload.Dir, []byte(tier.WorkDir))
	socket := ""
	if leads {
		socket = guest.WaySocket
	}
	return tier.AppendOutput(payload.Append(b, payload.Proxy, []byte(socket)))
}
