package microvm

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/ahead"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/payload"
)

// A run is one request in its machine.
type run struct {
	h      *Host
	m      *machine
	r      tier.Request
	id     string
	callID string
	began  time.Time
	ctx    context.Context //nolint:containedctx // the run's own life; ended by cancel
	cancel context.CancelCauseFunc

	way            *way
	stdout, stderr *capture.Stream
	report         <-chan payload.Record
	next           []byte // order of the interpreter that waits, where files come first

	started bool
	status  *unix.WaitStatus // of the program
	failed  *tier.StartFailure
	over    bool // process 1 said that nothing of the run is left
	full    bool // its disk was, at the end
	ending  *guest.Ending
	denied  []string // that the sandbox's own proxy refused
	output  tier.Artifacts
	told    int   // bytes of that
	end     error // why it was stopped, nil if it ended by itself
}

// Run runs one program to its end, in a virtual machine of its own. When Run
// returns, that is gone. A program that fails is a Result, not an error; an error
// that wraps sallyport.ErrNotExecuted means that the program never started. When
// ctx ends, the machine is killed and ctx.Err() returned.
func (h *Host) Run(ctx context.Context, r tier.Request) (tier.Result, error) {
	if err := h.check(r); err != nil {
		return tier.Result{}, err
	}
	leave, err := h.places.Take(ctx)
	if err != nil {
		return tier.Result{}, err
	}
	defer leave()
	u, err := h.newRun(ctx, r)
	if err != nil {
		return tier.Result{}, err
	}
	defer h.forget(u)
	m, refill, err := h.machineFor(u.ctx, r)
	if err != nil {
		return tier.Result{}, u.notRun(ctx, err)
	}
	defer refill()
	u.m = m
	if err := u.begin(); err != nil {
		u.way.close()
		return tier.Result{}, u.notRun(ctx, joinDestroy(err, m))
	}
	u.wait()
	res, err := u.conclude()
	res.Duration = time.Since(u.began)
	if ctx.Err() != nil && res.KilledBy == "" && u.status == nil {
		return tier.Result{}, ctx.Err()
	}
	return res, err
}

func (h *Host) check(r tier.Request) error {
	if r.Module != nil {
		return tier.Invalid("choose the tier that has it, or send a program", "a microVM runs programs; it has no runtime for modules of %q", r.Module.Language)
	}
	if err := r.Check(); err != nil {
		return err
	}
	return r.Way.Check(h.cfg.Broker)
}

func (h *Host) newRun(ctx context.Context, r tier.Request) (*run, error) {
	u := &run{h: h, r: r, id: newID(), callID: r.CallID, began: time.Now()}
	u.ctx, u.cancel = context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, tier.Unavailable("start it again", "the sandbox host is closed")
	}
	h.running[u.id] = u
	return u, nil
}

func (h *Host) forget(u *run) {
	u.cancel(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, u.id)
}

// notRun is why a program never started.
func (u *run) notRun(ctx context.Context, err error) error {
	if cause := context.Cause(u.ctx); cause != nil && ctx.Err() == nil {
		err = cause // killed, or closing
	} else if ctx.Err() != nil {
		return errors.Join(ctx.Err(), sallyport.ErrNotExecuted)
	}
	if errors.Is(err, tier.ErrKilled) || errors.Is(err, tier.ErrClosed) {
		return u.sandboxError(err)
	}
	return tier.NotMade(err)
}

// begin opens the way out and hands the guest what to run.
func (u *run) begin() error {
	l := u.r.Limits
	var err error
	if u.way, err = u.h.openWay(u.m, u.id, u.r.Way, l.Timeout+bootPatience+killPatience); err != nil {
		return err
	}
	u.stdout = capture.Start(io.NopCloser(u.m.mux.Stream(guest.Stdout)), l.Output)
	u.stderr = capture.Start(io.NopCloser(u.m.mux.Stream(guest.Stderr)), l.Output)
	capture.Tell(u.stdout, u.stderr, u.r.Told)
	u.report = payload.Report(io.NopCloser(u.m.mux.Stream(guest.Report)), math.MaxInt)
	go u.input()
	orders := u.orders()
	if orders == nil {
		return nil
	}
	to := writer{u.m.mux.Stream(guest.Orders)}
	if u.r.Talk != nil {
		go u.r.Talk.Feed(to, orders)
		return nil
	}
	go func() {
		_, _ = to.Write(orders) // one that is gone says so by its end
	}()
	return nil
}

// input gives the program its stdin.
func (u *run) input() {
	to := u.m.mux.Stream(guest.Stdin)
	_, _ = to.Write(u.r.Stdin)
	_ = to.CloseWrite()
}

// A writer is a stream that Close ends one way.
type writer struct{ *mux.Stream }

// Close implements io.Closer.
func (w writer) Close() error { return w.CloseWrite() }

// environment is what the program starts with.
func (u *run) environment(own []string) []string {
	if u.way.trusted() != nil {
		own = append(tier.Trust(), own...)
	}
	return tier.Environment(own, false, u.r.Limits.Memory)
}

