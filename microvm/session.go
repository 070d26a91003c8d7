package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/stay"
)

// A Session is a guest that stays: programs run in it one after another, and what
// they leave in memory is there for the next one. It can be forked. It does not count
// among MaxRuns.
type Session struct {
	u *run

	word  sync.Mutex // guards the guest's control stream, and what was heard there
	asked bool       // it owes an answer
	last  guest.Ending
	over  bool     // that was its last word
	hit   []string // limits that were

	ways sync.Mutex // guards the way out
	went tier.Passed

	applied sallyport.AppliedLimits // as they were read back at its start

	once sync.Once
	err  error
}

var (
	_ stay.Host   = (*Host)(nil)
	_ stay.Box    = (*Session)(nil)
	_ stay.Forker = (*Session)(nil)
)

// Keep implements stay.Host.
func (h *Host) Keep(ctx context.Context, r tier.Request) (stay.Kept, error) {
	r.Argv, r.Files, r.Stdin, r.Told, r.Talk = []string{"-"}, nil, nil, nil, nil
	if err := h.check(r); err != nil {
		return stay.Kept{}, err
	}
	image, digest, err := h.images.Find(h.cfg.Images, r.Image)
	if err != nil {
		return stay.Kept{}, err
	}
	c, err := h.choose(ctx, digest)
	if err != nil {
		return stay.Kept{}, err
	}
	k := kind{image: digest, ram: ramOf(r.Limits.Memory)}
	base, err := h.prepare(ctx, c, k, image)
	if err != nil {
		return stay.Kept{}, err
	}
	u, err := h.newRun(context.WithoutCancel(ctx), r)
	if err != nil {
		return stay.Kept{}, err
	}
	s := &Session{u: u}
	if s.u.m, err = h.restore(ctx, c, k, base, image, r.Limits.Memory, r.Limits.CPUs); err == nil {
		err = s.u.m.renew(ctx, guest.Bounds{}, bootPatience)
	}
	if err == nil {
		err = s.u.m.launch(ctx, guest.Launch{Memory: r.Limits.Memory, Stays: true, Leads: len(r.Way.Reach) > 0})
	}
	if err == nil {
		s.u.m.bounds.Procs, s.u.m.bounds.Disk = 0, 0 // process 1 of the sandbox sets and tells them
		err = s.furnish(ctx)
	}
	if err != nil {
		return stay.Kept{}, errors.Join(s.u.notRun(ctx, err), s.Destroy())
	}
	return s.kept(), nil
}

// kept has the session end where somebody ends it by its id, or the host.
func (s *Session) kept() stay.Kept {
	m := s.u.m
	s.applied = s.u.receipt(sallyport.AppliedEgress{}).Limits
	if len(s.u.r.Way.Reach) > 0 {
		go carryAll(m.mux, s.socket())
	}
	context.AfterFunc(s.u.ctx, func() { _ = s.Destroy() }) // who destroys it is told
	return stay.Kept{Box: s, ID: s.u.id, In: orders{m}, Out: m.mux.Stream(guest.Report)}
}

// Killed implements stay.Box.
func (s *Session) Killed() <-chan struct{} { return s.u.ctx.Done() }

// Destroy implements stay.Box.
func (s *Session) Destroy() error {
	s.once.Do(func() {
		s.u.cancel(tier.ErrClosed)
		s.shut()
		if s.u.m != nil {
			s.err = s.u.m.destroy()
		}
		s.u.h.forget(s.u)
	})
	return s.err
}

// furnish tells process 1 what the session is like, and waits for it. The way out is
// tried: the environment says whether a certificate comes.
func (s *Session) furnish(ctx context.Context) error {
	r, m := s.u.r, s.u.m
	if err := s.open(bootPatience + killPatience); err != nil {
		return err
	}
	defer s.shut()
	b := s.appendTrust(appendNature(nil, r.Limits, len(r.Way.Reach) > 0))
	for _, e := range s.u.environment(r.Env) {
		b = payload.Append(b, payload.Env, []byte(e))
	}
	stop := context.AfterFunc(ctx, func() { _ = m.mux.Close() })
	defer stop()
	late := time.AfterFunc(waitPatience, func() { _ = m.mux.Close() })
	defer late.Stop()
	if _, err := m.mux.Stream(guest.Orders).Write(payload.Append(b, payload.Keep, nil)); err != nil {
		return because(ctx, err)
	}
	k, data, err := payload.Read(m.mux.Stream(guest.Report))
	if err != nil || k != payload.Ready {
		return because(ctx, errors.Join(errors.New("the sandbox of the session did not come up"), err))
	}
	m.facts, m.known = payload.ParseFacts(data)
	return nil
}

