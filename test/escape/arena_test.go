package escape_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/realtest"
)

// An arena is a tier whose sandboxes run programs, and so the probe.
type arena struct {
	name string
	open func(t testing.TB, warm int, b tier.Broker) tier.Tier

	mounts  []string            // that are declared: folder, type, rw or ro
	devices []string            // in /dev
	parts   []string            // of the machine, as the probe "hardware" tells them
	own     map[string][]string // by probe: what succeeds inside, and is of the sandbox's own kernel
	memory  func(kib int) bool  // whether that much in total is the sandbox's own
	slow    bool
	kernel  bool // another kernel of a tier that is there already
}

// whole asks for every tier and every weakness alone: `make escape`.
var whole = os.Getenv("SALLYPORT_ESCAPE") != ""

var arenas = func() []arena {
	if !whole || !microvmtest.HasSmall() {
		return []arena{onGVisor, onMicroVM}
	}
	small := onMicroVM
	small.name, small.kernel, small.open = "microvm-small", true, func(t testing.TB, warm int, b tier.Broker) tier.Tier {
		return microvmtest.Open(t, func(c *microvm.Config) { c.Warm, c.Broker = warm, b })
	}
	return []arena{onGVisor, onMicroVM, small}
}()

var onGVisor = arena{
	name: "gvisor",
	open: func(t testing.TB, warm int, b tier.Broker) tier.Tier {
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

// onMicroVM has Debian's kernel, as every machine has that did not compile the small one,
// which lacks much of what is tried.
var onMicroVM = arena{
	name: "microvm",
	open: func(t testing.TB, warm int, b tier.Broker) tier.Tier {
		return microvmtest.Open(t, func(c *microvm.Config) { microvmtest.OnDebian(t, c); c.Warm, c.Broker = warm, b })
	},
	mounts: append([]string{
		"/etc overlay ro", "/sys sysfs ro", "/dev tmpfs rw", "/proc/sys/kernel/random/boot_id tmpfs rw",
	}, slices.DeleteFunc(slices.Clone(onGVisor.mounts), func(m string) bool { return strings.HasPrefix(m, "/sys ") || strings.HasPrefix(m, "/dev dev ") })...),
	devices: onGVisor.devices,
	parts:   []string{"BUS virtio 0x0002", "BUS virtio 0x0003", "DISK vda ro"}, // the image, and the channel
	own: map[string][]string{
		"mount": {"file system of the new mount API"}, "clock": {"clone3"},
		"leaks": {"mac"}, // of lo
	},
	memory: func(kib int) bool { return kib <= 1<<20 },
	slow:   true,
}

// asked is the one tier that is attacked: `make escape TIER=microvm`. "" is all.
var asked = os.Getenv("SALLYPORT_TIER")

// apart are the tests that attack one tier alone; the others attack each arena.
var apart = map[string]string{
	"gvisor":  "^(TestPlantedWeaknesses|TestTO40_Posture|TestTO52_(EgressOf.*|WaitingLeadsNowhere|GrantsOfPooledSandboxes))$",
	"microvm": "^TestPlantedMicroVMs$",
	"isolate": "(_isolate|_Cage)$",
	"wasm":    "(_wasm|_Cage)$",
}

func TestMain(m *testing.M) {
	flag.Parse()
	if asked != "" && os.Getenv("ESCAPE_WORLD") == "" {
		if err := choose(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	code := m.Run()
	os.Exit(max(code, shared.close()))
}

// asked tells whether an arena is one of the tier that is attacked.
func (a arena) asked() bool { return asked == "" || strings.HasPrefix(a.name, asked) }

// choose leaves the tests of one tier.
func choose() error {
	if apart[asked] == "" {
		return fmt.Errorf("SALLYPORT_TIER=%q: there are %q", asked, slices.Sorted(maps.Keys(apart)))
	}
	if !slices.ContainsFunc(arenas, func(a arena) bool { return a.name == asked }) {
		return flag.Set("test.run", apart[asked]+"|^TestTO40_PostureOfTiers$/^"+asked+"$")
	}
	var others []string
	for name, tests := range apart {
		if name != asked {
			others = append(others, tests)
		}
	}
	if asked == "gvisor" {
		others = append(others, "^TestTO40_PostureOfTiers$")
	}
	return flag.Set("test.skip", strings.Join(others, "|"))
}

// each does the same on each tier, in one host of it for all tests. One sandbox may wait
// there, where trials want one that did.
func each(t *testing.T, do func(t *testing.T, b bench)) {
	for _, a := range arenas {
		if !a.asked() {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			b := bench{arena: a, host: shared.host(t, a, map[bool]int{true: 1}[a.warmToo()]), tool: newTool(t)}
			if b.cold = b.host; a.slow && a.warmToo() { // a guest that waits takes whatever comes
				b.cold = shared.host(t, a, 0)
			}
			do(t, b)
		})
	}
}

// warmToo tells whether trials are made in sandboxes that waited, too.
func (a arena) warmToo() bool { return !a.slow || whole }

// shared are the hosts of all tests, by arena: to open one, and to have it warm, takes
// seconds.
var shared = sharing{hosts: map[string]tier.Tier{}}

type sharing struct {
	hosts   map[string]tier.Tier
	atEnd   []func()
	failure int
}

// host is that of an arena in which so many sandboxes may wait.
func (s *sharing) host(t *testing.T, a arena, warm int) tier.Tier {
	t.Helper()
	name := fmt.Sprint(a.name, warm)
	if s.hosts[name] == nil {
		s.hosts[name] = a.open(ofAll{t}, warm, nil)
	}
	return s.hosts[name]
}

// close ends what was opened for all tests, and is 1 where that failed.
func (s *sharing) close() int {
	all := s.atEnd
	s.hosts, s.atEnd = map[string]tier.Tier{}, nil
	for _, f := range slices.Backward(all) {
		f()
	}
	return s.failure
}

// alone ends them, for a test that looks at whatever runs on this machine for it.
func alone(t *testing.T) {
	t.Helper()
	if shared.close() != 0 {
		t.Fatal("a host could not be closed")
	}
}

// ofAll is the test for which something is opened that all tests use: its end is theirs.
type ofAll struct{ *testing.T }

// Cleanup implements testing.TB.
func (ofAll) Cleanup(f func()) { shared.atEnd = append(shared.atEnd, f) }

// Error implements testing.TB, at the end of all.
func (ofAll) Error(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	shared.failure = 1
}

// A tool is the probe.
type tool struct {
	path string // of the probe on the host
	file tier.File
}

func newTool(t *testing.T) tool {
	t.Helper()
	p := tool{path: filepath.Join(t.TempDir(), "probe")}
	built := filepath.Join(realtest.Programs(t), "probe")
	realtest.Build(t, "./test/escape/probe", built) // leaves alone what is up to date
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
// a run had one that waited, and there is another. What a kind's sandboxes are made of
// may be made only when it is asked for again.
func warmUp(t *testing.T, h tier.Tier, r tier.Request) {
	t.Helper()
	r.Files = []tier.File{{Path: "run.sh"}}
	waits := func(patience time.Duration) bool {
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if h.(interface{ Waiting() int }).Waiting() > 0 {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(6 * time.Minute); time.Now().Before(deadline); waits(2 * time.Second) {
		res, err := h.Run(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if res.Receipt.Warm && waits(2*time.Minute) { // else the one that waits may be of another kind
			return
		}
	}
	t.Fatal("no sandbox waits")
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
