package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// limits are two traces of the guest's kernel, of system calls that were refused
// for want of processes, and of space: a program can neither see nor stop them.
type limits struct {
	forks, writes traced

	again bool // they are asked more than once: see hit
}

// A traced is one trace. The zero value tells nothing.
type traced struct {
	dir   *os.Root
	stats *os.File
}

const tracing = "/sys/kernel/tracing"

// watchLimits starts them. A kernel without tracing tells nothing.
func watchLimits() limits {
	if unix.Mount("tracefs", tracing, "tracefs", 0, "") != nil {
		return limits{}
	}
	return limits{forks: trace("forks", "ret == -11 && ("+makesTasks+")"), writes: trace("writes", "ret == -28 && "+isNoKey)}
}

// trace keeps the ends of system calls that a filter lets through.
func trace(name, filter string) (t traced) {
	dir := tracing + "/instances/" + name
	if os.Mkdir(dir, 0o700) != nil {
		return t
	}
	for _, w := range [][2]string{{"buffer_size_kb", "4"}, {"events/raw_syscalls/sys_exit/filter", filter}, {"events/raw_syscalls/sys_exit/enable", "1"}} {
		if os.WriteFile(dir+"/"+w[0], []byte(w[1]), 0) != nil {
			return t
		}
	}
	t.dir, _ = os.OpenRoot(dir) // without it, what was told once is told again
	t.stats, _ = os.Open(dir + "/per_cpu/cpu0/stats")
	return t
}

// hit tells which limits were; where they are asked again, since it was asked last. To
// empty a trace the kernel waits for others, and so for programs that leave it no time.
func (l limits) hit() (processes, disk bool) {
	processes, disk = l.forks.filled(), l.writes.filled()
	if processes && l.again {
		l.forks.empty()
	}
	if disk && l.again {
		l.writes.empty()
	}
	return processes, disk
}

// filled tells whether a trace has, or had, something in it.
func (t traced) filled() bool {
	if t.stats == nil {
		return false
	}
	b := make([]byte, 4096)
	n, _ := t.stats.ReadAt(b, 0)
	for line := range strings.Lines(string(b[:max(n, 0)])) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if (name == "entries" || name == "overrun") && count != "0" {
			return true
		}
	}
	return false
}

func (t traced) empty() {
	if t.dir == nil {
		return
	}
	if f, err := t.dir.OpenFile("trace", os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		f.Close()
	}
}
