// Package cgroup bounds and kills groups of processes by Linux control groups,
// of version 1 and of version 2. It refuses to work without memory control:
// what cannot be bounded is not run.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KernelOverhead is what a sandbox's own kernel takes beside the program
// (measured: 9–14 MiB idle, more with many mappings). A program that stays
// within its limit must not be killed for it.
const KernelOverhead = 48 << 20

// A Hierarchy is where this host's cgroups are made. Version 1 has one folder
// per controller; version 2 has one in all.
type Hierarchy struct {
	v2     bool
	memory string // folder of our own groups in the memory hierarchy
	cpu    string // the same for cpu; "" if the host has no CPU control
}

// ErrNoMemoryControl is the reason not to run anything.
var ErrNoMemoryControl = errors.New("this host offers no memory control: no cgroup hierarchy with the memory controller is mounted writable")

// Find finds the memory and cpu controllers and makes our folder,
// named key, in them. mountinfo is the content of /proc/self/mountinfo.
func Find(mountinfo []byte, key string) (Hierarchy, error) {
	var h Hierarchy
	unified := ""
	for sc := bufio.NewScanner(bytes.NewReader(mountinfo)); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		fields, post := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(post) < 3 {
			continue
		}
		options := strings.Split(post[2], ",")
		switch {
		case post[0] == "cgroup2":
			unified = fields[4]
		case post[0] == "cgroup" && slices.Contains(options, "memory"):
			h.memory = fields[4]
		case post[0] == "cgroup" && slices.Contains(options, "cpu"):
			h.cpu = fields[4]
		}
	}
	if h.memory == "" && unified != "" {
		return findUnified(unified, key)
	}
	if h.memory == "" {
		return h, ErrNoMemoryControl
	}
	for _, dir := range []*string{&h.memory, &h.cpu} {
		if *dir == "" {
			continue
		}
		*dir = filepath.Join(*dir, "sallyport", key)
		if err := os.MkdirAll(*dir, 0o755); err != nil {
			return h, fmt.Errorf("%w (%v)", ErrNoMemoryControl, err)
		}
	}
	return h, nil
}

func findUnified(mount, key string) (Hierarchy, error) {
	h := Hierarchy{v2: true}
	have, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(have)), "memory") {
		return h, ErrNoMemoryControl
	}
	dir := mount
	for _, name := range []string{"sallyport", key} {
		for _, c := range []string{"+memory", "+cpu"} {
			err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(c), 0o644)
			if err != nil && c == "+memory" {
				return h, fmt.Errorf("%w: cannot delegate the memory controller in %s (%v)", ErrNoMemoryControl, dir, err)
			}
			if err == nil && c == "+cpu" {
				h.cpu = "same"
			}
		}
		dir = filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return h, fmt.Errorf("%w (%v)", ErrNoMemoryControl, err)
		}
	}
	for _, c := range []string{"+memory", "+cpu"} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(c), 0o644); err != nil && c == "+memory" {
			return h, fmt.Errorf("%w: cannot delegate the memory controller in %s (%v)", ErrNoMemoryControl, dir, err)
		}
	}
	h.memory = dir
	if h.cpu != "" {
		h.cpu = dir
	}
	return h, nil
}

// Folders returns our folders, each once.
func (h Hierarchy) Folders() []string {
	if h.v2 || h.cpu == "" {
		return []string{h.memory}
	}
	return []string{h.memory, h.cpu}
}

// A Group is the cgroup of one sandbox.
type Group struct {
	h    Hierarchy
	name string
}

// New creates the group with its limits. memory 0 means unlimited.
func (h Hierarchy) New(name string, memory int64, cpus float64) (g Group, err error) {
	g = Group{h, name}
	defer func() {
		if err != nil {
			_ = g.Remove() // the first error tells
		}
	}()
	for _, d := range g.Dirs() {
		if err := os.Mkdir(d, 0o755); err != nil {
			return g, err
		}
	}
	if memory > 0 {
		if err := g.limitMemory(memory); err != nil {
			return g, err
		}
	}
	if cpus > 0 {
		return g, g.limitCPU(cpus)
	}
	return g, nil
}

// Dirs returns the folders of the group, one for each hierarchy.
func (g Group) Dirs() []string {
	var dirs []string
	for _, f := range g.h.Folders() {
		dirs = append(dirs, filepath.Join(f, g.name))
	}
	return dirs
}

