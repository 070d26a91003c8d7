package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/capture"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/wasm/guest"
)

// Run runs one module to its end, in a child of its own. When Run returns, nothing
// of the module is left; its empty child may still be on its way out. See tier.Tier
// for the contract.
//
// A module that traps ends like a program that aborts: exit code 134, SIGABRT, and
// the reason on its stderr.
func (h *Host) Run(ctx context.Context, r tier.Request) (tier.Result, error) {
	r, err := check(r)
	if err != nil {
		return tier.Result{}, err
	}
	leave, err := h.places.Take(ctx)
	if err != nil {
		return tier.Result{}, err
	}
	began := time.Now()
	s, answered, err := h.take(ctx, r)
	if err != nil {
		leave()
		return tier.Result{}, err
	}
	defer answered()
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	defer stop()
	s.tell(r)
	s.follow()
	res, err := h.conclude(s, leave)
	res.Duration = time.Since(began)
	if ctx.Err() != nil && res.KilledBy == "" && s.exit == nil {
		return tier.Result{}, ctx.Err()
	}
	return res, err
}

// conclude tells how a run ended and ends its child, or, where the module is over,
// has it ended: the answer does not wait for an empty process.
func (h *Host) conclude(s *instance, leave func()) (tier.Result, error) {
	end := func() {
		defer leave()
		defer h.forget(s)
		if err := s.end(); err != nil {
			slog.Warn("a child could not be ended", "sandbox", s.id, "err", err)
		}
	}
	if s.exit == nil {
		end()
		return s.result()
	}
	h.mu.Lock()
	s.over = true
	h.mu.Unlock()
	s.exited.Peak = s.child.Group().Peak()
	s.settle()
	res, err := s.result()
	go end()
	return res, err
}

