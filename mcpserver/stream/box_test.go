package stream

import (
	"fmt"
	"strings"
	"testing"
)

func TestBoxKeepsTheLast(t *testing.T) {
	var b Box
	for i := range 1000 {
		b.Put([]byte(fmt.Sprint(i + 1)))
	}
	events, first, _ := b.since(0)
	if len(events) != maxEvents || first != 1000-maxEvents+1 || string(events[0]) != fmt.Sprint(first) || b.End() != 1000 {
		t.Errorf("%d events from %d (%s), end %d", len(events), first, events[0], b.End())
	}
	if events, first, _ = b.since(998); len(events) != 2 || first != 999 || string(events[1]) != "1000" {
		t.Errorf("after 998: %q from %d", events, first)
	}
	events, _, wake := b.since(1000)
	if len(events) != 0 {
		t.Errorf("after the last: %q", events)
	}
	b.Put([]byte(strings.Repeat("x", 2*maxBytes)))
	select {
	case <-wake:
	default:
		t.Error("nobody is woken")
	}
	if events, _, _ := b.since(0); len(events) != 1 {
		t.Errorf("%d events beside a large one", len(events))
	}
}

func FuzzEventID(f *testing.F) {
	for _, s := range []string{"get-0", "get-3", "get-4", "get-03", "get--1", "3", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		var b Box
		for range 3 {
			b.Put([]byte{byte(len(b.events))})
		}
		after, ok := b.ParseID(id)
		if ok && (id != fmt.Sprint(idPrefix, after) || after > 3) {
			t.Fatalf("%q is read as %d", id, after)
		}
	})
}
