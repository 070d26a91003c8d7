package places

import (
	"runtime"
	"slices"
	"testing"
)

// Calls have their turn in the order in which they came, and what is only kept
// ready comes after all of them.
func TestStartsOrder(t *testing.T) {
	s := NewStarts(1)
	never := make(chan struct{})
	if !s.Enter(never, true) {
		t.Fatal("the first did not start")
	}
	var got []string
	ended := make(chan struct{})
	wait := func(name string, spare bool, line *[]chan struct{}) {
		n := len(*line)
		go func() {
			s.Enter(never, spare)
			got = append(got, name) // one at a time has its turn
			s.Leave()
			ended <- struct{}{}
		}()
		for waiting := n; waiting == n; runtime.Gosched() {
			s.mu.Lock()
			waiting = len(*line)
			s.mu.Unlock()
		}
	}
	wait("spare", true, &s.spare)
	wait("first", false, &s.calls)
	wait("second", false, &s.calls)
	s.Leave()
	for range 3 {
		<-ended
	}
	if want := []string{"first", "second", "spare"}; !slices.Equal(got, want) || s.free != 1 {
		t.Errorf("%q, %d free; want %q and 1", got, s.free, want)
	}
}

// Who gives up while waiting takes no turn, and loses none that came meanwhile.
func TestStartsGivenUp(t *testing.T) {
	s := NewStarts(2)
	gone := make(chan struct{})
	close(gone)
	for range 1000 {
		s.Enter(nil, false)
		s.Enter(nil, false)
		waits := make(chan bool)
		go func() { waits <- s.Enter(gone, false) }()
		s.Leave()
		if <-waits {
			s.Leave()
		}
		s.Leave()
		if s.free != 2 || len(s.calls)+len(s.spare) != 0 {
			t.Fatalf("%d free, %d and %d wait", s.free, len(s.calls), len(s.spare))
		}
	}
}
