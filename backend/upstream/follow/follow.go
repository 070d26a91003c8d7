// Package follow keeps which resources of a server somebody wants to hear of, and
// how many do.
package follow

import (
	"maps"
	"slices"
	"sync"
)

// A Set is safe for concurrent use. Its zero value is empty.
type Set struct {
	mu      sync.Mutex
	count   map[string]int
	changed chan struct{} // closed when the set changes
}

// Add reports whether nobody followed it before.
func (f *Set) Add(address string) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == nil {
		f.count = map[string]int{}
	}
	f.count[address]++
	if first = f.count[address] == 1; first {
		f.wake()
	}
	return first
}

// Drop ends one Add, and reports whether nobody follows it any more.
func (f *Set) Drop(address string) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.count[address] {
	case 0: // nobody does
		return false
	case 1:
	default:
		f.count[address]--
		return false
	}
	delete(f.count, address)
	f.wake()
	return true
}

// Preconditions: f.mu is held.
func (f *Set) wake() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// Has reports whether anybody follows it.
func (f *Set) Has(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[address] > 0
}

// All returns the set, and what is closed when it changes.
func (f *Set) All() ([]string, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return slices.Sorted(maps.Keys(f.count)), f.changed
}
