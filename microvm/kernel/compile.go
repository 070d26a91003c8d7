package kernel

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sallyport.dev/sallyport/image/debian"
)

var sourcePackage = regexp.MustCompile(`^linux-source-[0-9]+\.[0-9]+$`)

// compiled makes the small kernel of Debian's source, on one processor and at the
// lowest priority.
func compiled(ctx context.Context, cacheDir, work string, source *debian.Source, progress func(string)) (Kernel, error) {
	const name = "linux-source-6.1" // guest.config is for this series
	a, err := take(ctx, source, name, sourcePackage)
	if err != nil {
		return Kernel{}, err
	}
	progress("unpacking the source")
	if err := a.Walk(ctx, unpack(ctx, work, name)); err != nil {
		return Kernel{}, fmt.Errorf("package %s: %w", a.Name, err)
	}
	tree := filepath.Join(work, name)
	if err := configure(ctx, work, tree); err != nil {
		return Kernel{}, err
	}
	progress("compiling, on one processor and at the lowest priority: many minutes")
	if err := compile(ctx, tree, progress); err != nil {
		return Kernel{}, err
	}
	release, err := os.ReadFile(filepath.Join(tree, "include/config/kernel.release"))
	if err != nil {
		return Kernel{}, err
	}
	image, err := os.ReadFile(filepath.Join(tree, "arch/x86/boot/bzImage"))
	if err != nil {
		return Kernel{}, err
	}
	if _, err := vmlinux(image); err != nil {
		return Kernel{}, fmt.Errorf("bzImage: %w", err)
	}
	k := Kernel{Name: Small, Package: a.Package, Release: strings.TrimSpace(string(release))}
	return keep(cacheDir, work, k, image, pack(nil))
}

// unpack hands the tar file in the package to tar.
func unpack(ctx context.Context, work, name string) func(*tar.Header, io.Reader) error {
	return func(h *tar.Header, r io.Reader) error {
		if filepath.Base(h.Name) != name+".tar.xz" {
			return nil
		}
		cmd := exec.CommandContext(ctx, "tar", "-xJ", "-C", work, "-f", "-")
		cmd.Stdin = r
		return run(cmd)
	}
}

// configure turns on what guest.config asks for and off what it does not, and
// refuses what the source does not know.
func configure(ctx context.Context, work, tree string) error {
	file := filepath.Join(work, "guest.config")
	if err := os.WriteFile(file, []byte(guestConfig), 0o600); err != nil {
		return err
	}
	if err := run(kernelMake(ctx, tree, "allnoconfig", "KCONFIG_ALLCONFIG="+file)); err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(tree, ".config"))
	if err != nil {
		return err
	}
	if lost := lost(guestConfig, string(got)); len(lost) > 0 {
		return fmt.Errorf("this kernel's source does not take %s", strings.Join(lost, ", "))
	}
	return nil
}

// lost returns the lines of a wanted configuration that are not in another.
func lost(wanted, got string) (missing []string) {
	have := map[string]bool{}
	for line := range strings.Lines(got) {
		have[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(wanted) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !have[line] {
			missing = append(missing, line)
		}
	}
	return missing
}

// kernelMake runs the kernel's make. The kernel says nothing of who made it, where
// and when.
func kernelMake(ctx context.Context, tree string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", "make", "-j1", "-C", tree}, args...)...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "MAKEFLAGS=", "KBUILD_BUILD_TIMESTAMP=@0", "KBUILD_BUILD_USER=sallyport", "KBUILD_BUILD_HOST=sallyport")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func compile(ctx context.Context, tree string, progress func(string)) error {
	cmd := kernelMake(ctx, tree, "bzImage")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	count, told := 0, time.Now()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if count++; time.Since(told) > 15*time.Second {
			progress(fmt.Sprintf("%d of about %d steps", count, steps))
			told = time.Now()
		}
	}
	return failed(cmd, errors.Join(lines.Err(), cmd.Wait()), said.Bytes())
}

// steps is how many lines make printed when it was counted; it is only shown.
const steps = 1400

func run(cmd *exec.Cmd) error {
	said, err := cmd.CombinedOutput()
	return failed(cmd, err, said)
}

func failed(cmd *exec.Cmd, err error, said []byte) error {
	if err == nil {
		return nil
	}
	said = bytes.TrimSpace(said)
	return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, said[max(0, len(said)-500):])
}
