package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/test/await"
)

// What a server keeps has its size at the moment of writing: what does not fit is
// refused, the server goes on, and the record hears of it.
func TestTO55_ServiceStateHasItsSize(t *testing.T) {
	t.Parallel() // it waits most of the time
	const size = 1 << 20
	heard := make(chan sandbox.News, 100)
	h := newHost(t)
	b := h.start(t, sandbox.Options{News: func(n sandbox.News) { heard <- n }})
	c := sallyport.Confinement{State: size}
	s := launchService(t, b, "keeper", c, "bash", "-c", `cd; head -c 500000 /dev/zero > some && echo some
		head -c 100000000 /dev/zero > more || echo full $(($(du -sb . | cut -f1) / 1000000))
		i=0; while : > f$i; do i=$((i+1)); done 2>/dev/null; echo files
		rm more f*; head -c 300000 /dev/zero > more && echo again; read x; head -c 100000000 /dev/zero > more; sleep 300`)
	for _, want := range []string{"some", "full 1", "files", "again"} {
		s.expect(want)
	}
	if _, err := s.Stdin().Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	for late, want := time.After(3*time.Minute), map[string]bool{"state": true, "disk": true}; len(want) > 0; {
		select {
		case n := <-heard:
			for _, l := range n.LimitsHit {
				delete(want, l)
			}
			if n.Server != "keeper" {
				t.Errorf("heard %+v", n)
			}
		case <-late:
			t.Fatalf("nobody heard of %v", want)
		}
	}
	if took := diskOf(h.state); took > 64<<20 {
		t.Errorf("%d bytes of the host's disk", took)
	}
	if err := s.Stop(2 * time.Second); err != nil {
		t.Error(err)
	}
	if m := mounts(t, h.state); len(m) > 0 {
		t.Errorf("mounts left: %q", m)
	}
	// What it kept is there at the next start, also where its size has changed.
	for _, c.State = range []int64{size, 40 * size, 2 * size} {
		s := launchService(t, b, "keeper", c, "bash", "-c", "cd; test $(stat -c %s some) = 500000 && echo kept; cat")
		s.expect("kept")
		if err := s.Stop(await.Patience); err != nil {
			t.Error(err)
		}
	}
	// The control: without a size the same goes on writing.
	h.more = []string{"-volumes=false"}
	again := newHost(t)
	again.more = h.more
	launchService(t, again.start(t, sandbox.Options{}), "keeper", sallyport.Confinement{State: size}, "bash", "-c",
		`cd; head -c 20000000 /dev/zero > more && echo written; sleep 300`).expect("written")
}

// diskOf is what the files in a folder take of the disk.
func diskOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return bytes
}

// Where there are no volumes, a server that keeps more than it may is ended, and
// does not start again until there is room.
func TestServiceStateIsWatched(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := newHost(t)
	h.more = []string{"-volumes=false"}
	b := h.start(t, sandbox.Options{})
	c := sallyport.Confinement{State: 1 << 20}
	s := launchService(t, b, "keeper", c, "bash", "-c", `head -c 500000 /dev/zero > $HOME/some; echo some; read x; head -c 5000000 /dev/zero > $HOME/more; echo more; sleep 3600`)
	s.expect("some")
	time.Sleep(1500 * time.Millisecond) // control: it may
	if _, err := s.Stdin().Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	s.expect("more")
	if err := s.Wait(); err == nil || !strings.Contains(err.Error(), "SIGKILL") {
		t.Errorf("%v", err)
	}
	spec := sandbox.LaunchSpec{Name: "keeper", Argv: []string{"bash", "-c", "sleep 60"}, Confinement: c}
	if _, err := b.Launch(t.Context(), sandbox.InSandbox, spec); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(filepath.Join(h.state, "servers", "keeper", "more")); err != nil {
		t.Fatal(err)
	}
	launchService(t, b, "keeper", c, "bash", "-c", "test -s $HOME/some && echo kept; sleep 60").expect("kept")
}

func TestServiceRefusesRoots(t *testing.T) {
	h := newHost(t)
	data := filepath.Join(filepath.Dir(h.run), "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	h.more = []string{"-closed", data}
	b := h.start(t, sandbox.Options{})
	for _, path := range []string{data, h.state, h.run, "/etc", "/", "/proc"} {
		spec := sandbox.LaunchSpec{Name: "x", Argv: []string{"true"}, Confinement: sallyport.Confinement{Roots: []sallyport.Root{{Path: path}}}}
		if _, err := b.Launch(t.Context(), sandbox.InSandbox, spec); sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := b.Install(t.Context(), spec); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s, asked beforehand: %v", path, err)
		}
	}
	spec := sandbox.LaunchSpec{Name: "x", Argv: []string{"true"}, Confinement: sallyport.Confinement{Roots: []sallyport.Root{{Path: filepath.Dir(os.TempDir() + "/x")}}}}
	if _, err := b.Install(t.Context(), spec); err == nil {
		t.Error("the folder above the data folder is shown")
	}
}

func mounts(t *testing.T, below string) (found []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, " "+below+"/") {
			found = append(found, line)
		}
	}
	return found
}
