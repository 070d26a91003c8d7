package stream

import (
	"fmt"
	"testing"
)

// Who says one thing over and over, as a hostile server may, pushes out nothing
// that others say, and is heard again once what it said was taken.
func TestBoxFlood(t *testing.T) {
	var b Box
	b.Put([]byte("first"))
	for range 10 * maxEvents {
		b.Put([]byte("flood"))
		b.Put([]byte("more"))
	}
	b.Lead([]byte("before all"))
	events, first, _ := b.since(0)
	if got := fmt.Sprintf("%s", events); got != "[before all first flood more]" || first != 1 {
		t.Fatalf("%s from %d", got, first)
	}
	b.Put([]byte("flood"))
	b.Put([]byte("flood"))
	if events, first, _ = b.since(b.End() - 1); len(events) != 1 || first != 5 || string(events[0]) != "flood" {
		t.Errorf("%q from %d", events, first)
	}
}
