package microvm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/payload"
)

// A machine is one guest with its VMM.
type machine struct {
	h      *Host
	id     string
	uid    int
	dir    string
	began  time.Time
	group  cgroup.Group
	vm     vmm.VM
	mux    *mux.Session
	words  chan payload.Record // on the control stream; closed with the session
	bounds guest.Bounds
	facts  payload.Facts
	known  bool   // facts are
	waited bool   // for its request
	of     *ready // that a machine that is parked will be made of
	kind

	once sync.Once
	dead error
}

// vmmOverhead is what a VMM takes beside the guest's memory (the emulator's
// translations alone up to 64 MB). Of that there must be room for all: a guest that
// reads files and lets them go touches every page in time, however little its
// program has. Measured: one that idles has 46 MB of its own in all.
const vmmOverhead = 160 << 20

// ramOf is how much memory a guest has whose program may use so much: sizes are
// few, so that snapshots are. What bounds the program is its control group.
func ramOf(memory int64) int64 {
	size := int64(512 << 20)
	for size < memory {
		size *= 2
	}
	return size + 128<<20
}

// place makes what a machine lives in.
func (h *Host) place(memory int64, cpus float64) (m *machine, p vmm.Place, err error) {
	m = &machine{h: h, id: newID(), began: time.Now(), words: make(chan payload.Record, 16)}
	m.dir = filepath.Join(h.runsDir(), m.id)
	h.mu.Lock()
	switch {
	case h.closed:
		err = tier.Unavailable("start it again", "the sandbox host is closed")
	case len(h.freeUIDs) == 0:
		err = tier.Unavailable("try again, or lower sandbox.runs", "%d microVMs exist already", uids)
	default:
		m.uid, h.freeUIDs = h.freeUIDs[0], h.freeUIDs[1:]
		h.machines[m.id] = m
		h.idle.Add(1)
	}
	h.mu.Unlock()
	if err != nil {
		return nil, p, err
	}
	root := filepath.Join(m.dir, "root")
	if err = os.MkdirAll(root, 0o700); err == nil {
		m.group, err = h.dir.Groups.New(m.id, ramOf(memory)+vmmOverhead, cpus)
	}
	if err != nil {
		return nil, p, errors.Join(err, m.destroy())
	}
	return m, vmm.Place{
		ID: m.id, Dir: root, UID: m.uid, Groups: m.group.Dirs(), Start: h.spawn.Start, Init: filepath.Join(h.cfg.Programs, InitProgram),
	}, nil
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return "vm-" + hex.EncodeToString(b[:])
}

// destroy ends a machine and deletes all that it was. It is idempotent.
func (m *machine) destroy() error {
	m.once.Do(func() {
		var errs []error
		if m.vm != nil {
			errs = append(errs, m.vm.Kill())
		}
		if m.mux != nil {
			errs = append(errs, m.mux.Close())
		}
		if len(m.group.Dirs()) > 0 && m.dir != "" {
			errs = append(errs, m.group.Kill(gonePatience), m.group.Remove())
		}
		errs = append(errs, os.RemoveAll(m.dir))
		if err := errors.Join(errs...); err != nil {
			m.dead = &sallyport.Error{
				Code: sallyport.Internal, Step: sallyport.Execute, Message: "the sandbox could not be destroyed",
				Hint: "restart sallyport-sandboxd", Err: err,
			}
		}
		m.h.mu.Lock()
		delete(m.h.machines, m.id)
		m.h.freeUIDs = append(m.h.freeUIDs, m.uid)
		m.h.mu.Unlock()
		m.h.idle.Done()
	})
	return m.dead
}

// talk starts to listen to the guest.
func (m *machine) talk(s *mux.Session) {
	m.mux = s
	control := s.Stream(guest.Control)
	go func() {
		defer close(m.words)
		for {
			k, data, err := payload.Read(control)
			if err != nil {
				return
			}
			word := payload.Record{Kind: k, Data: data}
			select { // there is room, but for a guest that talks and is not asked: a last word is heard though the session is over
			case m.words <- word:
				continue
			default:
			}
			select {
			case m.words <- word:
			case <-s.Done():
				return
			}
		}
	}()
	s.Start()
}

