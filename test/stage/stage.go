// Package stage puts the real programs on a stage for tests: it builds them
// once, makes a data folder, serves it on a free port of the loopback
// interface, runs commands on it, and ends what it started.
//
//	func TestMain(m *testing.M) { stage.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		g := stage.New(t)
//		g.Write("sallyport.yaml", g.Config("servers: …"))
//		g.Start()
//		g.Must("", "call", "run_python", `{"code":"print(6*7)"}`)
//	}
package stage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// EnvBin names a folder that already holds the programs, built from this tree.
const EnvBin = "SALLYPORT_BIN"

// Main runs the tests of a package with the programs built, and ends the
// process; or it plays a part that another test process gave to this one. A folder in $SALLYPORT_BIN is used as it is; otherwise they are built
// into a temporary folder, which the environment names while the tests run. What is
// in last is done at the end.
func Main(m *testing.M, last ...func()) {
	if role() {
		return
	}
	code, err := run(m)
	for _, do := range last {
		do()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv(EnvBin) == "" {
		dir, err := os.MkdirTemp("", "sallyport-bin-")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		if err := errors.Join(os.Chmod(dir, 0o755), build(dir), os.Setenv(EnvBin, dir)); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

func build(dir string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "gore2regex", "-ldflags=-s -w", "-o", dir+"/", "sallyport.dev/sallyport/cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Program is the path of one of the built programs.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(EnvBin)
	if dir == "" {
		t.Fatal("the programs are not built: TestMain must call stage.Main")
	}
	return filepath.Join(dir, name)
}

// OpenDir is a folder that every user may enter and read, unlike t.TempDir. Its
// path is short, as that of a folder with sockets must be.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stage")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A sandbox host whose gateway is gone takes its servers' folders off a moment later.
		for deadline := time.Now().Add(20 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(50 * time.Millisecond)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Self is the running test program at a place where every user may run it, as an
// upstream server under a uid of its own must be.
func Self(t testing.TB) string {
	t.Helper()
	path := filepath.Join(OpenDir(t), "self")
	if exe, err := os.Executable(); err == nil && os.Link(exe, path) == nil {
		return path
	}
	in, err := os.Open("/proc/self/exe") // on another disk
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close(), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Absent ends a test for which something of the machine is missing: as a skip
// with the reason; in continuous integration, which sets CI, as a failure.
func Absent(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("must not be skipped here: " + reason)
	}
	t.Skip(reason)
}

// environ is the environment without what steers the programs.
func environ() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SALLYPORT_") || strings.HasPrefix(e, "SALLYPORT_CACHE=") {
			env = append(env, e)
		}
	}
	return env
}
