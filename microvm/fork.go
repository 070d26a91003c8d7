package microvm

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/tier/stay"
)

// Fork implements stay.Forker. A sibling has all that the session has in memory,
// copied as it is written to, and goes its own way from here: with random numbers,
// clock, names, ids, connections and credentials of its own.
func (s *Session) Fork(ctx context.Context, n int) (copies []stay.Kept, paused time.Duration, err error) {
	u, h := s.u, s.u.h
	image, _, err := h.images.Find(h.cfg.Images, u.m.image)
	if err != nil {
		return nil, 0, err
	}
	r, err := s.save(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer r.of.Close()
	all, errs := make([]*Session, n), make([]error, n)
	var making sync.WaitGroup
	for i := range n {
		making.Go(func() { all[i], errs[i] = s.sibling(ctx, h.decided(), r, image) })
	}
	making.Wait()
	err = errors.Join(errs...)
	for _, t := range all {
		switch {
		case t == nil:
		case err == nil:
			copies = append(copies, t.kept())
		default:
			err = errors.Join(err, t.Destroy())
		}
	}
	return copies, r.of.Paused, err
}

// save makes a snapshot of the session, which goes on. Where it is not known whether
// it does, it ends.
func (s *Session) save(ctx context.Context) (*ready, error) {
	s.word.Lock()
	defer s.word.Unlock()
	m := s.u.m
	if !s.ask(bootPatience) || s.over { // and it owes no answer now
		return nil, errGone
	}
	if err := m.freeze(ctx); err != nil {
		s.over = true // nobody asks it any more
		return nil, errors.Join(err, s.Destroy())
	}
	of, err := m.vm.Save(ctx)
	r := &ready{of: of, streams: m.mux.State(), facts: m.facts, bounds: m.bounds}
	if e := m.thaw(); e != nil {
		s.over = true
		err = errors.Join(err, e, s.Destroy())
	}
	if err != nil {
		of.Close()
		return nil, err
	}
	return r, nil
}

// sibling makes one of what was saved.
func (s *Session) sibling(ctx context.Context, c *chosen, r *ready, image *os.File) (*Session, error) {
	q := s.u.r
	u, err := s.u.h.newRun(context.WithoutCancel(ctx), q)
	if err != nil {
		return nil, err
	}
	t := &Session{u: u}
	if t.u.m, err = t.u.h.restore(ctx, c, s.u.m.kind, r, image, q.Limits.Memory, q.Limits.CPUs); err == nil {
		t.u.m.known = true // as the session's are
		err = t.u.m.renew(ctx, guest.Bounds{}, bootPatience)
		t.u.m.bounds = r.bounds // whatever it says now
	}
	if err != nil {
		return nil, errors.Join(t.u.notRun(ctx, err), t.Destroy())
	}
	return t, nil
}