// heeded has a guest that takes nothing in end with its session. An honest one
// always reads, and what is said to it is little.
func (m *machine) heeded() (stop func() bool) {
	return time.AfterFunc(m.h.deafAfter, func() { _ = m.mux.Close() }).Stop
}

func (m *machine) say(k payload.Kind, data []byte) error {
	defer m.heeded()()
	_, err := m.mux.Stream(guest.Control).Write(payload.Append(nil, k, data))
	return err
}

// hear waits for one word of the guest.
func (m *machine) hear(ctx context.Context, want payload.Kind, patience time.Duration) ([]byte, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r, ok := <-m.words:
		switch {
		case !ok:
			return nil, errors.Join(errGone, m.mux.Err())
		case r.Kind == guest.Trouble:
			return nil, fmt.Errorf("the guest says: %.300q", r.Data)
		case r.Kind != want:
			return nil, fmt.Errorf("the guest says %q where %q was due", r.Kind, want)
		}
		return r.Data, nil
	case <-late.C:
		return nil, errBoot
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// renew makes the guest another than what it was copied from, and then lets it
// talk. b, if it is not zero, are its bounds from now on.
func (m *machine) renew(ctx context.Context, b guest.Bounds, patience time.Duration) error {
	if b == m.bounds {
		b = guest.Bounds{} // each step takes time
	}
	r := guest.Renewal{Now: time.Now().UnixNano(), Hostname: "sandbox-" + m.id[len(m.id)-8:], Bounds: b}
	for _, random := range [][]byte{r.Seed[:], r.MachineID[:], r.BootID[:]} {
		_, _ = rand.Read(random) // it does not fail
	}
	m.mux.Release()
	if err := m.say(guest.Renew, r.Append(nil)); err != nil {
		return err
	}
	if err := m.heed(ctx, patience); err != nil {
		return err
	}
	return m.setClock(ctx, time.Since(time.Unix(0, r.Now)))
}

// A guest's clock is as wrong as it took to tell it the time.
const (
	clockError = 20 * time.Millisecond
	clockTries = 5
)

// setClock tells the guest the time again, for as long as it took long.
func (m *machine) setClock(ctx context.Context, took time.Duration) error {
	for try := 0; took > clockError && try < clockTries; try++ {
		now := time.Now()
		if err := m.say(guest.Clock, payload.AppendUint64(nil, uint64(now.UnixNano()))); err != nil {
			return err
		}
		if _, err := m.hear(ctx, guest.Clock, bootPatience); err != nil {
			return err
		}
		took = time.Since(now)
	}
	return nil
}

// heed waits until the guest tells its bounds.
func (m *machine) heed(ctx context.Context, patience time.Duration) error {
	data, err := m.hear(ctx, guest.Renewed, patience)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil // as they were
	}
	b, ok := guest.ParseBounds(data)
	if !ok {
		return errors.New("the guest's bounds cannot be read")
	}
	m.bounds = b
	return nil
}

// freeze has the guest say nothing more, so that it can be saved.
func (m *machine) freeze(ctx context.Context) error {
	stop := m.heeded()
	err := m.mux.Hold(m.mux.Stream(guest.Control), payload.Append(nil, guest.Freeze, nil))
	if stop(); err != nil {
		return err
	}
	_, err = m.hear(ctx, guest.Frozen, bootPatience)
	return err
}

// thaw ends a freeze of a guest that stays what it is.
func (m *machine) thaw() error {
	m.mux.Release()
	return m.say(guest.Thaw, nil)
}

// alive tells whether a machine that waits still does.
func (m *machine) alive() bool {
	select {
	case <-m.mux.Done():
		return false
	default:
		return time.Since(m.began) < waitLife
	}
}