// orders are what process 1 is told. Where an interpreter waits for nothing but its
// order, it is told here, and process 1 nothing.
func (u *run) orders() []byte {
	var b []byte
	if !u.m.known {
		b = appendNature(nil, u.r.Limits, len(u.r.Way.Reach) > 0)
	}
	if ca := u.way.trusted(); ca != nil {
		b = payload.Append(b, payload.CA, ca)
	}
	if u.m.program == "" {
		return payload.Append(u.r.AppendProgram(b, u.environment(u.r.Env)), payload.Go, nil)
	}
	own := u.r.Env
	if u.way.trusted() != nil {
		own = append(tier.Trust(), own...)
	}
	var text []byte
	if len(u.r.Files) == 1 && u.r.Files[0].Path == u.r.Argv[1] && u.r.Talk == nil && b == nil {
		text = u.r.Files[0].Content
	}
	order, brief := ahead.Order(u.r.Argv, own, text)
	if brief {
		u.started = true
		u.command(order)
		return nil
	}
	u.next = order
	return payload.Append(append(b, u.r.AppendFiles(nil)...), payload.Go, nil)
}

// command sends an interpreter that waits its order. Whether the guest takes it is
// not waited for.
func (u *run) command(order []byte) {
	to := u.m.mux.Stream(guest.Line)
	go func() {
		_, _ = to.Write(order) // one that is gone says so by its end
		_ = to.CloseWrite()
	}()
}

// wait follows the run until it is over, for whatever reason.
func (u *run) wait() {
	patience := time.NewTimer(bootPatience)
	defer patience.Stop()
	var timeout <-chan time.Time
	for {
		if u.started && timeout == nil {
			patience.Stop()
			t := time.NewTimer(u.r.Limits.Timeout)
			defer t.Stop()
			timeout = t.C
		}
		select {
		case rec, open := <-u.report:
			if !open {
				u.report = nil
			} else if u.note(rec) {
				patience.Reset(killPatience) // the guest's own end follows
			}
		case rec, open := <-u.m.words:
			if !open || u.noteWord(rec) {
				return
			}
		case <-patience.C:
			if !u.over && u.failed == nil {
				u.end = errBoot
			}
			return
		case <-timeout:
			u.stop(tier.ErrTimeout)
			return
		case <-u.ctx.Done():
			u.stop(context.Cause(u.ctx))
			return
		}
		if u.end != nil {
			return
		}
	}
}

// stop ends a run before its time, and asks how it was held so far.
func (u *run) stop(why error) {
	u.end = why
	if !errors.Is(why, tier.ErrTimeout) || u.m.say(guest.Count, nil) != nil {
		return
	}
	if b, err := u.m.hear(context.Background(), guest.Counted, wordPatience); err == nil {
		if e, ok := guest.ParseEnding(b); ok {
			u.ending = &e
		}
	}
}

// noteWord takes a word of the guest's process 1, and says whether it was its last.
func (u *run) noteWord(rec payload.Record) bool {
	if rec.Kind == guest.Ended {
		if e, ok := guest.ParseEnding(rec.Data); ok {
			u.ending = &e
		}
		return true
	}
	u.end = errUndue
	return true
}

// note keeps what process 1 of the sandbox reported, and says whether the run is over.
func (u *run) note(rec payload.Record) bool {
	switch rec.Kind {
	case payload.Started:
		if !u.started && !u.m.known && len(rec.Data) > 0 { // what is told once the program runs may be the program's
			u.m.facts, u.m.known = payload.ParseFacts(rec.Data)
		}
		u.started = true
		if u.next != nil {
			u.command(u.next)
			u.next = nil
		}
	case payload.Heard:
		if u.r.Talk == nil || !u.r.Talk.Hear(rec.Data) {
			u.end = errFlood
			return true
		}
	case payload.Denied:
		if len(u.denied) < payload.MaxDenied {
			u.denied = append(u.denied, string(rec.Data))
		}
	case payload.Exit:
		ws := unix.WaitStatus(payload.Uint32(rec.Data))
		if u.status != nil || !ws.Exited() && !ws.Signaled() {
			u.end = errUndue
			return true
		}
		u.status = &ws
	case payload.Full:
		u.full = true
	case payload.Failed:
		if u.started { // so that nobody takes it for a program that did nothing
			u.end = errUndue
			return true
		}
		u.failed = tier.ParseStartFailure(rec.Data)
		return true
	case payload.Done:
		u.over = u.status != nil
		return true
	default:
		if u.told += len(rec.Data) + recordCost; u.told > maxTold { // process 1 keeps to less
			u.end = errFlood
			return true
		}
		u.output.Note(rec.Kind, rec.Data)
	}
	return false
}

// What a guest may tell of its output folder: the files that are taken, and the
// names of those that are not.
const (
	recordCost = 64
	maxTold    = payload.MaxArtifactBytes + payload.MaxEntries*(recordCost+300)
)
