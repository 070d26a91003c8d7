// Package proc starts processes for tests, and tells which there are, by what the
// kernel says.
package proc

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Start starts a command and returns what is read by it and what it writes. Who calls it
// waits for its end.
func Start(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	in, wrong := cmd.StdinPipe()
	out, err := cmd.StdoutPipe()
	if err := errors.Join(wrong, err); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// Descendants are the processes that descend from one.
func Descendants(t testing.TB, of int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		parent, _ := strconv.Atoi(strings.Fields(rest)[1])
		children[parent] = append(children[parent], pid)
	}
	for next := []int{of}; len(next) > 0; next = next[1:] {
		pids = append(pids, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return pids
}
