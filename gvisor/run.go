package gvisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

const (
	bootPatience = time.Minute            // from start to the program's first instruction, on a machine with much to do
	killPatience = 30 * time.Second       // until a killed sandbox must be gone: it dies with its share of the processors
	oomPoll      = 100 * time.Millisecond // between looks at the out-of-memory counter
	discardSoon  = 5 * time.Millisecond   // from a result to the end of its empty sandbox: the answer comes first
)

var (
	errMemory = errors.New("memory")
	errFlood  = errors.New("the program says more than anybody can take")
)

// Run runs one program to its end, in a sandbox of its own. When Run returns,
// nothing of the program is left; its empty sandbox may still be on its way out.
// A program that fails is a Result, not an error; an error that wraps
// sallyport.ErrNotExecuted means that the program never started. When ctx ends,
// the sandbox is killed and ctx.Err() returned.
func (h *Host) Run(ctx context.Context, r tier.Request) (tier.Result, error) {
	return h.run(ctx, h.usual(), r)
}

// usual is the platform that Probe found, or the one that it would try first.
func (h *Host) usual() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.platform == "" {
		return "systrap"
	}
	return h.platform
}

func (h *Host) run(ctx context.Context, platform string, r tier.Request) (tier.Result, error) {
	if err := r.Check(); err != nil {
		return tier.Result{}, err
	}
	release, err := h.places.Take(ctx)
	if err != nil {
		return tier.Result{}, err
	}
	began := time.Now()
	s, err := h.start(ctx, platform, r)
	if err != nil {
		release()
		return tier.Result{}, err
	}
	res, err := h.follow(s, release)
	s.refill()
	res.Duration = time.Since(began)
	if ctx.Err() != nil && res.KilledBy == "" && s.status == nil {
		return tier.Result{}, ctx.Err()
	}
	return res, err
}

// start starts a request, in a sandbox that is warm if there is one.
func (h *Host) start(ctx context.Context, platform string, r tier.Request) (*sandbox, error) {
	image, digest, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return nil, err
	}
	key, warm := warmKeyOf(digest, platform, r)
	refill := func() {}
	if warm {
		s, waited := h.warm.Take(key)
		refill = h.warm.Later(key)
		if waited {
			s.refill = refill
			return s, h.adopt(ctx, s, r)
		}
	}
	s, err := h.boot(ctx, platform, image, r)
	if err == nil {
		s.refill = refill
		s.held = held{platform: platform, image: digest, runtime: h.version}
		s.tell(r, s.encode(r))
	}
	return s, err
}

// follow waits for the end of a run and then calls release, once the sandbox is
// gone. Where it was told that nothing of the run is left, the result does not
// wait for the empty sandbox to be destroyed.
func (h *Host) follow(s *sandbox, release func()) (tier.Result, error) {
	h.wait(s)
	if !s.over {
		defer release()
		defer h.forget(s)
		return h.destroy(s)
	}
	res, err := s.conclude()
	h.mu.Lock()
	s.ended = true
	h.mu.Unlock()
	time.AfterFunc(discardSoon, func() {
		defer release()
		if err := h.discard(s); err != nil {
			slog.Error("an empty sandbox could not be destroyed", "sandbox", s.id, "err", err)
		}
	})
	return res, err
}

// newID returns a fresh id. Its end tells sallyport-runsc the limits of
// processors and memory that programs are to see.
func newID(l sallyport.Limits) string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return fmt.Sprintf("sp-%s-c%d-m%d", hex.EncodeToString(b[:]), int(math.Ceil(l.CPUs)), l.Memory)
}

// wait follows the sandbox until its run is over, for whatever reason.
func (h *Host) wait(s *sandbox) {
	boot := time.NewTimer(bootPatience)
	defer boot.Stop()
	tick := time.NewTicker(oomPoll)
	defer tick.Stop()
	var timeout <-chan time.Time
	for {
		if s.started && timeout == nil {
			h.up(s)
			boot.Stop()
			t := time.NewTimer(s.limits.Timeout)
			defer t.Stop()
			timeout = t.C
		}
		select {
		case rec, open := <-s.report:
			if !open || s.note(rec) {
				return
			}
		case <-boot.C:
			s.end = errBoot
			return
		case <-timeout:
			s.end = tier.ErrTimeout
			return
		case <-s.ctx.Done():
			s.end = context.Cause(s.ctx)
			return
		case <-tick.C:
			if s.group.OOMKills() > 0 {
				s.end = errMemory
				return
			}
		}
	}
}

// note keeps what process 1 reported, and says whether the run is over.
func (s *sandbox) note(rec payload.Record) bool {
	switch rec.Kind {
	case payload.Started:
		s.started = true
		if len(rec.Data) > 0 {
			s.held.inside, s.held.known = payload.ParseFacts(rec.Data)
		}
		if s.next != nil {
			s.command(s.next)
			s.next = nil
		}
		if s.early != nil {
			s.status, s.over = s.early, true
		}
		return s.over
	case payload.Heard:
		if s.talk == nil || !s.talk.Hear(rec.Data) {
			s.end = errFlood
			return true
		}
	case payload.Denied:
		if len(s.denied) < payload.MaxDenied {
			s.denied = append(s.denied, string(rec.Data))
		}
	case payload.Exit:
		ws := unix.WaitStatus(payload.Uint32(rec.Data))
		s.status = &ws
	case payload.Full:
		s.full = true
	case payload.Over: // told of a program that could not be started, too
		if s.talk != nil {
			return false // process 1 may have more of what it said
		}
		ws := unix.WaitStatus(payload.Uint32(rec.Data))
		if s.early = &ws; s.started {
			s.status, s.over = s.early, true
		}
		return s.over
	case payload.Failed:
		s.failed = tier.ParseStartFailure(rec.Data)
		return true
	case payload.Done:
		s.over = s.status != nil
		return true
	default:
		s.output.Note(rec.Kind, rec.Data)
	}
	return false
}

// result tells how the run ended.
// Preconditions: the run is over and its streams are drained.
func (s *sandbox) result(oom bool) (tier.Result, error) {
	passed := s.closeWay()
	res := tier.Result{
		Receipt: s.receipt(passed.Egress),
		ID:      s.id, Stdout: s.stdout.Kept, Stderr: s.stderr.Kept,
		Truncated: s.stdout.Truncated || s.stderr.Truncated, LimitsHit: s.limitsHit(),
		PeakMemory: s.group.Peak(), Connections: append(passed.Connections, tier.Denials(s.denied)...), Output: s.output,
	}
	if s.failed != nil && !oom {
		return s.notStarted(res)
	}
	if end := (tier.End{Status: s.status, OOM: oom, Started: s.started, Why: s.end}); !end.Complete(&res) {
		return res, s.sandboxError()
	}
	return res, nil
}

// notStarted tells why a program could not be started.
func (s *sandbox) notStarted(res tier.Result) (tier.Result, error) {
	if s.started {
		return s.failed.Result(res, "")
	}
	return s.failed.Result(res, s.argv0)
}

func (s *sandbox) sandboxError() error {
	cause := s.end
	if cause == nil {
		cause = errors.New("the sandbox ended by itself")
	}
	err := tier.Broken(cause, s.started)
	if err == cause { //nolint:errorlint // the caller's own, as it is
		return err
	}
	slog.Error("sandbox failed", "sandbox", s.id, "cause", cause, "runtime", s.exit, "stderr", string(s.stderr.Kept[:min(len(s.stderr.Kept), 2048)]), "started", s.started)
	return err
}
