package gpu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryFolders are where distributions keep the driver's libraries.
var libraryFolders = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/local/nvidia/lib64"}

// libraries are those that programs for "compute" and "utility" need, as the
// version of the driver names them. Without needed there is no CUDA.
var (
	needed  = []string{"libcuda.so"}
	helpful = []string{"libnvidia-ml.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so", "libnvidia-gpucomp.so", "libcudadebugger.so"}
)

// libraries finds the driver's libraries of exactly its version: with those of
// another the driver refuses to work.
func (m Machine) libraries(driver string) (found []string, _ error) {
	for _, name := range slices.Concat(needed, helpful) {
		file := name + "." + driver
		i := slices.IndexFunc(libraryFolders, func(dir string) bool {
			info, err := os.Stat(filepath.Join(m.Root, dir, file))
			return err == nil && info.Mode().IsRegular()
		})
		switch {
		case i >= 0:
			found = append(found, filepath.Join(m.Root, libraryFolders[i], file))
		case slices.Contains(needed, name):
			return nil, fmt.Errorf("the driver's library %s is in none of %s", file, strings.Join(libraryFolders, ", "))
		}
	}
	return found, nil
}

// Gather copies the driver's libraries into a new folder, under the names by which
// programs load them, too. A sandbox is shown this folder and nothing beside it.
func (g GPU) Gather(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		return err
	}
	for _, from := range g.Libraries {
		name := filepath.Base(from)
		if err := copyFile(from, filepath.Join(dir, name)); err != nil {
			return err
		}
		for _, short := range []string{".1", ""} {
			link := filepath.Join(dir, strings.TrimSuffix(name, "."+g.Driver)+short)
			if err := os.Symlink(name, link); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
