// Package escape_test tries to get out of real sandboxes, or to reach from them
// what they must not reach. Each probe also runs outside, where it must succeed.
package escape_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// A bench has a sandbox host and the probe.
type bench struct {
	arena
	tool
	host tier.Tier
	cold tier.Tier // where no sandbox waits that the trial could get
}

// newBench is one of gVisor.
func newBench(t *testing.T) bench { t.Helper(); return newBenchOf(t, onGVisor.open(t, 1, nil)) }

func newBenchOf(t *testing.T, h tier.Tier) bench {
	t.Helper()
	return bench{arena: onGVisor, tool: newTool(t), host: h, cold: h}
}

// inside runs the probe in a sandbox, as its user or as root of a user
// namespace in it, and returns its lines.
func (b bench) inside(t *testing.T, asRoot bool, args ...string) []string {
	t.Helper()
	return b.insideOf(t, tier.Way{}, asRoot, args...)
}

// insideWith is inside, as its user, in a sandbox that may reach something.
func (b bench) insideWith(t *testing.T, reach []string, args ...string) []string {
	t.Helper()
	return b.insideOf(t, tier.Way{Reach: reach}, false, args...)
}

func (b bench) insideOf(t *testing.T, way tier.Way, asRoot bool, args ...string) []string {
	t.Helper()
	if asRoot {
		args = append([]string{"asroot"}, args...)
	}
	l := sallyport.DefaultLimits()
	l.Timeout = 2 * time.Minute
	res, err := b.host.Run(context.Background(), tier.Request{
		Image: "default", Files: []tier.File{b.file}, Limits: l, Way: way,
		Argv: append([]string{"bash", "-c", `chmod +x probe && exec ./probe "$@"`, "probe"}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return ended(t, args, string(res.Stdout), string(res.Stderr))
}

// outside runs the probe on the host, the positive control.
func (b tool) outside(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command(b.path, args...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return ended(t, args, string(out), "")
}

func ended(t *testing.T, args []string, out, stderr string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if lines[len(lines)-1] != "END" {
		t.Fatalf("the probe %q did not come to its end: %.400q, stderr %.400q", args, out, stderr)
	}
	return lines
}

func with(lines []string, prefix string) (found []string) {
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, prefix+" "); ok {
			found = append(found, rest)
		}
	}
	return found
}

// Nothing of the host's files, environment or other sandboxes can be read.
func TestTO40_HostFiles(t *testing.T) {
	canary := fmt.Sprintf("canary-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Setenv("ESCAPE_CANARY", canary)
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	// The canary itself must not be an argument: it would be found in cmdline.
	half := canary[len("canary-"):]
	paths := []string{file, "/etc/shadow", "/home/agent/secret"}
	each(t, func(t *testing.T, b bench) { b.readsNoHostFile(t, canary, half, paths) })
	b := newTool(t)
	if hits := with(b.outside(t, append([]string{"read", half}, paths...)...), "HIT"); !slices.Contains(hits, file) ||
		!slices.ContainsFunc(hits, func(s string) bool { return strings.HasSuffix(s, "/environ") }) {
		t.Errorf("control: read outside reached %q", hits)
	}
	if hits := with(b.outside(t, "walk", half, dir), "HIT"); !slices.Contains(hits, file) {
		t.Errorf("control: walk outside reached %q", hits)
	}
}

func (b bench) readsNoHostFile(t *testing.T, canary, half string, paths []string) {
	// Another sandbox holds the canary in its files and its environment.
	neighbour := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer func() { cancel(); <-neighbour }()
	go func() {
		defer close(neighbour)
		b.host.Run(ctx, tier.Request{ // cancelled at the end
			Image: "default", Argv: []string{"sleep", "300"}, Env: []string{"C=" + canary}, Limits: long(),
			Files: []tier.File{{Path: "secret", Content: []byte(canary)}},
		})
	}()
	time.Sleep(500 * time.Millisecond)
	for _, asRoot := range []bool{false, true} {
		for _, args := range [][]string{append([]string{"read", half}, paths...), {"walk", half, "/"}} {
			lines := b.inside(t, asRoot, args...)
			if hits := without(with(lines, "HIT"), "/cmdline"); len(hits) > 0 {
				t.Errorf("as root %v, %s: reached %q", asRoot, args[0], hits)
			}
			if tried := with(lines, "TRIED"); len(tried) != 1 || len(tried[0]) < 2 {
				t.Errorf("%s tried %q files", args[0], tried)
			}
		}
	}
}

func long() sallyport.Limits {
	l := sallyport.DefaultLimits()
	l.Timeout = 5 * time.Minute
	return l
}

func without(s []string, suffix string) []string {
	return slices.DeleteFunc(s, func(v string) bool { return strings.HasSuffix(v, suffix) })
}

// Only what is declared is mounted.
func TestTO40_Mounts(t *testing.T) {
	each(t, func(t *testing.T, b bench) {
		lines := with(b.inside(t, false, "mounts"), "MOUNT")
		declared(t, "mounted", lines, b.mounts)
		if !slices.Contains(lines, "/ erofs ro") {
			t.Errorf("control: the probe saw %q", lines)
		}
	})
}

// /dev holds the least, and no other device can be made or opened.
func TestTO45_Devices(t *testing.T) {
	each(t, func(t *testing.T, b bench) {
		for _, asRoot := range []bool{false, true} {
			lines := b.inside(t, asRoot, "devices", "/tmp", "/home/agent", "/dev/shm", "/dev")
			declared(t, "in /dev", with(lines, "DEV"), b.devices)
			if opened := with(lines, "OPEN"); !slices.Equal(opened, []string{"/dev/null"}) {
				t.Errorf("as root %v: opened %q", asRoot, opened)
			}
		}
	})
	dir := t.TempDir()
	lines := newTool(t).outside(t, "devices", dir)
	if !slices.Contains(with(lines, "OPEN"), filepath.Join(dir, "null")) {
		t.Errorf("control: outside, a device made in %s was not opened: %q", dir, lines)
	}
}

// The machine has a disk that cannot be written and a channel, and no card for a
// network, nor anything else that leads out. The control is TestPlantedMicroVMs.
func TestTO45_Hardware(t *testing.T) {
	each(t, func(t *testing.T, b bench) {
		var parts []string
		for _, l := range b.inside(t, false, "hardware") {
			if l != "END" {
				parts = append(parts, l)
			}
		}
		if slices.Sort(parts); !slices.Equal(parts, b.parts) {
			t.Errorf("the machine has %q, want %q", parts, b.parts)
		}
	})
}

// No descriptor of the host's reaches the program.
func TestTO47_Descriptors(t *testing.T) {
	b := newTool(t)
	// Two that an executor could leak: neither closes on exec.
	for _, p := range []string{t.TempDir(), b.path} {
		fd, err := syscall.Open(p, syscall.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
	}
	each(t, func(t *testing.T, b bench) {
		for _, asRoot := range []bool{false, true} {
			lines := b.inside(t, asRoot, "fds")
			if got := with(lines, "FD"); len(got) != 3 || len(with(lines, "CHDIR")) != 0 {
				t.Errorf("as root %v: descriptors %q, folders %q; want 0, 1, 2 only", asRoot, got, with(lines, "CHDIR"))
			}
			for _, fd := range with(lines, "FD") {
				if strings.Contains(fd, "/tmp/") || strings.Contains(fd, "sallyport") {
					t.Errorf("as root %v: a descriptor names the host: %s", asRoot, fd)
				}
			}
		}
	})
	cmd := exec.Command(b.path, "fds")
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd.ExtraFiles = []*os.File{dir}
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "CHDIR 3") {
		t.Errorf("control: a leaked folder was not seen: %q, %v", out, err)
	}
}

// A canaryListener is another process that answers on every address.
type canaryListener struct {
	port     string
	name     string
	contacts chan string
}

func startCanary(t *testing.T, b tool) canaryListener {
	t.Helper()
	c := canaryListener{name: fmt.Sprintf("escape-canary-%d-%d", os.Getpid(), time.Now().UnixNano()), contacts: make(chan string, 1000)}
	cmd := exec.Command(b.path, "listen", c.name)
	stdin, stdout := proc.Start(t, cmd)
	t.Cleanup(func() { stdin.Close(); cmd.Wait() }) // ended by us
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	port, ok := strings.CutPrefix(lines.Text(), "READY ")
	if !ok {
		t.Fatalf("the canary says %q", lines.Text())
	}
	c.port = port
	go func() {
		for lines.Scan() {
			c.contacts <- lines.Text()
		}
	}()
	return c
}

// heard returns the contacts so far, once there are so many as must be.
func (c canaryListener) heard(t *testing.T, atLeast int) (all []string) {
	t.Helper()
	time.Sleep(200 * time.Millisecond)
	await.That(t, "the canary hears of what reached it", func() bool { return len(c.contacts) >= atLeast })
	for {
		select {
		case s := <-c.contacts:
			all = append(all, s)
		default:
			return all
		}
	}
}

func (c canaryListener) targets(t *testing.T) (targets []string) {
	t.Helper()
	targets = []string{"tcp!127.0.0.1:" + c.port, "udp!127.0.0.1:" + c.port, "unix!@" + c.name}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && n.IP.String() != "127.0.0.1" {
			targets = append(targets, "tcp!"+net.JoinHostPort(n.IP.String(), c.port))
		}
	}
	return targets
}

// A sandbox reaches nothing: not the host, by any of its addresses, not its own
// network, not the world, not the cloud's metadata, not DNS, by no kind of
// socket.
func TestTO60_NetworkNone(t *testing.T) {
	b := newTool(t)
	c := startCanary(t, b)
	near := c.targets(t)
	far := []string{
		"tcp!169.254.169.254:80", "tcp!1.1.1.1:443", "udp!8.8.8.8:53", "tcp!10.0.0.1:80", "tcp![2606:4700:4700::1111]:443",
		"dns!localhost.localdomain", "dns!metadata.google.internal", "dns!example.com",
	}
	each(t, func(t *testing.T, b bench) { b.dialsNothing(t, c, near, far) })
	if heard := c.heard(t, 0); len(heard) > 0 {
		t.Errorf("the canary heard %q", heard)
	}
	lines := b.outside(t, append([]string{"dial", fmt.Sprintf("scan!127.0.0.1:%s-%s", c.port, c.port)}, near...)...)
	if r := with(lines, "REACHED"); len(r) != len(near)+1 {
		t.Errorf("control: outside, %d of %d were reached: %q", len(r), len(near)+1, r)
	}
	if heard := c.heard(t, len(near)); len(heard) < len(near) {
		t.Errorf("control: the canary heard only %q", heard)
	}
}

func (b bench) dialsNothing(t *testing.T, c canaryListener, near, far []string) {
	for _, asRoot := range []bool{false, true} {
		ports := "1-65535"
		if asRoot || b.slow {
			ports = "1-4096"
		}
		lines := b.inside(t, asRoot, append([]string{"dial", "scan!127.0.0.1:" + ports}, append(near, far...)...)...)
		// Its own loopback has process 1, which refuses everything in words.
		if r := with(lines, "REACHED"); !slices.Equal(r, []string{fmt.Sprint("127.0.0.1:", payload.ProxyPort)}) {
			t.Errorf("as root %v: reached %q, want the sandbox's own refusal only", asRoot, r)
		}
		if got := with(lines, "SCAN-OWN"); len(got) != 1 && !asRoot {
			t.Errorf("control: the scan did not find its own listener: %q", lines)
		}
		if i := with(lines, "INTERFACE"); !slices.Equal(i, []string{"lo"}) {
			t.Errorf("as root %v: interfaces %q", asRoot, i)
		}
		if !asRoot {
			none(t, lines, "SOCKET", b.own["dial"]...)
		}
	}
	res, err := b.host.Run(context.Background(), tier.Request{Image: "default", Limits: long(), Argv: []string{"bash", "-c",
		"curl -sS -m 3 http://127.0.0.1:" + c.port + "/; echo rc=$?; echo > /dev/tcp/127.0.0.1/" + c.port + " && echo bash"}})
	if err != nil || strings.Contains(string(res.Stdout), "canary") || strings.Contains(string(res.Stdout), "bash") || !strings.Contains(string(res.Stdout), "rc=7") {
		t.Errorf("curl: %q %q, %v", res.Stdout, res.Stderr, err)
	}
}
