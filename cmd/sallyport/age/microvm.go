package age

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/isolate/workerd"
	"sallyport.dev/sallyport/microvm/kernel"
	"sallyport.dev/sallyport/wasm"
)

// A Row is what one thing that sandboxes stand on is, and what to do about it.
type Row struct{ What, Said, Hint string }

// Found tells how old all of them are. programs is the folder of our programs, cache
// that with guest kernels.
func Found(ctx context.Context, programs, cache string) ([]Row, error) {
	known, err := Known()
	if err != nil {
		return nil, err
	}

	said, hint := Gvisor(gvisor.RuntimeVersion(filepath.Join(programs, gvisor.RuntimeProgram)), known)
	all := []Row{
		{"gvisor version", said, hint},
		{"wazero version", wasm.RuntimeVersion(filepath.Join(programs, wasm.Program)) + ", which runs WASI modules", ""},
		{"workerd version", workerd.Version + ", which runs V8 isolates", ""},
	}
	if _, err := os.Stat(workerd.Path(cache)); err != nil {
		all[2].Said, all[2].Hint = "none here: V8 isolates need "+workerd.Version, "`make build` fetches it where npm is"
	}
	if b, err := os.ReadFile("/proc/version"); err == nil {
		said, hint := Kernel(KernelOf(string(b)), known)
		all = append(all, Row{"kernel version", said, hint})
	}
	said, hint = Qemu(version(ctx, "qemu-system-x86_64"), known)
	all = append(all, Row{"qemu version", said, hint})
	said, hint = Firecracker(version(ctx, "firecracker"), known)
	all = append(all, Row{"firecracker", said, hint})
	return append(all, guestKernels(cache, known)...), nil
}

// version is what a program of PATH says of itself, "" if there is none.
func version(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		return "does not say: " + err.Error()
	}
	return string(out[:min(len(out), 200)])
}

var (
	qemuLine        = regexp.MustCompile(`version ([0-9.]+)( \([^)\n]*\))?`)
	firecrackerLine = regexp.MustCompile(`Firecracker v([0-9.]+)`)
)

// Qemu tells how far the QEMU that says this of itself is behind.
func Qemu(said string, known []Release) (row, hint string) {
	if said == "" {
		return "none here: microVMs need it, or Firecracker", "apt-get install --no-install-recommends qemu-system-x86"
	}
	m := qemuLine.FindStringSubmatch(said)
	if m == nil {
		return "of an unknown version", ""
	}
	return against("qemu", "QEMU "+m[1]+m[2], m[1], known, "update QEMU: microVMs stand on it")
}

// notRun is said wherever Firecracker is named.
const notRun = " (this build was not run against Firecracker)"

// Firecracker tells how far the Firecracker that says this of itself is behind.
func Firecracker(said string, known []Release) (row, hint string) {
	m := firecrackerLine.FindStringSubmatch(said)
	switch {
	case said == "":
		row = "none here"
		for _, r := range known {
			if r.component == "firecracker" {
				row += "; " + r.String() + " is known"
			}
		}
	case m == nil:
		row = "of an unknown version"
	default:
		row, hint = against("firecracker", "Firecracker "+m[1], m[1], known, "update firecracker and jailer together: microVMs stand on them")
	}
	return row + notRun, hint
}

func guestKernels(cache string, known []Release) (all []Row) {
	for _, k := range []struct{ name, again string }{
		{kernel.Debian, "`make kernel FORCE=-force` fetches Debian's newest"}, {kernel.Small, "`make guest-kernel FORCE=-force` compiles Debian's newest"},
	} {
		has, err := kernel.Describe(cache, k.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			all = append(all, Row{"guest kernel", k.name + ": its description cannot be read", k.again})
			continue
		}
		said, hint := against("linux", k.name+": Linux "+has.Package.Version, has.Package.Version, known, k.again)
		all = append(all, Row{"guest kernel", said, hint})
	}
	if len(all) == 0 {
		all = []Row{{"guest kernel", "none in the cache: microVMs need one", "`make build` fetches Debian's"}}
	}
	return all
}
