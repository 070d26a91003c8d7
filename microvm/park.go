package microvm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/microvm/vmm"
)

// A machine that is parked is a VMM without a guest, started for a snapshot: what finds no
// guest that waits need not wait for that start.

// restore makes a guest of a snapshot. It runs, and is held until it is renewed.
func (h *Host) restore(ctx context.Context, c *chosen, k kind, r *ready, image *os.File, memory int64, cpus float64) (*machine, error) {
	m, p, err := h.place(memory, cpus)
	if err != nil {
		return nil, err
	}
	if m.vm, err = c.backend.Restore(ctx, p, h.machineOf(k, image), r.of); err != nil {
		return nil, errors.Join(err, m.destroy())
	}
	return m, m.awake(ctx, k, r)
}

// awake has a guest that was restored go on, and listens to it.
func (m *machine) awake(ctx context.Context, k kind, r *ready) error {
	if err := m.vm.Resume(ctx); err != nil {
		return errors.Join(err, m.destroy())
	}
	m.kind, m.facts, m.known, m.bounds = k, r.facts, k.started, r.bounds
	m.talk(mux.Continue(m.vm.Agent(), true, r.streams))
	return nil
}

// park makes a machine that is parked.
// Preconditions: the backend that was chosen is a vmm.Parker.
func (h *Host) park(k waitKey) (*machine, error) {
	c, r, image, err := h.madeOf(k.kind)
	if err != nil {
		return nil, err
	}
	m, p, err := h.place(k.memory, k.cpus)
	if err != nil {
		return nil, err
	}
	m.of = r
	if m.vm, err = c.backend.(vmm.Parker).Park(h.life, p, h.machineOf(k.kind, image), r.of); err != nil {
		return nil, errors.Join(err, m.destroy())
	}
	return m, nil
}

// fresh tells whether a machine that is parked may be taken. Whether its VMM still lives
// is seen then.
func (m *machine) fresh() bool { return time.Since(m.began) < waitLife }

// parkedFor returns a guest that was restored in a VMM that was parked, nil if there is none.
func (h *Host) parkedFor(ctx context.Context, k waitKey) *machine {
	m, ok := h.parked.Take(k)
	if !ok {
		return nil
	}
	err := m.vm.(vmm.Parked).Load(ctx)
	if err == nil {
		err = m.awake(ctx, k.kind, m.of)
	}
	if err != nil {
		slog.Warn("a VMM that was parked is of no use", "vm", m.id, "err", err)
		h.letGo(m)
		return nil
	}
	return m
}

// Parked tells how many VMMs are parked.
func (h *Host) Parked() int { return h.parked.Ready() }
