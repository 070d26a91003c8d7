package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
)

// stuff is what speaks of a host on this machine: network interfaces and
// namespaces (of anybody), mounts, loop devices, processes and folders.
func (h host) stuff(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"/sys/class/net/*", "/run/netns/*"} {
		m, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(mounts) {
		if bytes.Contains(line, []byte(h.run)) || bytes.Contains(line, []byte(h.state)) {
			all = append(all, string(line))
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if file, _ := os.ReadFile(l); bytes.Contains(file, []byte(h.state)) {
			all = append(all, l+" "+string(file))
		}
	}
	return append(all, leftovers(h.run)...)
}

// The sandbox host is killed while it makes, runs and destroys sandboxes, some with
// a way out, and has some that wait and a server with a folder, again and again; the
// next one removes everything.
func TestFO45_KilledAgainAndAgain(t *testing.T) {
	rounds, at := 4, 8
	if os.Getenv("SALLYPORT_SOAK") != "" {
		rounds, at = 30, 20
	}
	h := newHost(t)
	h.more = []string{"-egress-private", "127.0.0.0/8"}
	before := h.stuff(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	moments := rand.New(rand.NewPCG(seed, 0))
	groups, held := 0, 0
	var ids []string // of sandboxes that existed at a kill
	for range rounds {
		cmd, b := h.apart(t)
		for i := range at {
			c := sandbox.Command{Argv: []string{"sh", "-c", fmt.Sprintf("sleep 0.%d", i%10)}, Reach: []string{"127.0.0.2:9"}[:i%2]}
			go b.Exec(context.Background(), c) //nolint:errcheck // it is killed
		}
		launchService(t, b, "kept", sallyport.Confinement{}, "bash", "-c", "echo up; sleep 300").expect("up")
		time.Sleep(time.Duration(moments.IntN(400)) * time.Millisecond)
		ids = append(ids, sandboxesIn(h.run)...)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		groups += len(cgroupsOf(ids))
		for _, l := range h.stuff(t) {
			if strings.Contains(l, h.state) && strings.Contains(l, ".ext4") {
				held++
			}
		}
		_ = b.Close()
	}
	if len(ids) < rounds || groups == 0 {
		t.Fatalf("control: %d hosts were killed with %d sandboxes and %d control groups", rounds, len(ids), groups)
	}
	t.Logf("%d kills, %d sandboxes, %d times a server's folder was left mounted", rounds, len(ids), held)
	next := h.start(t, sandbox.Options{})
	if _, _, err := next.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the folders of servers are taken off", func() bool { // others' namespaces may hold a device for a moment
		return !slices.ContainsFunc(h.stuff(t), func(l string) bool { return strings.Contains(l, "/sys/block/") })
	})
	nobodyLeft(t, h)
	for _, l := range append(h.stuff(t), cgroupsOf(ids)...) {
		if !slices.Contains(before, l) && !strings.Contains(l, "sallyport-sandboxd -") {
			t.Errorf("left after a restart: %s", l)
		}
	}
	if out, err := next.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil || out.ExitCode != 0 {
		t.Errorf("afterwards: %+v, %v", out, err)
	}
	launchService(t, next, "kept", sallyport.Confinement{}, "bash", "-c", "echo up; sleep 300").expect("up")
}

// sandboxesIn names those that a host in run knows.
func sandboxesIn(run string) (ids []string) {
	folders, _ := filepath.Glob(filepath.Join(run, "*", "runs", "*"))
	for _, f := range folders {
		ids = append(ids, filepath.Base(f))
	}
	return ids
}

// apart starts a host that the test may kill.
func (h host) apart(t *testing.T) (*exec.Cmd, *sandbox.Backend) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	cmd := exec.Command(h.program, h.args()...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.Connect(os.NewFile(uintptr(fds[0]), "ours"), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cmd, b
}
