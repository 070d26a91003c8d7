package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/tier/realtest"
)

// What cannot be deleted at a run's end, because something holds it, costs the
// run nothing, is listed as being deleted, and is gone once it can be deleted.
func TestFO46_DeletionThatFails(t *testing.T) {
	var dir string
	h := gvisortest.Open(t, func(c *gvisor.Config) { dir = c.Dir })
	id, end := held(t, h, "whole")
	held := filepath.Join(dir, "runs", id, "held")
	if err := os.Mkdir(held, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", held, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(held, unix.MNT_DETACH)
	var groups []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/sallyport/*/", "/sys/fs/cgroup/sallyport/*/", "/sys/fs/cgroup/unified/sallyport/*/"} {
		found, _ := filepath.Glob(pattern + id)
		groups = append(groups, found...)
	}
	if len(groups) == 0 {
		t.Skip("skipped: the control groups of this host are elsewhere")
	}
	inner := filepath.Join(groups[0], "held")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(inner)

	if res := end(); string(res.Stdout) != "whole\n" || res.ExitCode != 0 {
		t.Errorf("%+v", res)
	}
	await.That(t, "it is listed as being deleted", func() bool {
		l := h.List()
		return len(l) == 1 && l[0].Deleting && l[0].ID == id
	})
	if res := run(t, h, sh("echo next")); string(res.Stdout) != "next\n" {
		t.Errorf("%+v", res)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(held); err != nil {
		t.Fatalf("control: it was deleted although it was held: %v", err)
	}
	// Still held: the next host says what is in the way, each time, and starts
	// once nothing is.
	again := func() error {
		h, err := gvisor.Open(gvisor.Config{Programs: realtest.Programs(t), Dir: dir, Images: realtest.Images(t)})
		if err == nil {
			err = h.Close()
		}
		return err
	}
	if err := again(); err == nil {
		t.Error("the next host did not say that something is left")
	}
	if err := unix.Unmount(held, 0); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(inner) // the reaper may have been able to
	for range 2 {
		if err := again(); err != nil {
			t.Error(err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if _, err := os.Stat(groups[0]); err == nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
