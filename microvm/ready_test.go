package microvm

import (
	"fmt"
	"os"
	"testing"
	"time"

	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier/ahead"
)

// Callers name their scripts as they like: the snapshots that are held, and the
// kinds that are remembered, are bounded all the same, and what is used stays.
func TestSnapshotsAreBounded(t *testing.T) {
	h := &Host{ready: map[kind]*ready{}, asked: map[kind]int{}, preparing: map[kind]bool{}}
	snapshot := func() *ready {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		return &ready{of: vmm.Snapshot{Memory: f}}
	}
	often := kind{image: "often"}
	for i := range 3 * maxReady {
		if _, err := h.hold(kind{program: ahead.Kind(fmt.Sprintf("python3 %d.py", i))}, snapshot()); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_, _ = h.hold(often, snapshot())
		}
		time.Sleep(time.Millisecond)
		if h.have(often) == nil {
			t.Fatalf("what is used was forgotten after %d others", i)
		}
	}
	if len(h.ready) > maxReady {
		t.Errorf("%d snapshots are held", len(h.ready))
	}
	for i := range 3 * maxAsked { // each once: none is worth a snapshot
		h.prepareLater(nil, kind{program: ahead.Kind(fmt.Sprintf("python3 %d.py", i))})
	}
	if len(h.asked) > maxAsked || len(h.preparing) > 0 {
		t.Errorf("%d kinds are remembered, %d are made", len(h.asked), len(h.preparing))
	}
}
