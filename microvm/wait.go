package microvm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/ahead"
)

// A machine that waits was made of a snapshot, is another than all others, and is
// paused. It runs one request and is destroyed like any other. What shapes its
// control group is part of what it waits for; all else is set when it is taken.

// A waitKey is what a machine waits for.
type waitKey struct {
	kind
	memory int64
	cpus   float64
}

// waitLife is how long one may wait.
const waitLife = 2 * time.Hour

// kindOf is the kind of machine that a request runs in, once there is a snapshot of
// it: one whose interpreter has been started, where the request is given no
// variables that it would have started with.
func kindOf(digest string, r tier.Request) kind {
	k := kind{image: digest, ram: ramOf(r.Limits.Memory), started: true, leads: len(r.Way.Reach) > 0}
	if len(r.Env) == 0 || len(r.Env) == 1 && r.Env[0] == ahead.Unbuffered {
		k.program = unique(ahead.Of(r.Argv))
	}
	return k
}

// unique is the interpreter to start ahead, if all copies of it can be made to
// differ: Node.js has a generator in its cryptography that nothing outside of it
// can seed again.
func unique(k ahead.Kind) ahead.Kind {
	if k == "node" {
		return ""
	}
	return k
}

// madeOf is what a machine is made of that nobody waits for: by whom, of which snapshot
// and image.
func (h *Host) madeOf(k kind) (c *chosen, r *ready, image *os.File, err error) {
	if c, r = h.decided(), h.have(k); c == nil || r == nil {
		return nil, nil, nil, fmt.Errorf("there is no snapshot of %q yet", k.program)
	}
	image, _, err = h.images.Find(h.cfg.Images, k.image)
	return c, r, image, err
}

// hatch makes a machine that waits.
func (h *Host) hatch(k waitKey) (*machine, error) {
	c, r, image, err := h.madeOf(k.kind)
	if err != nil {
		return nil, err
	}
	m, err := h.restore(h.life, c, k.kind, r, image, k.memory, k.cpus)
	if err != nil {
		return nil, err
	}
	err = errors.Join(m.renew(h.life, guest.Bounds{}, bootPatience), m.rehearse())
	if err == nil {
		err = m.vm.Pause(h.life)
	}
	if err != nil {
		h.letGo(m)
		return nil, err
	}
	return m, nil
}

// rehearsal is about how long an interpreter takes to do once what programs do, in an
// emulated guest. What is paused before its end goes on with it when it is taken.
const rehearsal = 400 * time.Millisecond

// rehearse has an emulator translate what a program will need of it.
func (m *machine) rehearse() error {
	order := m.program.Rehearsal()
	if order == nil || m.h.decided().id.Accel != qemu.TCG {
		return nil
	}
	_, err := m.mux.Stream(guest.Line).Write(order)
	select {
	case <-time.After(rehearsal):
	case <-m.mux.Done():
	case <-m.h.life.Done():
	}
	return err
}

// letGo destroys a machine that nobody waits for.
func (h *Host) letGo(m *machine) {
	if err := m.destroy(); err != nil {
		slog.Error("a microVM could not be destroyed", "vm", m.id, "err", err)
	}
}

// machineFor returns a machine for a request: one that waited, one made of a
// snapshot of its kind, or, where there is none yet, one of the base kind. In the
// last case the snapshot is made meanwhile. refill is called after the run.
func (h *Host) machineFor(ctx context.Context, r tier.Request) (m *machine, refill func(), err error) {
	image, digest, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return nil, nil, err
	}
	c, err := h.choose(ctx, digest)
	if err != nil {
		return nil, nil, err
	}
	k := kindOf(digest, r)
	key := waitKey{k, r.Limits.Memory, r.Limits.CPUs}
	refill = func() {}
	if have := h.have(k); have != nil {
		m, waited := h.pool.Take(key)
		refill = h.pool.Later(key)
		if waited {
			m.waited = true
			if err := m.vm.Resume(ctx); err != nil {
				return nil, refill, because(ctx, joinDestroy(err, m))
			}
			return m, refill, m.ready(ctx, r)
		}
		if _, can := c.backend.(vmm.Parker); can {
			m = h.parkedFor(ctx, key)
			refill = both(refill, h.parked.Later(key))
		}
		if m == nil {
			if m, err = h.restore(ctx, c, k, have, image, r.Limits.Memory, r.Limits.CPUs); err != nil {
				return nil, refill, err
			}
		}
		return m, refill, m.ready(ctx, r)
	}
	base, err := h.prepare(ctx, c, k.base(), image)
	if err != nil {
		return nil, refill, err
	}
	h.prepareLater(c, k)
	m, err = h.restore(ctx, c, k.base(), base, image, r.Limits.Memory, r.Limits.CPUs)
	if err != nil {
		return nil, refill, err
	}
	return m, refill, m.plain(ctx, r)
}

func both(a, b func()) func() { return func() { a(); b() } }

// A kind is worth a snapshot when it is asked for again.
const (
	worth    = 2
	maxAsked = 256 // kinds that are remembered
)

// prepareLater makes a kind's snapshot in the background, if it is worth it.
func (h *Host) prepareLater(c *chosen, k kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) >= maxAsked {
		clear(h.asked)
	}
	if h.asked[k]++; h.closed || h.preparing[k] || h.asked[k] < worth {
		return
	}
	h.preparing[k] = true
	h.work.Go(func() {
		defer func() {
			h.mu.Lock()
			delete(h.preparing, k)
			h.mu.Unlock()
		}()
		image, _, err := h.images.Find(h.cfg.Images, k.image)
		if err == nil {
			_, err = h.prepare(h.life, c, k, image)
		}
		if err != nil && h.life.Err() == nil {
			slog.Warn("no snapshot could be made", "program", k.program, "err", err)
		}
	})
}

// Prepare makes the snapshot of what a request runs in, if there is none, and
// returns when there is.
func (h *Host) Prepare(ctx context.Context, r tier.Request) error {
	image, digest, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return err
	}
	c, err := h.choose(ctx, digest)
	if err != nil {
		return err
	}
	_, err = h.prepare(ctx, c, kindOf(digest, r), image)
	return err
}

// ready renews a machine in which its sandbox waits for the request.
func (m *machine) ready(ctx context.Context, r tier.Request) error {
	return m.orDestroyed(m.renew(ctx, boundsOf(r.Limits), bootPatience))
}

func boundsOf(l sallyport.Limits) guest.Bounds {
	return guest.Bounds{Memory: l.Memory, Procs: uint32(l.Processes), Disk: uint64(l.Disk), Inodes: inodes(l.Disk)}
}

func inodes(disk int64) uint64 { return uint64(max(256, disk/4096)) }

// plain renews a machine in which nothing has been started, and makes the sandbox.
func (m *machine) plain(ctx context.Context, r tier.Request) error {
	err := m.renew(ctx, guest.Bounds{}, bootPatience)
	if err == nil {
		err = m.launch(ctx, guest.Launch{Memory: r.Limits.Memory, NoInput: len(r.Stdin) == 0, Leads: len(r.Way.Reach) > 0})
		m.bounds.Procs, m.bounds.Disk = 0, 0 // process 1 of the sandbox sets and tells them
	}
	return m.orDestroyed(err)
}

func (m *machine) orDestroyed(err error) error {
	if err != nil {
		return joinDestroy(err, m)
	}
	return nil
}

func joinDestroy(err error, m *machine) error {
	m.h.letGo(m)
	return err
}
