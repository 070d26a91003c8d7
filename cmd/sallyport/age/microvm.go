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
type Row struct {
	What, Said, Hint string
	Lacking          bool // it is not installed, and need not be
}

// Found tells how old all of them are. programs is the folder of our programs, cache
// that with guest kernels.
func Found(ctx context.Context, programs, cache string) ([]Row, error) {
	known, err := Known()
	if err != nil {
		return nil, err
	}

	said, hint := Gvisor(gvisor.RuntimeVersion(filepath.Join(programs, gvisor.RuntimeProgram)), known)
	all := []Row{
		{What: "gvisor version", Said: said, Hint: hint},
		{What: "wazero version", Said: wasm.RuntimeVersion(filepath.Join(programs, wasm.Program)) + ", which runs WASI modules"},
	}
	isolates := Row{What: "workerd version", Said: workerd.Version + ", which runs V8 isolates"}
	if _, err := os.Stat(workerd.Path(cache)); err != nil {
		isolates = Row{What: isolates.What, Said: "not installed: V8 isolates need workerd " + workerd.Version, Hint: "`make build` fetches it where npm is", Lacking: true}
	}
	all = append(all, isolates)
	if b, err := os.ReadFile("/proc/version"); err == nil {
		said, hint := Kernel(KernelOf(string(b)), known)
		all = append(all, Row{What: "kernel version", Said: said, Hint: hint})
	}
	for _, p := range []struct {
		what, program string
		age           func(said string, known []Release) (row, hint string)
	}{{"qemu version", "qemu-system-x86_64", Qemu}, {"firecracker", "firecracker", Firecracker}} {
		own := version(ctx, p.program)
		said, hint := p.age(own, known)
		all = append(all, Row{What: p.what, Said: said, Hint: hint, Lacking: own == ""})
	}
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
		return "not installed: microVMs need it, or Firecracker", "apt-get install --no-install-recommends qemu-system-x86"
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
		row = "not installed, and not needed: microVMs run in QEMU"
		for _, r := range known {
			if r.component == "firecracker" {
				row += "; it would be " + r.String()
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
			all = append(all, Row{What: "guest kernel", Said: k.name + ": its description cannot be read", Hint: k.again})
			continue
		}
		said, hint := against("linux", k.name+": Linux "+has.Package.Version, has.Package.Version, known, k.again)
		all = append(all, Row{What: "guest kernel", Said: said, Hint: hint})
	}
	if len(all) == 0 {
		all = []Row{{What: "guest kernel", Said: "not in the cache: microVMs need one", Hint: "`make build` fetches Debian's", Lacking: true}}
	}
	return all
}
