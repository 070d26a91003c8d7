package rundir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/rundir"
)

// A host is a folder that is taken.
type host struct{ dir *rundir.Dir }

func (h host) Close() error {
	h.dir.Close()
	return nil
}

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("control groups need root")
	}
}

func TestOpenFree(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	cleaned := map[string]int{}
	open := func(n int, dir string) (host, error) {
		d, err := rundir.Take(dir, func() error {
			cleaned[dir]++
			return nil
		})
		return host{d}, err
	}
	var hosts []host
	for n := range 3 {
		h, err := rundir.OpenFree(base, open)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if want := filepath.Join(base, string(rune('0'+n))); h.dir.Path != want {
			t.Errorf("host %d has %s", n, h.dir.Path)
		}
		hosts = append(hosts, h)
	}
	if hosts[0].dir.ID == hosts[1].dir.ID {
		t.Error("two folders have one ID, and so the same control groups")
	}
	hosts[0].Close()
	hosts[2].Close()
	clear(cleaned)
	h, err := rundir.OpenFree(base, open)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.dir.Path != hosts[0].dir.Path || cleaned[hosts[2].dir.Path] != 1 || cleaned[hosts[1].dir.Path] != 0 {
		t.Errorf("opened %s, cleaned %v", h.dir.Path, cleaned)
	}
}

func TestTakeRefuses(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	open := filepath.Join(base, "open")
	taken := filepath.Join(base, "taken")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(open, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	d, err := rundir.Take(taken, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for dir, want := range map[string]string{
		"relative":                  "is not absolute",
		open:                        "mode 0700",
		filepath.Join(base, "link"): "mode 0700",
		taken:                       "another sandbox host uses",
	} {
		_, err := rundir.Take(dir, nil)
		if sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", dir, err)
		}
		if errors.Is(err, rundir.ErrInUse) != (dir == taken) {
			t.Errorf("%s: in use: %v", dir, err)
		}
	}
	_, err = rundir.Take(filepath.Join(base, "left"), func() error { return errors.New("a mount stays") })
	if sallyport.CodeOf(err) != sallyport.Unavailable || !strings.Contains(err.Error(), "a mount stays") {
		t.Errorf("what cannot be cleaned: %v", err)
	}
	again, err := rundir.Take(filepath.Join(base, "left"), nil)
	if err != nil {
		t.Fatalf("a folder that was refused stays locked: %v", err)
	}
	again.Close()
}
