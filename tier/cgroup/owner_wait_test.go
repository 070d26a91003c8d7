package cgroup

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Whoever can see a folder can lock it. A host whose folder somebody else has says so,
// and does not wait for ever.
func TestOwnIsRefusedWhatIsHeld(t *testing.T) {
	realHierarchy(t) // skips
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("test-%d-held", os.Getpid())
	first, owner, err := Own(info, key)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	said := make(chan error, 1)
	go func() { _, _, err := own(info, key, 50*time.Millisecond); said <- err }()
	select {
	case err := <-said:
		if err == nil || !strings.Contains(err.Error(), first.memory) {
			t.Errorf("it is told %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}