func (g Group) limitMemory(bytes int64) error {
	dir := filepath.Join(g.h.memory, g.name)
	if g.h.v2 {
		if err := writeNumber(dir, "memory.max", bytes); err != nil {
			return err
		}
		_ = writeNumber(dir, "memory.oom.group", 1)
		return optional(writeNumber(dir, "memory.swap.max", 0))
	}
	if err := writeNumber(dir, "memory.limit_in_bytes", bytes); err != nil {
		return err
	}
	return optional(writeNumber(dir, "memory.memsw.limit_in_bytes", bytes))
}

const cpuPeriod = 100_000 // µs

func (g Group) limitCPU(cpus float64) error {
	quota := max(1000, int64(cpus*cpuPeriod))
	switch dir := filepath.Join(g.h.cpu, g.name); {
	case g.h.cpu == "":
		return errors.New("this host offers no CPU control: no cgroup hierarchy with the cpu controller is mounted")
	case g.h.v2:
		return os.WriteFile(filepath.Join(dir, "cpu.max"), fmt.Appendf(nil, "%d %d", quota, cpuPeriod), 0o644)
	default:
		if err := writeNumber(dir, "cpu.cfs_period_us", cpuPeriod); err != nil {
			return err
		}
		return writeNumber(dir, "cpu.cfs_quota_us", quota)
	}
}

// Limits reads back what is in force: bytes of memory and a number of CPUs, each
// 0 where there is no bound.
func (g Group) Limits() (memory int64, cpus float64) {
	if g.h.v2 {
		quota, period, _ := strings.Cut(readText(g.h.memory, g.name, "cpu.max"), " ")
		return number(readText(g.h.memory, g.name, "memory.max")), ratio(number(quota), number(period))
	}
	if memory = number(readText(g.h.memory, g.name, "memory.limit_in_bytes")); memory >= noLimit {
		memory = 0
	}
	return memory, ratio(number(readText(g.h.cpu, g.name, "cpu.cfs_quota_us")), number(readText(g.h.cpu, g.name, "cpu.cfs_period_us")))
}

// noLimit is about what version 1 says where there is none.
const noLimit = 1 << 62

func ratio(quota, period int64) float64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

func readText(parts ...string) string {
	b, _ := os.ReadFile(filepath.Join(parts...))
	return strings.TrimSpace(string(b))
}

// number is 0 for "max" and for what cannot be read.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func writeNumber(dir, file string, n int64) error {
	return os.WriteFile(filepath.Join(dir, file), strconv.AppendInt(nil, n, 10), 0o644)
}

// optional forgives a knob that this kernel does not have (no swap accounting).
func optional(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// OOMKills counts the processes of the group that the kernel killed for memory.
func (g Group) OOMKills() int64 {
	file := "memory.oom_control"
	if g.h.v2 {
		file = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(g.h.memory, g.name, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			v, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			return v
		}
	}
	return 0
}

// Peak is the most memory that the group ever used.
func (g Group) Peak() int64 {
	file := "memory.max_usage_in_bytes"
	if g.h.v2 {
		file = "memory.peak"
	}
	return number(readText(g.h.memory, g.name, file))
}

// Kill kills every process of the group until none is left, and says so.
func (g Group) Kill(patience time.Duration) error {
	dir := filepath.Join(g.h.memory, g.name)
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		pids := strings.Fields(string(b))
		if len(pids) == 0 {
			return nil
		}
		for _, p := range pids {
			if pid, err := strconv.Atoi(p); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // gone already: fine
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup %s: %d processes survive SIGKILL", dir, len(pids))
		}
	}
}

// Remove deletes the group's folders.
// Preconditions: no process is left in it.
func (g Group) Remove() error {
	var errs []error
	for _, d := range g.Dirs() {
		err := syscall.Rmdir(d)
		for range 200 { // a killed process leaves its cgroup a moment later
			if err != syscall.EBUSY {
				break
			}
			time.Sleep(time.Millisecond)
			err = syscall.Rmdir(d)
		}
		if err != nil && err != syscall.ENOENT {
			errs = append(errs, fmt.Errorf("%s: %w", d, err))
		}
	}
	return errors.Join(errs...)
}

// Groups lists the groups that exist, in any of the folders.
func (h Hierarchy) Groups() []Group {
	var names []string
	for _, f := range h.Folders() {
		entries, _ := os.ReadDir(f)
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	var groups []Group
	for _, n := range names {
		groups = append(groups, Group{h, n})
	}
	return groups
}
