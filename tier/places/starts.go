package places

import (
	"slices"
	"sync"
)

// Starts bound how many sandboxes start at once: a start is all work, and more
// of them than there are processors only hold each other up. They are made in
// the order in which they are asked for, but calls come before what is only to
// be kept ready.
type Starts struct {
	mu    sync.Mutex
	free  int
	calls []chan struct{} // that wait, each for the other end of a Leave
	spare []chan struct{}
}

// NewStarts lets max start at once.
func NewStarts(max int) *Starts { return &Starts{free: max} }

// Enter waits for its turn, until done, and says whether it came. Who has had
// it must Leave. spare says that nobody waits for the sandbox.
func (s *Starts) Enter(done <-chan struct{}, spare bool) bool {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	turn, line := make(chan struct{}, 1), s.line(spare)
	*line = append(*line, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-done:
	}
	s.mu.Lock()
	i := slices.Index(*line, turn)
	if i >= 0 {
		*line = slices.Delete(*line, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // the turn came as well
		s.Leave()
	}
	return false
}

func (s *Starts) line(spare bool) *[]chan struct{} {
	if spare {
		return &s.spare
	}
	return &s.calls
}

// Leave ends a turn.
func (s *Starts) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range []*[]chan struct{}{&s.calls, &s.spare} {
		if len(*line) > 0 {
			(*line)[0] <- struct{}{}
			*line = (*line)[1:]
			return
		}
	}
	s.free++
}
