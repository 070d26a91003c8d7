// Package gpu finds the NVIDIA GPUs of a machine and says how a sandbox of gVisor
// is shown them: by nvproxy, gVisor's own gate to the driver, which passes on the
// calls that it knows of one driver version after another. Nothing here was ever
// run on a GPU: what is generated is data, and is tested as data.
package gpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Machine is where GPUs are looked for. The zero value is this one.
type Machine struct {
	Root string                                   // "" is /
	Stat func(path string, st *unix.Stat_t) error // nil is the system's; for tests
}

// A GPU is what a machine has.
type GPU struct {
	Driver    string   // version of the kernel's driver, such as 550.54.15
	Devices   []Device // the GPUs, and what controls them
	Libraries []string // of the driver, for programs; absolute
}

// Names are the GPUs' device nodes.
func (g GPU) Names() (all []string) {
	for _, d := range g.Devices {
		if cardName.MatchString(filepath.Base(d.Path)) {
			all = append(all, d.Path)
		}
	}
	return all
}

// A Device is a node of /dev.
type Device struct {
	Path         string
	Major, Minor uint32
}

const (
	versionFile = "/proc/driver/nvidia/version"
	paramsFile  = "/proc/driver/nvidia/params" // gVisor shows it to programs
	control     = "/dev/nvidiactl"
	memory      = "/dev/nvidia-uvm" // what CUDA needs beside it
)

var (
	cardName   = regexp.MustCompile(`^nvidia([0-9]+)$`)
	driverLine = regexp.MustCompile(`NVRM version:.*?\s([0-9]+\.[0-9]+(?:\.[0-9]+)?)\s`)
)

// A Lack is what a machine needs before a sandbox can be shown a GPU.
type Lack struct {
	What string // all that is missing, in words
	Hint string
}

func (l *Lack) Error() string { return l.What }

// Find finds the GPUs of a machine, or says all that is missing. supported are the
// versions that this gVisor knows.
func (m Machine) Find(supported []string) (GPU, error) {
	var g GPU
	var missing []string
	driver, err := m.driver()
	if err != nil {
		missing = append(missing, err.Error())
	} else if !slices.Contains(supported, driver) {
		missing = append(missing, fmt.Sprintf("the NVIDIA driver is %s, which this gVisor does not support (it knows %s)", driver, among(supported)))
	}
	g.Driver = driver
	cards, err := m.cards()
	if err != nil {
		missing = append(missing, err.Error())
	}
	g.Devices = cards
	for _, p := range []string{control, memory} {
		d, err := m.node(p)
		if err != nil {
			missing = append(missing, err.Error())
		}
		g.Devices = append(g.Devices, d)
	}
	if len(missing) == 0 {
		g.Libraries, err = m.libraries(driver)
		if err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 {
		return GPU{}, &Lack{strings.Join(missing, "; "), "run the tool on a sandbox host with an NVIDIA GPU and a driver that gVisor supports"}
	}
	return g, nil
}

// driver reads the version of the kernel's driver.
func (m Machine) driver() (string, error) {
	b, err := os.ReadFile(filepath.Join(m.Root, versionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no NVIDIA driver is loaded (%s is missing)", versionFile)
	}
	if err != nil {
		return "", fmt.Errorf("the NVIDIA driver does not tell its version: %w", err)
	}
	found := driverLine.FindSubmatch(append(b, '\n'))
	if found == nil {
		return "", fmt.Errorf("the NVIDIA driver does not tell its version: %s holds %.80q", versionFile, b)
	}
	if _, err := os.Stat(filepath.Join(m.Root, paramsFile)); err != nil {
		return "", fmt.Errorf("the NVIDIA driver is not whole: %s is missing", paramsFile)
	}
	return string(found[1]), nil
}

// cards finds the GPUs' own nodes, in the order of their numbers.
func (m Machine) cards() (found []Device, _ error) {
	entries, _ := os.ReadDir(filepath.Join(m.Root, "/dev")) // none: nothing is found
	for _, e := range entries {
		if !cardName.MatchString(e.Name()) {
			continue
		}
		d, err := m.node("/dev/" + e.Name())
		if err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	if len(found) == 0 {
		return nil, errors.New("there is no device node of a GPU (/dev/nvidia0, …)")
	}
	slices.SortFunc(found, func(a, b Device) int { return int(a.Minor) - int(b.Minor) })
	return found, nil
}

func (m Machine) node(path string) (Device, error) {
	stat := m.Stat
	if stat == nil {
		stat = unix.Stat
	}
	var st unix.Stat_t
	if err := stat(filepath.Join(m.Root, path), &st); err != nil {
		return Device{}, fmt.Errorf("there is no device node %s", path)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return Device{}, fmt.Errorf("%s is no device node", path)
	}
	return Device{path, unix.Major(st.Rdev), unix.Minor(st.Rdev)}, nil
}

// among shows the first and the last of many versions.
func among(versions []string) string {
	if len(versions) < 4 {
		return strings.Join(versions, ", ")
	}
	sorted := slices.SortedFunc(slices.Values(versions), compare)
	return fmt.Sprintf("%d from %s to %s", len(sorted), sorted[0], sorted[len(sorted)-1])
}

// compare orders versions by their numbers.
func compare(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		n, _ := strconv.Atoi(x[i])
		k, _ := strconv.Atoi(y[i])
		if n != k {
			return n - k
		}
	}
	return len(x) - len(y)
}