// Begin implements stay.Box. What the sandbox must trust is sent to it.
func (s *Session) Begin(callID string, within time.Duration) error {
	h := s.u.h
	h.mu.Lock()
	s.u.callID = callID
	h.mu.Unlock()
	s.count() // what came before is not of this call
	s.word.Lock()
	s.hit = nil
	s.word.Unlock()
	if err := s.open(within + killPatience); err != nil {
		return err
	}
	b := s.appendTrust(nil)
	if b == nil {
		return nil
	}
	_, err := orders{s.u.m}.Write(b)
	return err
}

// orders writes to process 1 of the sandbox. A guest that does not take a piece in time
// ends, so that nobody waits for a deaf one.
type orders struct{ m *machine }

const orderPiece = 64 << 10

// Write implements io.Writer.
func (o orders) Write(b []byte) (n int, err error) {
	to := o.m.mux.Stream(guest.Orders)
	for len(b) > 0 && err == nil {
		late := time.AfterFunc(o.m.h.deafAfter, func() { _ = o.m.mux.Close() })
		var k int
		k, err = to.Write(b[:min(len(b), orderPiece)])
		late.Stop()
		b, n = b[k:], n+k
	}
	return n, err
}

// End implements stay.Box.
func (s *Session) End(l sallyport.Limits) stay.Held {
	e := s.count()
	s.shut()
	s.ways.Lock()
	went := s.went
	s.went = tier.Passed{}
	s.ways.Unlock()
	s.word.Lock()
	defer s.word.Unlock()
	held := stay.Held{Passed: went, LimitsHit: s.hit, PeakMemory: min(int64(e.Peak), s.u.m.bounds.Memory), Receipt: s.u.receipt(went.Egress)}
	held.Receipt.Limits = s.applied // its control group may have ended with it
	held.Receipt.Limits.Output, held.Receipt.Limits.Timeout = l.Output, l.Timeout.Milliseconds()
	return held
}

// OutOfMemory implements stay.Box.
func (s *Session) OutOfMemory() bool { return s.count().OOMKills > 0 }

// countPatience is how long is waited for a guest that says how its sandbox is. One
// that is slower is heard the next time.
const countPatience = 2 * time.Second

// count asks the guest how its sandbox is. Limits that were hit are told once.
func (s *Session) count() guest.Ending {
	s.word.Lock()
	defer s.word.Unlock()
	s.ask(countPatience)
	e := s.last
	if s.u.m.group.OOMKills() > 0 {
		e.OOMKills++
	}
	return e
}

// ask is count, and false where there is no answer yet.
// Preconditions: s.word is held.
func (s *Session) ask(patience time.Duration) bool {
	m := s.u.m
	if s.over {
		return true
	}
	if !s.asked && m.say(guest.Count, nil) != nil {
		return false // its end comes
	}
	s.asked = true
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case rec, ok := <-m.words:
		e, known := guest.ParseEnding(rec.Data)
		if s.asked = false; !ok || !known || rec.Kind != guest.Counted && rec.Kind != guest.Ended {
			s.over = true
			_ = m.mux.Close() // what it says next would be taken for another answer
			return true
		}
		s.last, s.over = e, rec.Kind == guest.Ended
		for _, hit := range limitsHit(e) {
			if !slices.Contains(s.hit, hit) {
				s.hit = append(s.hit, hit)
			}
		}
		return true
	case <-late.C:
		return false
	}
}

// socket is where the broker serves the session.
func (s *Session) socket() string { return filepath.Join(s.u.m.dir, "way") }

// open lets the sandbox reach what it may, until shut or for as long as within.
func (s *Session) open(within time.Duration) (err error) {
	w := s.u.r.Way
	if len(w.Reach) == 0 {
		return nil
	}
	s.ways.Lock()
	defer s.ways.Unlock()
	if err := os.Remove(s.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ca, end, err := w.Serve(s.u.h.cfg.Broker, tier.Socket{Path: s.socket(), Mode: 0o600}, s.u.id, tier.Authority{}, within)
	if err != nil {
		return err
	}
	s.u.way = &way{ca, end}
	if s.u.ctx.Err() != nil { // it ended meanwhile, and nobody else would close it
		s.u.way.close()
		err = context.Cause(s.u.ctx)
	}
	return err
}

// shut ends that, and keeps what it tells for who asks.
func (s *Session) shut() {
	s.ways.Lock()
	defer s.ways.Unlock()
	now := s.u.way.close()
	s.went.Connections = append(s.went.Connections, now.Connections...)
	if now.Egress.Rules != nil {
		s.went.Egress = now.Egress
	}
}

func (s *Session) appendTrust(b []byte) []byte {
	s.ways.Lock()
	defer s.ways.Unlock()
	if ca := s.u.way.trusted(); ca != nil {
		return payload.Append(b, payload.CA, ca)
	}
	return b
}
