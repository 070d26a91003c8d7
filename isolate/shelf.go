package isolate

import (
	"sync"
	"time"
)

const (
	maxCalls = 200             // of one process
	maxIdle  = 2 * time.Minute // that a used process waits for its owner
)

// A seat is where a used process waits: for one owner, and for calls of its kind.
type seat struct {
	owner string
	kind
}

// A shelf keeps used processes for their owners. It is safe for concurrent use.
type shelf struct {
	max int

	mu     sync.Mutex
	of     map[seat][]*process // the last used is the last
	n      int
	closed bool
}

// take takes an owner's process, nil if there is none.
func (s *shelf) take(at seat) *process {
	for {
		s.mu.Lock()
		all := s.of[at]
		if len(all) == 0 || at.owner == "" {
			s.mu.Unlock()
			return nil
		}
		p := all[len(all)-1]
		s.remove(at, len(all)-1)
		s.mu.Unlock()
		if p.alive() {
			return p
		}
		p.end()
	}
}

// put keeps a process for its owner, or ends one: it, or the one that waited longest.
func (s *shelf) put(at seat, p *process) {
	s.mu.Lock()
	if s.closed || s.max == 0 {
		s.mu.Unlock()
		p.end()
		return
	}
	var gone *process
	if s.n == s.max {
		var where seat
		where, gone = s.oldest()
		s.remove(where, 0)
	}
	p.since = time.Now()
	s.of[at] = append(s.of[at], p)
	s.n++
	s.mu.Unlock()
	if gone != nil {
		gone.end()
	}
	time.AfterFunc(maxIdle, s.sweep)
}

// Preconditions: s.mu is held.
func (s *shelf) remove(at seat, i int) {
	all := s.of[at]
	if all = append(all[:i:i], all[i+1:]...); len(all) == 0 {
		delete(s.of, at)
	} else {
		s.of[at] = all
	}
	s.n--
}

// oldest is the process that waited longest, and where.
// Preconditions: s.mu is held.
func (s *shelf) oldest() (found seat, p *process) {
	for at, all := range s.of {
		if p == nil || all[0].since.Before(p.since) {
			found, p = at, all[0]
		}
	}
	return found, p
}

// sweep ends what waited too long.
func (s *shelf) sweep() {
	for cut := time.Now().Add(-maxIdle); ; {
		s.mu.Lock()
		at, p := s.oldest()
		if p == nil || p.since.After(cut) {
			s.mu.Unlock()
			return
		}
		s.remove(at, 0)
		s.mu.Unlock()
		p.end()
	}
}

// close ends all.
func (s *shelf) close() {
	s.mu.Lock()
	s.closed = true
	all := s.of
	s.of, s.n = map[seat][]*process{}, 0
	s.mu.Unlock()
	for _, ps := range all {
		for _, p := range ps {
			p.end()
		}
	}
}
