package tiertest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a host leaves behind is seen, whatever it is.
func TestGroundSeesWhatIsLeft(t *testing.T) {
	dir, err := os.MkdirTemp("", "ground") // a short name, as that of sockets must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	groups := t.TempDir()
	g := &ground{dir: dir, groups: []string{groups}}
	for what, leave := range map[string]func() (end func()){
		"process ": func() func() {
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		},
		"file ": func() func() {
			p := filepath.Join(dir, "left")
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(p) }
		},
		"socket ": func() func() {
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = l.Close() }
		},
		"control group ": func() func() {
			p := filepath.Join(groups, "left")
			if err := os.Mkdir(p, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(p, "cgroup.procs"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.RemoveAll(p) }
		},
	} {
		before := g.traces(t)
		end := leave()
		left := beyondOf(g.traces(t), before)
		end()
		if !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, what) }) {
			t.Errorf("a %sthat is left is not seen: %q", what, left)
		}
		if left := beyondOf(g.traces(t), before); len(left) > 0 {
			t.Errorf("control: it is gone, and %q is seen", left)
		}
	}
}