// check refuses what this tier does not have.
func check(r tier.Request) (tier.Request, error) {
	if r.Module == nil || r.Module.Language != Language {
		return r, tier.Invalid("choose another tier", "the wasm tier runs WASI modules only")
	}
	if len(r.Argv) == 0 {
		r.Argv = []string{"module"}
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	switch {
	case len(r.Module.Code) == 0 && !digestForm.MatchString(r.Module.Digest):
		return r, tier.Invalid("build it again", "the module is empty")
	case len(r.Module.Code) > sallyport.MaxModule:
		return r, tier.Invalid("use a smaller module", "the module has %d bytes; at most %d are taken", len(r.Module.Code), sallyport.MaxModule)
	case len(r.Way.Reach)+len(r.Way.Inject) > 0:
		return r, tier.Invalid("choose another tier, or give the tool no egress", "a module of the wasm tier reaches nothing")
	case r.Talk != nil:
		return r, tier.Invalid("choose another tier", "a module of the wasm tier cannot call tools")
	case r.GPU:
		return r, tier.Invalid("choose the tier gvisor", "a module of the wasm tier has no GPU")
	}
	return r, nil
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// take takes a child that waits, or starts one.
func (h *Host) take(ctx context.Context, r tier.Request) (s *instance, answered func(), err error) {
	digest := r.Module.Digest
	if len(r.Module.Code) > 0 {
		digest = digestOf(r.Module.Code)
	}
	n := natureOf(digest, r.Limits)
	s, waited := h.warm.Take(n)
	if !waited {
		if s, err = h.start(ctx, n, r.Module.Code); err != nil {
			return nil, nil, err
		}
	}
	answered = h.warm.Later(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	s.waiting, s.callID, s.began = false, r.CallID, time.Now()
	return s, answered, nil
}

// tell hands the child its request.
func (s *instance) tell(r tier.Request) {
	s.limits = r.Limits
	capture.Tell(s.stdout, s.stderr, r.Told)
	s.stdout.Max.Store(r.Limits.Output)
	s.stderr.Max.Store(r.Limits.Output)
	orders := payload.Append(r.AppendProgram(nil, environment(r.Env)), payload.Go, nil)
	go s.send(s.orders, orders)
	go s.send(s.feed, r.Stdin)
}

// send writes b and closes w. A child that goes away ends it.
func (s *instance) send(w *os.File, b []byte) {
	defer w.Close()
	_, _ = w.Write(b)
}

// environment is what a module starts with; a request's own variables win.
func environment(own []string) []string {
	return tier.Override([]string{"HOME=" + tier.WorkDir, "PWD=" + tier.WorkDir, "TMPDIR=/tmp", "LANG=C.UTF-8", "TZ=UTC", "SALLYPORT_OUTPUT=" + payload.OutputDir}, own)
}

// follow waits for the end of the run, for whatever reason.
func (s *instance) follow() {
	timeout := time.NewTimer(s.limits.Timeout)
	defer timeout.Stop()
	for {
		select {
		case rec, open := <-s.report:
			if !open || s.note(rec) {
				return
			}
		case <-timeout.C:
			s.stopped = tier.ErrTimeout
			return
		case <-s.ctx.Done():
			s.stopped = context.Cause(s.ctx)
			return
		}
	}
}

// note takes a record, and says whether it was the last one.
func (s *instance) note(rec payload.Record) bool {
	switch rec.Kind {
	case payload.Exit:
		if len(rec.Data) == 5 {
			s.exit = &ending{payload.Uint32(rec.Data), rec.Data[4]}
		}
		return true
	case payload.Failed:
		s.failed = failureOf(rec.Data)
		return true
	default:
		s.output.Note(rec.Kind, rec.Data)
	}
	return len(s.output.LeftOut) > guest.MaxLeftOut
}

// result tells how the run ended.
// Preconditions: the module is over, or the child gone; its streams are drained.
func (s *instance) result() (tier.Result, error) {
	res := tier.Result{
		ID: s.id, Stdout: s.stdout.Kept, Stderr: s.stderr.Kept, Truncated: s.stdout.Truncated || s.stderr.Truncated,
		LimitsHit: s.limitsHit(), PeakMemory: s.exited.Peak, Output: s.output, Receipt: s.receipt(),
	}
	switch {
	case s.failed != nil && s.failed.why == guest.TooLarge:
		return res, tier.Invalid("use a tool with a larger memory limit", "%s", s.failed.text)
	case s.failed != nil && s.failed.why == guest.BadModule:
		return res, tier.Invalid("build the module again", "%s", s.failed.text)
	case s.failed != nil && s.failed.why == guest.BadOrders:
		return res, tier.Invalid("pass less, or use a tool with a larger disk limit", "the files do not fit into the sandbox's disk: %s", s.failed.text)
	}
	switch {
	case s.exit != nil:
		res.ExitCode = int(min(s.exit.code, maxExit))
		if s.exit.has(guest.Trapped) {
			res.ExitCode, res.Signal = guest.TrapCode, tier.SignalName(unix.SIGABRT)
		}
		if s.exit.starved() {
			res.KilledBy = tier.KilledByMemory
		}
		return res, nil
	case s.exited.OOM:
		res.KilledBy = tier.KilledByMemory
	case errors.Is(s.stopped, tier.ErrTimeout):
		res.KilledBy = tier.KilledByTimeout
	case errors.Is(s.stopped, tier.ErrStopped):
		res.KilledBy = tier.KilledByCaller
	default:
		return res, s.sandboxError()
	}
	res.ExitCode, res.Signal = 128+int(unix.SIGKILL), tier.SignalName(unix.SIGKILL)
	return res, nil
}

// maxExit is the highest status of a program. A module may give any number of 32 bits,
// of which none but 0 means that all is well.
const maxExit = 255

// limitsHit names the limits that the run hit while it went on.
func (s *instance) limitsHit() (hit []string) {
	for _, l := range []struct {
		name string
		was  bool
	}{
		{tier.LimitMemory, s.exit.has(guest.MemoryDenied)},
		{tier.LimitDisk, s.exit.has(guest.DiskDenied)},
		{tier.LimitOutput, s.stdout.Truncated || s.stderr.Truncated},
	} {
		if l.was {
			hit = append(hit, l.name)
		}
	}
	return hit
}

// sandboxError is of a run without an end of its own.
func (s *instance) sandboxError() error {
	cause := s.stopped
	if cause != nil {
		return tier.Broken(cause, true)
	}
	cause = errors.New("the child ended without a word")
	if s.failed != nil {
		cause = s.failed
	}
	slog.Error("sandbox failed", "sandbox", s.id, "cause", cause, "child", fmt.Sprintf("%+v", s.exited), "stderr", string(s.stderr.Kept[:min(len(s.stderr.Kept), 2048)]))
	return tier.Broken(cause, true)
}
