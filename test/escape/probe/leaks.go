package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// leaks prints what the kernel tells of the machine: VALUE, a name, and what
// it says, in one line.
func leaks() {
	tell := func(name, value string) {
		fmt.Printf("VALUE %s %.300s\n", name, strings.Join(strings.Fields(value), " "))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		tell("uname-node", unix.ByteSliceToString(u.Nodename[:]))
		tell("uname-release", unix.ByteSliceToString(u.Release[:]))
		tell("uname-version", unix.ByteSliceToString(u.Version[:]))
	}
	for _, p := range []string{
		"/proc/version", "/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname", "/proc/sys/kernel/osrelease",
		"/proc/diskstats", "/proc/partitions", "/proc/keys", "/proc/key-users", "/proc/sched_debug", "/proc/modules", "/proc/kallsyms", "/proc/iomem",
		"/proc/interrupts", "/proc/swaps", "/proc/config.gz", "/proc/timer_list", "/proc/slabinfo", "/proc/net/arp", "/proc/net/route", "/proc/net/unix",
		"/proc/net/fib_trie", "/proc/net/dev", "/proc/1/cmdline", "/proc/self/cgroup", "/proc/loadavg", "/proc/uptime", "/proc/stat", "/etc/machine-id", "/etc/hostname",
		"/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/product_name", "/sys/class/dmi/id/board_serial", "/sys/firmware/acpi/tables/DSDT",
		"/sys/devices/virtual/dmi/id/sys_vendor", "/sys/hypervisor/uuid", "/sys/kernel/notes",
	} {
		b, err := os.ReadFile(p)
		if p == "/proc/swaps" {
			_, b, _ = bytes.Cut(b, []byte("\n")) // a table's head tells nothing
		}
		if err == nil && len(b) > 0 {
			tell(p, string(b[:min(len(b), 4096)]))
		}
	}
	addresses, _ := filepath.Glob("/sys/class/net/*/address")
	for _, p := range addresses {
		if b, err := os.ReadFile(p); err == nil {
			tell("mac "+filepath.Base(filepath.Dir(p)), string(b))
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	tell("processes", fmt.Sprint(len(processes)))
	tell("cpus", fmt.Sprint(runtime.NumCPU()))
	tell("cpu", firstOf("/proc/cpuinfo", "model name"))
	tell("memory", firstOf("/proc/meminfo", "MemTotal"))
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		tell("sysinfo-memory", fmt.Sprint(info.Totalram*uint64(info.Unit)))
		tell("sysinfo-load", fmt.Sprint(info.Loads))
	}
	tell("dmesg", dmesg())
}

func firstOf(file, key string) string {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return v
		}
	}
	return ""
}

func dmesg() string {
	buf := make([]byte, 1<<16)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// identity prints who this process is and what it could become.
func identity() {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		switch k {
		case "Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs":
			fmt.Println("IS", k, strings.Join(strings.Fields(v), " "))
		}
	}
	nnp, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	bound := 0
	for c := range uintptr(41) {
		if has, _ := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); has == 1 {
			bound++
		}
	}
	var lim unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NPROC, &lim)
	fmt.Println("IS uid", os.Getuid(), "no_new_privs", nnp, "bounding", bound, "processes", int64(lim.Cur))
}
