package tiertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What a host takes of the disk is seen: in its folder, and in files that are deleted and
// held open.
func TestDiskSeesWhatIsTaken(t *testing.T) {
	dir := t.TempDir()
	write := func(f *os.File) {
		t.Helper()
		if _, err := f.Write(make([]byte, 4<<20)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	took := func(what string, from int64) int64 {
		t.Helper()
		now := onDisk(t, dir)
		if now-from < 4<<20 {
			t.Errorf("%s: %d bytes more are seen", what, now-from)
		}
		return now
	}
	before := onDisk(t, dir)
	f, err := os.Create(filepath.Join(dir, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	write(f)
	f.Close()
	before = took("a file", before)
	if f, err = os.Create(filepath.Join(t.TempDir(), "deleted")); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(f)
	cmd := exec.Command("sleep", "60")
	cmd.Stdout = f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	f.Close()
	took("a deleted file", before)
}
