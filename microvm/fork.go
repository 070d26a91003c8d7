package microvm

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/tier"
)

// A Fork is what one call of Session.Fork made.
type Fork struct {
	Siblings []*Session
	Paused   time.Duration // how long the source was held
}

// Fork makes a sibling of the session for each of ways. A sibling has all that the
// session has in memory, copied as it is written to, and goes its own way from here:
// with random numbers, clock, names, ids, connections and credentials of its own, and
// out to what its way says and no further. The session itself goes on.
func (s *Session) Fork(ctx context.Context, ways ...tier.Way) (f Fork, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	u, h := s.u, s.u.h
	for _, w := range ways {
		if len(w.Reach) > 0 && len(u.r.Way.Reach) == 0 {
			return f, tier.Invalid("open the session with a way out", "a session that reaches nothing has no siblings that reach %q", w.Reach)
		}
	}
	if slices.ContainsFunc(ways, func(w tier.Way) bool { return len(w.Inject) > 0 }) && len(u.r.Way.Inject) == 0 {
		return f, tier.Invalid("open the session with an injected secret", "what runs in this session does not trust a broker that injects secrets")
	}
	image, _, err := h.images.Find(h.cfg.Images, u.m.image)
	if err != nil {
		return f, err
	}
	r, err := s.save(ctx)
	if err != nil {
		return f, err
	}
	defer r.of.Close()
	f = Fork{Siblings: make([]*Session, len(ways)), Paused: r.of.Paused}
	errs := make([]error, len(ways))
	var all sync.WaitGroup
	for i, w := range ways {
		all.Go(func() { f.Siblings[i], errs[i] = s.sibling(ctx, w, h.decided(), r, image) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, t := range f.Siblings {
			if t != nil {
				err = errors.Join(err, t.Close())
			}
		}
		return Fork{}, err
	}
	return f, nil
}

// save makes a snapshot of the session, which goes on. Where it is not known whether
// it does, it ends.
func (s *Session) save(ctx context.Context) (*ready, error) {
	m := s.u.m
	if err := m.freeze(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	of, err := m.vm.Save(ctx)
	r := &ready{of: of, streams: m.mux.State(), facts: m.facts, bounds: m.bounds}
	if e := m.thaw(); e != nil {
		err = errors.Join(err, e, s.Close())
	}
	if err != nil {
		of.Close()
		return nil, err
	}
	return r, nil
}

// sibling makes one of what was saved.
func (s *Session) sibling(ctx context.Context, w tier.Way, c *chosen, r *ready, image *os.File) (*Session, error) {
	q := s.u.r
	q.Way = w
	t, err := s.u.h.enter(ctx, q)
	if err != nil {
		return nil, err
	}
	m, err := t.u.h.restore(ctx, c, s.u.m.kind, r, image, q.Limits.Memory, q.Limits.CPUs)
	if err != nil {
		return nil, errors.Join(t.u.notRun(ctx, err), t.Close())
	}
	m.known = true // as the session's are
	t.live(m)
	err = m.renew(ctx, guest.Bounds{}, bootPatience)
	m.bounds = r.bounds // whatever it says now
	if err == nil {
		err = t.openWay()
	}
	if b := t.appendTrust(nil); err == nil && b != nil {
		err = t.order(ctx, b)
	}
	if err != nil {
		return nil, errors.Join(t.u.notRun(ctx, err), t.Close())
	}
	return t, nil
}
