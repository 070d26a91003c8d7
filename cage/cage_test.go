package cage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier/realtest"
)

func open(t testing.TB) *House {
	t.Helper()
	realtest.Root(t)
	h, err := Open(Config{Programs: realtest.Programs(t, Program), Dir: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// What the proof says on a machine of ours; which attempts it is made of is in
// proofs.go.
func TestEveryProtectionIsProven(t *testing.T) {
	h := open(t)
	p, err := h.Prove(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "network processes files host name privileges no new privileges limits system calls descriptors landlock IPC memory ends with its host"
	var names []string
	for _, f := range p.Findings {
		names = append(names, f.Name)
		if !f.Holds && !(f.Name == "landlock" && p.Landlock == 0) {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("proven: %s\nwanted: %s", got, want)
	}
}

// A protection that is taken away is missed, by name, and nothing is said to be
// proven.
func TestProofTurnsRedWithoutProtection(t *testing.T) {
	for name, p := range map[string]protection{
		"network": network, "processes": processes, "files": files, "host name": hostNames, "privileges": privileges,
		"no new privileges": gaining, "limits": limits, "system calls": calls, "IPC": ipc, "descriptors": descriptors,
		"memory": group, "ends with its host": dying,
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			h.without = p
			b, err := h.lay()
			if err != nil {
				t.Fatal(err)
			}
			defer b.clear()
			why := "no such proof"
			for _, row := range b.rows(0) {
				if row.name == name {
					why = b.prove(t.Context(), row)
				}
			}
			switch p {
			case group:
				why = b.proveMemory(t.Context())
			case dying:
				ctx, cancel := contextFor(t, 2*time.Second)
				defer cancel()
				why = b.proveEnd(ctx)
			}
			if !strings.Contains(why, "was not denied") && !strings.Contains(why, "twice the memory") && !strings.Contains(why, "outlived") {
				t.Errorf("without it, the proof says %q", why)
			}
		})
	}
	h := open(t)
	h.without = network
	if _, err := h.Prove(t.Context()); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "network") {
		t.Errorf("without a network namespace: %v", err)
	}
	if h.proof != nil {
		t.Error("the failed proof is kept")
	}
	if v := landlockVersion(); v > 0 {
		h.without = landlock
		p, err := h.Prove(t.Context())
		if err != nil || !strings.Contains(p.String(), "not here: landlock (with it alone,") {
			t.Errorf("without landlock: %v, %v", p, err)
		}
	}
}

// run runs attempts in a cage and returns what they said.
func run(t *testing.T, h *House, s Spec, attempts ...string) (string, Exit) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.Program, s.Args, s.Stdout = h.program, append([]string{Program, "attempt"}, attempts...), w
	if s.Memory == 0 {
		s.Memory, s.CPUs = 64<<20, 1
	}
	c, err := h.Start(s)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(said), c.Wait()
}

func TestExits(t *testing.T) {
	h := open(t)
	said, e := run(t, h, Spec{}, "uid", "limit=0")
	if !strings.HasPrefix(said, fmt.Sprintf("uid %d\n", h.cfg.FirstUID+h.cfg.Max-1)) || !strings.HasSuffix(said, "limit 3600\n") || !e.Status.Exited() || e.Status.ExitStatus() != 0 || e.OOM || e.Err != nil {
		t.Errorf("%q, %+v", said, e)
	}
	if said, e = run(t, h, Spec{}, "touch=128"); !e.OOM || !e.Status.Signaled() || said != "" || e.Peak < 32<<20 {
		t.Errorf("beyond its memory: %q, %+v", said, e)
	}
	// A bound that holds where nobody watches.
	if _, e = run(t, h, Spec{CPU: time.Second}, "spin"); e.Status.Signal() != unix.SIGKILL || e.CPU < time.Second/2 || e.CPU > 5*time.Second {
		t.Errorf("beyond its CPU time: %+v", e)
	}
}

func TestTO47_GivenDescriptorsOnly(t *testing.T) {
	h := open(t)
	f, err := os.Open("cage.go")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := range 6 {
		s := Spec{}
		for range n {
			s.Files = append(s.Files, f)
		}
		if said, _ := run(t, h, s, "files"); said != fmt.Sprintf("files %d\n", 3+n) {
			t.Errorf("given %d: %q", n, said)
		}
	}
}

// A place is seen, and not written to; only who may connect has sockets at all.
func TestPlaces(t *testing.T) {
	h := open(t)
	root, way := t.TempDir(), t.TempDir()
	for _, err := range []error{os.Mkdir(filepath.Join(root, "way"), 0o755), os.Chmod(root, 0o755), os.Chmod(way, 0o777), os.WriteFile(filepath.Join(way, "f"), nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := Spec{Root: root, Places: []Place{{way, "/way"}}}
	tries := []string{"read=/way/f", "create=/way/g", "create=/g", "read=" + root, "unix", "family=2"}
	want := "read 0\ncreate %d\ncreate %d\nread 2\nunix %d\nfamily 1\n"
	if said, _ := run(t, h, s, tries...); said != fmt.Sprintf(want, unix.EROFS, unix.EROFS, unix.EPERM) {
		t.Errorf("%q", said)
	}
	s.Connect = true
	if said, _ := run(t, h, s, tries...); said != fmt.Sprintf(want, unix.EROFS, unix.EROFS, 0) {
		t.Errorf("with sockets: %q", said)
	}
}

func TestManyAtOnce(t *testing.T) {
	h := open(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	uids := map[string]int{}
	for range 24 {
		all.Go(func() {
			said, e := run(t, h, Spec{}, "uid")
			mu.Lock()
			defer mu.Unlock()
			uids[said]++
			if e.Err != nil || !strings.HasPrefix(said, "uid ") {
				t.Errorf("%q %+v", said, e)
			}
		})
	}
	all.Wait()
	if len(h.free) != h.cfg.Max || len(h.living) != 0 {
		t.Errorf("%d uids are free of %d", len(h.free), h.cfg.Max)
	}
	if left := h.dir.Groups.Groups(); len(left) != 0 {
		t.Errorf("%d control groups are left", len(left))
	}
}

// What a house that was killed left behind is ended by the next one.
func TestReap(t *testing.T) {
	h := open(t)
	c, err := h.Start(Spec{Program: h.program, Args: []string{Program, "attempt", "spin"}, Memory: 64 << 20, CPUs: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Programs: realtest.Programs(t, Program), Dir: h.cfg.Dir}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("two houses have one folder: %v", err)
	}
	h.dir.Close() // as if it had been killed, but for the child
	next, err := Open(Config{Programs: realtest.Programs(t, Program), Dir: h.cfg.Dir})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	select {
	case <-c.Ended():
	case <-time.After(await.Patience):
		t.Error("a child outlived its house")
	}
}

// A house can be closed while children start: each is killed, or was never started.
func TestCloseWhileChildrenStart(t *testing.T) {
	for n := range 8 {
		h := open(t)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				c, err := h.Start(Spec{Program: h.program, Args: []string{Program, "attempt", "spin"}, Memory: 64 << 20, CPUs: 0.1})
				if err == nil {
					c.Wait()
				}
			})
		}
		time.Sleep(time.Duration(n) * 2 * time.Millisecond) // another moment each time
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if len(h.living) != 0 {
			t.Errorf("%d children are left", len(h.living))
		}
	}
}

// Several sandbox hosts of one machine have folders and uids of their own.
func TestOpenFree(t *testing.T) {
	h := open(t)
	base := t.TempDir()
	c := Config{Programs: filepath.Dir(h.path)}
	a, err := OpenFree(base, c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := OpenFree(base, c)
	if err != nil {
		t.Fatal(err)
	}
	if a.Dir() != filepath.Join(base, "0") || b.Dir() != filepath.Join(base, "1") || a.cfg.FirstUID == b.cfg.FirstUID || a.cfg.FirstUID == h.cfg.FirstUID {
		t.Errorf("%+v, %+v", a.cfg, b.cfg)
	}
	b.Close()
	if b, err = OpenFree(base, c); err != nil || b.Dir() != filepath.Join(base, "1") {
		t.Fatalf("again: %v", err)
	}
	b.Close()
}

func TestRefusals(t *testing.T) {
	h := open(t)
	text, err := os.Open("cage.go")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	for name, s := range map[string]Spec{
		"no program":    {Program: text, Args: []string{"x"}},
		"missing root":  {Program: h.program, Args: []string{"x"}, Root: "/nowhere"},
		"missing place": {Program: h.program, Args: []string{"x"}, Places: []Place{{"/", "/nowhere"}}},
	} {
		if c, err := h.Start(s); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if _, err := Open(Config{Programs: t.TempDir(), Dir: t.TempDir()}); sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "sallyport-cage") {
		t.Errorf("without the program: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.Start(Spec{Program: h.program, Args: []string{"x"}}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("closed: %v", err)
	}
}

// Run by itself, by somebody who looks around, it does nothing.
func TestProgramAlone(t *testing.T) {
	h := open(t)
	said, err := runAlone(h.path)
	if err == nil || !bytes.Contains(said, []byte("only for use by sallyport-sandboxd")) {
		t.Errorf("%q, %v", said, err)
	}
}

// From the call to a program that runs.
func BenchmarkStart(b *testing.B) {
	h := open(b)
	for b.Loop() {
		c, err := h.Start(Spec{Program: h.program, Args: []string{Program, "attempt"}, Memory: 64 << 20, CPUs: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if e := c.Wait(); e.Err != nil {
			b.Fatal(e.Err)
		}
		b.StartTimer()
	}
}
