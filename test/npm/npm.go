// Package npm finds the programs of the packages that `make npm` installs for the
// tests, and the Node.js to run them with.
package npm

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/test/stage"
)

// Modules are the installed packages.
type Modules struct {
	Dir  string // node_modules
	Node string // the program
}

// Find returns the packages. Without them the test is skipped, or fails where
// nothing may be missing.
func Find(t testing.TB) Modules {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "package.json")); err == nil {
			break
		}
		if dir == "/" {
			t.Fatal("this test does not run inside the repository")
		}
	}
	m := Modules{Dir: filepath.Join(dir, "test", "node_modules")}
	if _, err := os.Stat(m.Path("@modelcontextprotocol", "inspector")); err != nil {
		stage.Absent(t, "npm's packages are not installed: run `make npm`")
	}
	return m.withNode(t)
}

func (m Modules) withNode(t testing.TB) Modules {
	t.Helper()
	var err error
	if m.Node, err = filepath.EvalSymlinks(m.Path(".bin", "node")); err != nil {
		t.Fatalf("no Node.js among npm's packages: %v", err)
	}
	return m
}

// Path is a file of the packages.
func (m Modules) Path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

// Script is the main program of a package of @modelcontextprotocol.
func (m Modules) Script(pkg string) string {
	return m.Path("@modelcontextprotocol", pkg, "dist", "index.js")
}

// Server is a package's server as a user of its own runs it.
func (m Modules) Server(pkg string, args ...string) stage.Server {
	return stage.Server{Command: m.Node, Args: append([]string{m.Script(pkg)}, args...), Isolation: "uid"}
}

// Open is the same packages at a place that every user may reach: a repository
// may lie in a folder that is closed, such as /root.
func (m Modules) Open(t testing.TB) Modules {
	t.Helper()
	for d := m.Dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o005 != 0o005 {
			break
		}
		if d == "/" {
			return m
		}
	}
	to := stage.OpenDir(t)
	err := unix.Mount(m.Dir, to, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatalf("making %s reachable: %v", m.Dir, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
	return Modules{Dir: to}.withNode(t)
}
