package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/ahead"
	"sallyport.dev/sallyport/tier/payload"
)

// A warm sandbox has booted and, for scripts, started their interpreter; it
// waits for one request of its kind, runs it and is destroyed like any other.
// What a request may ask for that shapes a sandbox is in the kind, so that a
// warm one is never weaker, or other, than a cold one: the image, the limits,
// whether it has a way out, and that it is given no variables of its own (but
// Unbuffered). While it waits, the way out leads nowhere (see clearWay); what it
// leads to is said with the request.

// Unbuffered has Python write lines as they are printed: the one variable that a
// warm sandbox can be given.
const Unbuffered = ahead.Unbuffered

// A warmKey is a kind of sandbox.
type warmKey struct {
	image, platform string
	program         ahead.Kind
	memory, disk    int64
	processes       int
	cpus            float64
	leads, trusts   bool // it has a way out; secrets are injected there
}

// warmLife is how long a sandbox may wait, and the longest run in one that did:
// what it trusts is good for both.
const warmLife = 2 * time.Hour

func warmKeyOf(digest, platform string, r tier.Request) (warmKey, bool) {
	l := r.Limits
	if r.GPU || len(r.Env) > 1 || len(r.Env) == 1 && r.Env[0] != Unbuffered || l.Timeout > warmLife-bootPatience-killPatience {
		return warmKey{}, false
	}
	leads := len(r.Way.Reach) > 0
	return warmKey{digest, platform, ahead.Of(r.Argv), l.Memory, l.Disk, l.Processes, l.CPUs, leads, leads && len(r.Way.Inject) > 0}, true
}

// request is one that a sandbox of the kind could be given.
func (k warmKey) request() tier.Request {
	return tier.Request{Stdin: []byte{0}, Limits: sallyport.Limits{
		Memory: k.memory, Disk: k.disk, Processes: k.processes, CPUs: k.cpus,
	}}
}

// hatch starts a sandbox of a kind and waits until it is ready.
func (h *Host) hatch(k warmKey) (*sandbox, error) {
	image, digest, err := h.images.Find(h.cfg.Images, k.image)
	if err != nil {
		return nil, err
	}
	if digest != k.image {
		return nil, errors.New("the image has changed")
	}
	r := k.request()
	s := h.newSandbox(context.Background(), r)
	s.waiting, s.ahead = true, k.program != ""
	way := func(s *sandbox, _ tier.Request) error {
		if !k.leads {
			return nil
		}
		return h.clearWay(s, k.trusts)
	}
	if err := h.bring(s, r, func() error { return h.startRuntime(s, k.platform, image, false) }, way); err != nil {
		return nil, err
	}
	s.held = held{platform: k.platform, image: digest, runtime: h.version, warm: true}
	if err := errors.Join(s.getReady(k), unpin(s.dir)); err != nil { // a host that is killed leaves no mount
		return nil, errors.Join(err, h.discard(s))
	}
	h.up(s)
	return s, nil
}

// getReady has process 1 start the interpreter, and waits for it.
func (s *sandbox) getReady(k warmKey) error {
	start := k.program.Start(ahead.Place{Folder: tier.WorkDir, Leads: k.leads, Forks: k.processes > 1})
	r := tier.Request{Argv: start.Argv, Env: start.Env}
	if start.File != "" { // process 1 deletes it
		r.Files = []tier.File{{Path: start.File, Content: start.Text}}
	}
	b := r.AppendProgram(s.appendNature(nil, s.limits), s.environment(r.Env, false))
	if _, err := s.orders.Write(payload.Append(b, payload.Ahead, nil)); err != nil {
		return err
	}
	late := time.NewTimer(bootPatience)
	defer late.Stop()
	select {
	case rec, open := <-s.report:
		if !open || rec.Kind != payload.Ready {
			return fmt.Errorf("it ended before it was ready: %q", rec.Data)
		}
		s.held.inside, s.held.known = payload.ParseFacts(rec.Data)
		return nil
	case <-late.C:
		return errBoot
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// alive tells whether a waiting sandbox still waits: it has nothing to report.
func (s *sandbox) alive() bool {
	select {
	case <-s.report:
		return false
	case <-s.ctx.Done():
		return false
	default:
		return time.Since(s.began) < warmLife
	}
}

// adopt gives a warm sandbox its one request: first what it may reach, and then
// what to run.
func (h *Host) adopt(ctx context.Context, s *sandbox, r tier.Request) error {
	if err := h.listenWay(s, r.Way, wayTime(r.Limits)); err != nil {
		h.letGo(s)
		return tier.NotMade(err)
	}
	h.mu.Lock()
	s.callID, s.began, s.waiting = r.CallID, time.Now(), false
	h.mu.Unlock()
	context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) }) // after the run's end it does nothing
	s.take(r)
	return nil
}

// take starts a request in a sandbox that waited.
func (s *sandbox) take(r tier.Request) {
	if s.line == nil {
		s.tell(r, s.appendWork(nil, r))
		return
	}
	var text []byte
	if len(r.Files) == 1 && r.Files[0].Path == r.Argv[1] && r.Talk == nil {
		text = r.Files[0].Content
	}
	order, brief := ahead.Order(r.Argv, r.Env, text)
	if !brief {
		s.next = order
		s.tell(r, payload.Append(r.AppendFiles(nil), payload.Go, nil))
		return
	}
	s.expect(r)
	s.started = true
	s.command(order)
	s.input(r)
}

// command sends an interpreter that was started ahead its order.
func (s *sandbox) command(order []byte) {
	_, _ = s.line.Write(order) // fits into the pipe; one that is gone says so by its end
	s.line.Close()
	s.line = nil
}

// discard destroys a sandbox in which nothing runs (any more).
func (h *Host) discard(s *sandbox) error {
	defer h.forget(s)
	s.cancel(tier.ErrClosed)
	if err := s.kill(); err != nil {
		return err
	}
	h.bury(s)
	return nil
}

// letGo discards a sandbox that waited.
func (h *Host) letGo(s *sandbox) {
	if err := h.discard(s); err != nil {
		slog.Error("a warm sandbox could not be destroyed", "err", err)
	}
}

// Waiting tells how many sandboxes wait, warm, for a request.
func (h *Host) Waiting() int { return h.warm.Ready() }
