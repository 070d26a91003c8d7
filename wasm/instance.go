package wasm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cage"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/child"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/wasm/guest"
)

const (
	loadPatience = time.Minute // from start to ready, on a machine with much to do
	maxReport    = 4 << 20     // bytes that a run may report
)

// A nature is what a child is started with: those of one nature are alike.
type nature struct {
	digest string // of the module
	memory int64
	disk   int64
	cpus   float64
}

func natureOf(digest string, l sallyport.Limits) nature {
	return nature{digest, l.Memory, l.Disk, l.CPUs}
}

// spareOf is what a child's control group has beside the module's memory: whole
// pages in all.
func spareOf(n nature, entry int64) int64 {
	const page = 4096
	return (n.memory+overhead(entry)+n.disk+page-1)/page*page - n.memory
}

// overhead is what a child takes beside the module's memory and disk: Go's own
// (20 MiB), the module's stack, which wazero lets grow to 50 MiB and copies as it
// grows, tables, and the compiled code. It is a bound, not a reservation.
func overhead(entry int64) int64 { return 160<<20 + 3*entry }

// An instance is a child with a module, and perhaps with a request.
type instance struct {
	id      string
	nature  nature
	began   time.Time
	ctx     context.Context //nolint:containedctx // the child's own life; ended by cancel
	cancel  context.CancelCauseFunc
	child   *cage.Child
	spare   int64 // bytes of memory beside the module's
	stdout  *capture.Stream
	stderr  *capture.Stream
	report  <-chan payload.Record
	orders  *os.File
	feed    *os.File
	held    held
	limits  sallyport.Limits
	once    sync.Once
	exited  cage.Exit // how the child ended, as far as it is known
	failed  *guestFailure
	exit    *ending
	output  tier.Artifacts
	stopped error // why the run was stopped, nil if it ended by itself

	callID  string // guarded by the host's mu
	waiting bool   // without a request; guarded by the host's mu
	over    bool   // its module is; guarded by the host's mu
}

// An ending is what a child said of its module's end.
type ending struct {
	code  uint32
	flags byte
}

func (e *ending) has(flag byte) bool { return e != nil && e.flags&flag != 0 }

// starved reports whether the module did not come to a good end after it was
// refused memory: what the modules of most languages do about it is to give up.
func (e *ending) starved() bool { return e.has(guest.MemoryDenied) && e.code != 0 }

// guestFailure is why a child could not do its work.
type guestFailure struct {
	why  uint32
	text string
}

func (f *guestFailure) Error() string { return f.text }

// hatch starts a child that waits for a request.
func (h *Host) hatch(n nature) (*instance, error) {
	s, err := h.start(h.life, n, nil)
	if err == nil {
		s.held.warm = true
	}
	return s, err
}

// start starts a child with a module and waits until it is ready. code is the
// module, should it have to be compiled; empty where it must have been.
func (h *Host) start(ctx context.Context, n nature, code []byte) (*instance, error) {
	for again := false; ; again = true {
		entry, size, err := h.entry(ctx, n.digest, code)
		if err != nil {
			return nil, err
		}
		s, err := h.launch(n, entry, size)
		entry.Close()
		if err != nil {
			return nil, err
		}
		if err = s.ready(ctx); err == nil {
			s.held.version = h.version
			return s, nil
		}
		err = errors.Join(err, s.end())
		h.forget(s)
		if s.failed == nil || s.failed.why != guest.BadEntry {
			return nil, s.notReady(err)
		}
		h.store.drop(n.digest)
		if again {
			return nil, s.notReady(err)
		}
	}
}

// launch starts the program in a cage.
func (h *Host) launch(n nature, entry *os.File, size int64) (_ *instance, err error) {
	s := &instance{id: newID(), nature: n, began: time.Now(), waiting: true, spare: spareOf(n, size)}
	s.ctx, s.cancel = context.WithCancelCause(h.life)
	if err := h.remember(s); err != nil {
		return nil, err
	}
	var p child.Pipes
	defer func() {
		p.Finish(err != nil)
		if err != nil {
			h.forget(s)
			err = tier.NotMade(err)
		}
	}()
	stdin, feed := p.ToChild(false)
	stdout, stdoutChild := p.FromChild()
	stderr, stderrChild := p.FromChild()
	orders, ordersIn := p.ToChild(false)
	report, reportChild := p.FromChild()
	if p.Err != nil {
		return nil, p.Err
	}
	s.child, err = h.cfg.House.Start(cage.Spec{
		Program: h.program, Args: []string{Program, guest.Run, strconv.FormatInt(n.memory, 10), strconv.FormatInt(n.disk, 10)},
		Stdin: stdin, Stdout: stdoutChild, Stderr: stderrChild, Files: []*os.File{entry, reportChild, orders},
		Memory: n.memory + s.spare, CPUs: n.cpus, Threads: threads,
	})
	if err != nil {
		return nil, err
	}
	s.stdout, s.stderr = capture.Start(stdout, 0), capture.Start(stderr, 4<<10)
	s.report, s.orders, s.feed = payload.Report(report, maxReport), ordersIn, feed
	return s, nil
}

// threads are those of Go in a child.
const threads = 64

// ready waits until the child waits for a request.
func (s *instance) ready(ctx context.Context) error {
	late := time.NewTimer(loadPatience)
	defer late.Stop()
	select {
	case rec, open := <-s.report:
		switch {
		case open && rec.Kind == payload.Ready:
			s.held = s.look()
			return nil
		case open && rec.Kind == payload.Failed:
			s.failed = failureOf(rec.Data)
			return s.failed
		}
		return errors.New("the child ended before it was ready")
	case <-late.C:
		return errors.New("the child was not ready in time")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

func failureOf(b []byte) *guestFailure {
	return &guestFailure{payload.Uint32(b), string(b[min(4, len(b)):])}
}

// notReady is why there is no child with the module.
func (s *instance) notReady(err error) error {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return errors.Join(err, sallyport.ErrNotExecuted)
	case s.failed != nil && s.failed.why == guest.BadModule:
		return tier.Invalid("build the module again", "%s", s.failed.text)
	}
	return tier.NotMade(err)
}

// alive reports whether a child still waits.
func (s *instance) alive() bool {
	select {
	case <-s.report: // it ended, or speaks out of turn
		return false
	default:
		return s.ctx.Err() == nil
	}
}

// end kills the child and drains its streams. It is idempotent.
func (s *instance) end() error {
	s.once.Do(func() {
		s.cancel(nil)
		s.child.Kill()
		s.exited = s.child.Wait()
		s.orders.Close()
		s.feed.Close()
		for range s.report { // nothing counts any more
		}
		s.settle()
	})
	return s.exited.Err
}

// settle ends the streams with what is in them now.
func (s *instance) settle() {
	s.stdout.Settle()
	s.stderr.Settle()
}

func newID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return "sp-" + hex.EncodeToString(b[:])
}

func (h *Host) remember(s *instance) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return tier.Unavailable("start it again", "the sandbox host is closed")
	}
	h.running[s.id] = s
	h.idle.Add(1)
	return nil
}

func (h *Host) forget(s *instance) {
	s.cancel(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, s.id)
	h.idle.Done()
}
