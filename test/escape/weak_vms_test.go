package escape_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm"
	"sallyport.dev/sallyport/microvm/microvmtest"
	"sallyport.dev/sallyport/microvm/qemu"
	"sallyport.dev/sallyport/microvm/vmm"
)

func withoutFilter(_ *testing.T, c *exec.Cmd, _ bool) {
	if i := slices.Index(c.Args, "-sandbox"); i > 0 {
		c.Args = slices.Delete(c.Args, i, i+2)
	}
}

func replaceWord(t *testing.T, c *exec.Cmd, from, to string) {
	t.Helper()
	n := 0
	for i, a := range c.Args {
		n += strings.Count(a, from)
		c.Args[i] = strings.ReplaceAll(a, from, to)
	}
	if n != 1 {
		t.Errorf("%q is in the words of the VMM %d times: change this test with it: %q", from, n, c.Args)
	}
}

func opened(t *testing.T, path string, how int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, how, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// unsealed is a copy of a guest's memory that can be written.
func unsealed(t *testing.T, from *os.File) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("sallyport-ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	to := os.NewFile(uintptr(fd), "ram")
	t.Cleanup(func() { to.Close() })
	size, err := from.Seek(0, io.SeekEnd)
	if err := errors.Join(err, to.Truncate(size), to.Chmod(0o666)); err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if err != nil {
			break // holes to the end
		}
		if at, err = unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, at-start)); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// writableCopy is a copy of an image that everybody can write.
func writableCopy(t *testing.T, from *os.File) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.erofs")
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, 1<<40))
	if err := errors.Join(err, to.Chmod(0o666), to.Close()); err != nil {
		t.Fatal(err)
	}
	return opened(t, path, os.O_RDWR)
}

// weakVMM is QEMU, started otherwise.
type weakVMM struct {
	vmm.Backend
	t    *testing.T
	w    vmWeakness
	init string // in the place of sallyport-init, where it confines; "" for the sound one
}

// Identity implements vmm.Backend: no sound guest is made of a snapshot of a weak one.
func (b weakVMM) Identity(ctx context.Context) (vmm.Identity, error) {
	id, err := b.Backend.Identity(ctx)
	id.Machine += " " + b.w.name
	return id, err
}

func (b weakVMM) weaken(p vmm.Place, restored bool) vmm.Place {
	start := p.Start
	p.Start = func(c *exec.Cmd) error {
		if b.w.start != nil {
			b.w.start(b.t, c, restored)
		}
		return start(c)
	}
	if b.init != "" {
		p.Init = b.init
	}
	return p
}

// Boot implements vmm.Backend.
func (b weakVMM) Boot(ctx context.Context, p vmm.Place, m vmm.Machine) (vmm.VM, error) {
	return b.Backend.Boot(ctx, b.weaken(p, false), m)
}

// Restore implements vmm.Backend.
func (b weakVMM) Restore(ctx context.Context, p vmm.Place, m vmm.Machine, s vmm.Snapshot) (vmm.VM, error) {
	return b.Backend.Restore(ctx, b.weaken(p, true), m, s)
}

// open opens a host of weak microVMs, whose snapshots are its own.
func (w vmWeakness) open(t *testing.T) *microvm.Host {
	t.Helper()
	return microvmtest.Open(t, func(c *microvm.Config) {
		microvmtest.OnDebian(t, c)
		b := weakVMM{Backend: qemu.Backend{Accel: qemu.TCG}, t: t, w: w}
		if len(w.confine) > 0 {
			b.init = filepath.Join(t.TempDir(), microvm.InitProgram)
			rebuild(t, microvm.InitProgram, w.confine, b.init)
		}
		if len(w.guest) > 0 {
			programs := t.TempDir()
			symlink(t, filepath.Join(c.Programs, microvm.InitProgram), filepath.Join(programs, microvm.InitProgram))
			rebuild(t, microvm.GuestProgram, w.guest, filepath.Join(programs, microvm.GuestProgram))
			c.Programs = programs
		}
		cache := t.TempDir()
		symlink(t, filepath.Join(c.Cache, "kernels"), filepath.Join(cache, "kernels"))
		c.Cache, c.Backends = cache, []vmm.Backend{b}
	})
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}
