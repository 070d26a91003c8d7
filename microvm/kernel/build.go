package kernel

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image/debian"
)

// debianRelease is the release whose kernels these are.
const debianRelease = "bookworm"

// recipeVersion changes whenever this package would make other bytes of the same
// packages.
const recipeVersion = "1"

//go:embed guest.config
var guestConfig string

// recipe names everything that a kernel depends on, apart from the version of its
// package.
func recipe(name string) string {
	of := []string{recipeVersion, name, debianRelease}
	if name == Small {
		of = append(of, guestConfig)
	} else {
		of = append(of, wanted...)
	}
	b, err := json.Marshal(of)
	if err != nil {
		panic("kernel: a list of strings is always JSON: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Build makes a kernel and keeps it in the cache folder. It tells progress what it is
// doing, one line at a time. Nothing that fails or is interrupted leaves anything
// that counts. It needs apt-get with a source of Debian 12 and dpkg-deb; the small
// kernel also needs make, gcc and what else a kernel is compiled with.
func Build(ctx context.Context, cacheDir, name string, progress func(string)) (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, unavailable("guest kernels are made for amd64 only", "microVMs need an amd64 host", nil)
	}
	cacheDir, err := filepath.Abs(cacheDir) // dpkg-deb and apt-get need absolute paths
	if err != nil {
		return Kernel{}, err
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return Kernel{}, unavailable("a guest kernel cannot be made here: there is no "+tool,
				"make it on Debian 12 and copy the cache folder's kernels/ here", err)
		}
	}
	k, err := inFolder(ctx, cacheDir, func(work string) (Kernel, error) {
		source, err := debian.Open(ctx, filepath.Join(work, "apt"), debianRelease, progress)
		if err != nil {
			return Kernel{}, err
		}
		switch name {
		case Debian:
			return packaged(ctx, cacheDir, work, source)
		case Small:
			return compiled(ctx, cacheDir, work, source, progress)
		}
		return Kernel{}, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute,
			Message: fmt.Sprintf("there is no recipe for a kernel %.80q", name), Hint: "use " + Debian + " or " + Small}
	})
	if _, ours := errors.AsType[*sallyport.Error](err); err != nil && !ours {
		err = unavailable("the guest kernel could not be made: "+err.Error(),
			"check that apt-get has a source of Debian 12 (bookworm) and reaches it, then try again", err)
	}
	return k, err
}

// take finds the package that a name of the archive's stands for, and downloads it.
func take(ctx context.Context, source *debian.Source, name string, form *regexp.Regexp) (debian.Archive, error) {
	all, err := source.Closure(ctx, []string{name})
	if err != nil {
		return debian.Archive{}, err
	}
	i := slices.IndexFunc(all, func(a debian.Archive) bool { return form.MatchString(a.Name) })
	if i < 0 {
		return debian.Archive{}, fmt.Errorf("%s brings no package of the form %v", name, form)
	}
	return all[i], source.FetchOne(ctx, all[i])
}

var imagePackage = regexp.MustCompile(`^linux-image-[0-9][0-9a-z.-]*-cloud-amd64$`)

// packaged takes Debian's kernel for clouds out of its package.
func packaged(ctx context.Context, cacheDir, work string, source *debian.Source) (Kernel, error) {
	a, err := take(ctx, source, "linux-image-cloud-amd64", imagePackage)
	if err != nil {
		return Kernel{}, err
	}
	k := Kernel{Name: Debian, Package: a.Package, Release: strings.TrimPrefix(a.Name, "linux-image-"), ACPI: true}
	c := contents{release: k.Release, modules: map[string]module{}, builtin: map[string]bool{}}
	if err := a.Walk(ctx, c.take); err != nil {
		return Kernel{}, fmt.Errorf("package %s: %w", a.Name, err)
	}
	if _, err := vmlinux(c.image); err != nil {
		return Kernel{}, fmt.Errorf("package %s: vmlinuz: %w", a.Name, err)
	}
	ordered, err := order(c.modules, c.builtin, wanted)
	if err != nil {
		return Kernel{}, fmt.Errorf("package %s: %w", a.Name, err)
	}
	return keep(cacheDir, work, k, c.image, pack(ordered))
}

// contents are what is used of a package with a kernel.
type contents struct {
	release string
	image   []byte
	modules map[string]module
	builtin map[string]bool
}

// maxModule bounds one module.
const maxModule = 16 << 20

func (c *contents) take(h *tar.Header, r io.Reader) error {
	folder := "lib/modules/" + c.release + "/"
	name := strings.TrimPrefix(path.Clean(h.Name), "/")
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	limit := int64(maxModule)
	if name == "boot/vmlinuz-"+c.release {
		limit = maxKernel
	} else if !strings.HasPrefix(name, folder) || !strings.HasSuffix(name, ".ko") && name != folder+"modules.builtin" {
		return nil
	}
	if h.Size > limit {
		return fmt.Errorf("%d MiB, which is more than a kernel has", h.Size>>20)
	}
	b, err := io.ReadAll(r)
	switch {
	case err != nil:
		return err
	case limit == maxKernel:
		c.image = b
	case strings.HasSuffix(name, ".ko"):
		c.modules[moduleName(name)] = module{path.Base(name), b}
	default:
		for line := range bytes.Lines(b) {
			c.builtin[moduleName(string(bytes.TrimSpace(line)))] = true
		}
	}
	return nil
}
