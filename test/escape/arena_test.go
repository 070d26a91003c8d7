package escape_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
)

// An arena is a tier whose sandboxes run programs, and so the probe.
type arena struct {
	name string
	open func(t *testing.T, warm int, b tier.Broker) tier.Tier

	mounts  []string            // that are declared: folder, type, rw or ro
	devices []string            // in /dev
	own     map[string][]string // by probe: what succeeds inside, and is of the sandbox's own kernel
	memory  func(kib int) bool  // whether that much in total is the sandbox's own
	slow    bool
}

// whole asks for every tier and every weakness alone: `make escape`.
var whole = os.Getenv("SALLYPORT_ESCAPE") != ""

var arenas = []arena{onGVisor, onMicroVM}

var onGVisor = arena{
	name: "gvisor",
	open: func(t *testing.T, warm int, b tier.Broker) tier.Tier {
		return gvisortest.Open(t, func(c *gvisor.Config) { c.Warm, c.Broker = warm, b })
	},
	mounts: []string{
		"/ erofs ro", "/proc proc rw", "/sys sysfs rw", "/dev dev rw", "/dev/pts devpts rw",
		"/tmp tmpfs ro", "/tmp tmpfs rw", "/run tmpfs rw", "/dev/shm tmpfs rw", "/home tmpfs rw",
	},
	devices: []string{"char", "fd", "full", "net", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"},
	own: map[string][]string{
		"mount": {"file system of the new mount API"},
		"calls": {"keyctl", "syslog"}, // its own keys and log
		"clock": {"clone3"},           // its own namespaces
	},
	memory: func(kib int) bool { return kib == 512<<10 },
}

var onMicroVM = arena{
	name: "microvm",
	open: func(t *testing.T, warm int, b tier.Broker) tier.Tier {
		return microvmtest.Open(t, func(c *microvm.Config) { c.Warm, c.Broker = warm, b })
	},
	mounts: append([]string{
		"/etc overlay ro", "/sys sysfs ro", "/dev tmpfs rw", "/proc/sys/kernel/random/boot_id tmpfs rw",
	}, onGVisor.mounts...),
	devices: onGVisor.devices,
	own: map[string][]string{
		"mount": {"file system of the new mount API"}, "calls": {"syslog"}, "clock": {"clone3"},
		"leaks": {"mac"},   // of lo
		"dial":  {"vsock"}, // which has no device
	},
	memory: func(kib int) bool { return kib <= 1<<20 },
	slow:   true,
}

// each does the same on each tier, in one host of it where one sandbox may wait.
func each(t *testing.T, do func(t *testing.T, b bench)) {
	for _, a := range arenas {
		t.Run(a.name, func(t *testing.T) { do(t, bench{arena: a, host: a.open(t, 1, nil), tool: newTool(t)}) })
	}
}

// A tool is the probe.
type tool struct {
	path string // of the probe on the host
	file tier.File
}

func newTool(t *testing.T) tool {
	t.Helper()
	p := tool{path: filepath.Join(t.TempDir(), "probe")}
	built := filepath.Join(gvisortest.Programs(t), "probe")
	gvisortest.Build(t, "./test/escape/probe", built) // leaves alone what is up to date
	if err := os.Link(built, p.path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	p.file = tier.File{Path: "probe", Content: content}
	return p
}

// warmUp waits until a sandbox waits for requests like r, on a host where one may:
// a run had one that waited, and there is another.
func warmUp(t *testing.T, h tier.Tier, r tier.Request) {
	t.Helper()
	r.Files = []tier.File{{Path: "run.sh"}}
	for deadline, warm := time.Now().Add(4*time.Minute), false; !warm; {
		res, err := h.Run(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for h.(interface{ Waiting() int }).Waiting() == 0 {
			if time.Now().After(deadline) {
				t.Fatal("no sandbox waits")
			}
			time.Sleep(20 * time.Millisecond)
		}
		warm = res.Receipt.Warm // else the one that waits may be of another kind
	}
}

// holds is hold, without what is of the sandbox's own kernel.
func (b bench) holds(t *testing.T, all []trial, probe, prefix string) {
	t.Helper()
	hold(t, all, prefix, b.own[probe]...)
}

// declared says that a sandbox has what its tier declares, and no more.
func declared(t *testing.T, what string, found, least []string) {
	t.Helper()
	for _, f := range found {
		if !slices.Contains(least, f) {
			t.Errorf("%s, but not declared: %s", what, f)
		}
	}
	if len(found) == 0 {
		t.Errorf("control: nothing is %s: %s", what, fmt.Sprint(found))
	}
}
