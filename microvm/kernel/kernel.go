// Package kernel is what a microVM boots: a Linux kernel and an initramfs with the
// guest's own program.
//
// There are two kernels. Debian's is taken from the contents of its package, as
// images are, and never from the live file system; its drivers are modules. The
// small one is compiled from Debian's source with guest.config, has no modules and
// starts several times faster; it is preferred where it is there. Both are kept in
// the cache under the sha256 of their bytes, and hashed at each use.
package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image/debian"
)

// The kernels, the preferred one first.
const (
	Small  = "small"
	Debian = "debian"
)

// A Kernel is one Linux kernel of the cache.
type Kernel struct {
	Name    string         `json:"name"`
	Release string         `json:"release"` // as uname says it
	Package debian.Package `json:"package"` // what it was made of
	ACPI    bool           `json:"acpi"`    // it finds its devices through ACPI only, not on its command line
	Image   string         `json:"image"`   // sha256 hex of the bzImage
	Modules string         `json:"modules"` // sha256 hex of the part of the initramfs that is the kernel's
	Recipe  string         `json:"recipe"`  // sha256 hex of what it was made of, as far as that is known beforehand
}

// A Guest is what a VMM loads. The files are sealed: nobody can write to them, not
// even this process.
type Guest struct {
	Kernel Kernel
	Image  *os.File // bzImage
	Initrd *os.File // /init, /sallyport-init, /mods/order (file names, in the order in which to load them) and /mods/*.ko
	Digest string   // sha256 hex over kernel and initramfs: what a snapshot is bound to
}

// inside are the programs of the initramfs: their names there, and among our programs.
var inside = []struct{ name, program string }{{"init", "sallyport-guest"}, {"sallyport-init", "sallyport-init"}}

// Open returns the preferred kernel of a cache folder with an initramfs of programs,
// the folder of sallyport-guest and sallyport-init. All bytes are checked before they
// are used. A kernel that is damaged is an error: no other one stands in for it.
func Open(cacheDir, programs string) (*Guest, error) {
	k, err := Installed(cacheDir)
	if err != nil {
		return nil, err
	}
	return k.Open(cacheDir, programs)
}

// Installed returns the preferred kernel of a cache folder, without checking its
// bytes. It fails with code Unavailable where there is none.
func Installed(cacheDir string) (Kernel, error) {
	k, err := Describe(cacheDir, Small)
	if errors.Is(err, fs.ErrNotExist) {
		k, err = Describe(cacheDir, Debian)
	}
	return k, err
}

// Open is as the function Open, for this kernel.
func (k Kernel) Open(cacheDir, programs string) (*Guest, error) {
	image, err := k.read(cacheDir, k.Image, imageExt)
	if err != nil {
		return nil, err
	}
	modules, err := k.read(cacheDir, k.Modules, modulesExt)
	if err != nil {
		return nil, err
	}
	initrd, err := initramfs(modules, programs)
	if err != nil {
		return nil, err
	}
	g := &Guest{Kernel: k, Digest: digest(image, initrd)}
	if g.Image, err = seal("kernel", image); err != nil {
		return nil, unavailable("the guest kernel cannot be held in memory", "", err)
	}
	if g.Initrd, err = seal("initramfs", initrd); err != nil {
		g.Close()
		return nil, unavailable("the initramfs cannot be held in memory", "", err)
	}
	return g, nil
}

// ELF takes the file that Firecracker boots out of a Guest's Image.
func ELF(image *os.File) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(image, 0, maxKernel))
	if err != nil {
		return nil, unavailable("the guest kernel cannot be read", "", err)
	}
	elf, err := vmlinux(b)
	if err != nil {
		return nil, unavailable("the guest kernel has no ELF file in it that can be taken out", rebuildHint, err)
	}
	return elf, nil
}

// Close closes the files.
func (g *Guest) Close() {
	for _, f := range []*os.File{g.Image, g.Initrd} {
		if f != nil {
			f.Close()
		}
	}
}

// initramfs appends the guest's programs to the kernel's part.
func initramfs(modules []byte, folder string) ([]byte, error) {
	b := bytes.NewBuffer(bytes.Clone(modules))
	w := &cpio{w: b}
	for _, p := range inside {
		file := filepath.Join(folder, p.program)
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, unavailable("there is no "+file+", which runs inside a microVM", "make build makes it", err)
		}
		w.add(p.name, 0o100755, content)
	}
	w.close()
	return b.Bytes(), nil
}

// digest hashes the hashes of files, so that no two lists of files have the same one.
func digest(files ...[]byte) string {
	h := sha256.New()
	for _, f := range files {
		sum := sha256.Sum256(f)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// seal makes a file in memory that can never change. Others may read it.
func seal(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("sallyport-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o444)); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

const rebuildHint = "make kernel makes it again"

func unavailable(message, hint string, err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: message, Hint: hint, Err: err}
}

func missing(name string, err error) error {
	hint := "make build makes it"
	if name == Small {
		hint = "make guest-kernel compiles it"
	}
	return unavailable(fmt.Sprintf("there is no guest kernel %q in the cache", name), hint, err)
}
