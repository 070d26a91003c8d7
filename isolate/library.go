package isolate

import (
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport/tier"
)

// libraryDirs are where hosts keep shared libraries, the usual first.
func libraryDirs() []string {
	dirs := []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	return dirs
}

// copyLibraries copies what a dynamic program needs to start into a root: its
// interpreter, where the program says, and the shared libraries, in /lib.
func copyLibraries(program *os.File, root string) error {
	f, err := elf.NewFile(program)
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		if err := copyFile(strings.TrimRight(string(name), "\x00"), filepath.Join(root, strings.TrimRight(string(name), "\x00"))); err != nil {
			return tier.Unavailable("use a Linux with the GNU C library", "workerd cannot run on this host: %v", err)
		}
	}
	return copyNeeded(f, root, map[string]bool{})
}

func copyNeeded(f *elf.File, root string, have map[string]bool) error {
	names, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range names {
		if have[name] || strings.Contains(name, "/") || strings.HasPrefix(name, "ld-linux") {
			continue
		}
		have[name] = true
		path := findLibrary(name, f.Machine)
		if path == "" {
			return tier.Unavailable("install it", "workerd cannot run on this host: the library %s is missing", name)
		}
		if err := copyFile(path, filepath.Join(root, "lib", name)); err != nil {
			return err
		}
		lib, err := elf.Open(path)
		if err != nil {
			return err
		}
		err = copyNeeded(lib, root, have)
		lib.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func findLibrary(name string, machine elf.Machine) string {
	for _, dir := range libraryDirs() {
		path := filepath.Join(dir, name)
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		f.Close()
		if f.Machine == machine {
			return path
		}
	}
	return ""
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
