package escape_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
)

// hostState is what no sandbox may change: mounts, modules, settings, names.
func hostState(t *testing.T, files ...string) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, f := range append([]string{"/proc/self/mountinfo", "/proc/modules"}, files...) {
		b, err := os.ReadFile(f)
		if err != nil {
			state[f] = "absent"
			continue
		}
		state[f] = string(b)
		if f == "/proc/modules" { // how often each is in use is others' business, too
			state[f] = uses.ReplaceAllString(state[f], "")
		}
	}
	return state
}

var uses = regexp.MustCompile(`(?m) .*$`)

func unchanged(t *testing.T, before map[string]string, after map[string]string) {
	t.Helper()
	for f, was := range before {
		if f == "/proc/self/mountinfo" {
			// Others on this machine mount things too: what this test marks must not be there.
			if strings.Contains(after[f], "probe-") && !strings.Contains(was, "probe-") {
				t.Errorf("the host's mount table has a mount of the probe's:\n%s", after[f])
			}
			continue
		}
		if was != after[f] {
			t.Errorf("%s of the host was %.200q and is %.200q", f, was, after[f])
		}
	}
}

// bait is a file of the host, and a process that has its name in its command
// line.
func bait(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), fmt.Sprintf("bait-%d", time.Now().UnixNano()))
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "300")
	cmd.Args = []string{file, "300"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return file
}

// No way to mount makes what is read-only writable, or shows the host.
func TestTO41_Mounts(t *testing.T) {
	file := bait(t)
	before := hostState(t)
	each(t, func(t *testing.T, b bench) { b.holds(t, b.trials(t, "mount", "/usr", "/tmp", file), "mount", "DONE") })
	unchanged(t, before, hostState(t))
	b := newTool(t)

	dir := t.TempDir()
	inside := fmt.Sprintf("cd %s; mkdir -p ro work; mount -t tmpfs x work; mount -t tmpfs x ro; mount -o remount,ro ro", dir)
	succeeded(t, b.weak(t, []string{"-Urm"}, inside, "remount,file system of the new mount API", "mount", "ro", "work", file),
		"DONE", "remount", "file system of the new mount API")
	bound := fmt.Sprintf("cd %s; mkdir -p a ro work; mount -t tmpfs x work; mount --bind a ro; mount -o remount,bind,ro ro", dir)
	succeeded(t, b.weak(t, []string{"-m"}, bound, "remount a bind mount on itself,fresh proc", "mount", "ro", "work", file),
		"DONE", "remount a bind mount on itself", "fresh proc")
	succeeded(t, b.weak(t, []string{"-m"}, bound, "bind it elsewhere,copy of the mount", "mount", "ro", "work", file), "DONE", "bind it elsewhere", "copy of the mount")
	succeeded(t, b.weak(t, nil, "", "write", "mount", dir, dir, file), "DONE", "write")
	jail := t.TempDir()
	jailed := fmt.Sprintf("mkdir -p %[1]s/tmp; ln %[2]s %[1]s/probe; chroot %[1]s /probe mount / /tmp %[3]s; exit", jail, b.path, file)
	succeeded(t, b.weak(t, nil, jailed, "out of a chroot", "mount"), "DONE", "out of a chroot")
}

// Settings of the kernel that would change, or take over, the host.
var settings = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd", "/proc/sys/kernel/sysrq",
	"/proc/sys/kernel/panic", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/kptr_restrict",
	"/proc/sys/kernel/dmesg_restrict", "/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/yama/ptrace_scope",
	"/proc/sys/kernel/io_uring_disabled", "/proc/sys/kernel/ns_last_pid", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max",
	"/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/file-max", "/proc/sys/fs/protected_symlinks", "/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/drop_caches", "/proc/sys/vm/panic_on_oom", "/proc/sys/vm/mmap_min_addr", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/core/bpf_jit_enable",
	"/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/acpi/wakeup", "/proc/irq/default_smp_affinity", "/proc/timer_stats", "/proc/mtrr",
	"/sys/kernel/uevent_helper", "/sys/kernel/uevent_seqnum", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/ksm/run", "/sys/kernel/profiling",
	"/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs",
	"/sys/power/state", "/sys/power/disk", "/sys/module/kernel/parameters/panic", "/sys/class/net/lo/mtu", "/sys/devices/system/cpu/cpu0/online",
	"/sys/firmware/efi/vars/new_var", "/sys/kernel/debug/sched_features", "/sys/kernel/security/lockdown",
}

// No setting of the kernel takes a value, under any of its names.
func TestTO42_Settings(t *testing.T) {
	before := hostState(t, settings...)
	delete(before, "/proc/sys/kernel/ns_last_pid") // moves by itself
	delete(before, "/sys/kernel/uevent_seqnum")
	delete(before, "/sys/fs/cgroup/cgroup.procs") // who else runs on this machine
	delete(before, "/sys/fs/cgroup/memory/cgroup.procs")
	each(t, func(t *testing.T, b bench) {
		all := b.trials(t, append([]string{"knobs", "marker", "/tmp"}, settings...)...)
		b.holds(t, all, "knobs", "WROTE")
		for _, tr := range all {
			if n := with(tr.lines, "TRIED"); len(n) != 1 || len(n[0]) < 3 {
				t.Errorf("%s tried %q", tr.who, n)
			}
		}
	})
	after := hostState(t, settings...)
	unchanged(t, before, after)
	for f, v := range after {
		if strings.Contains(v, "probe-marker") {
			t.Errorf("the marker is in %s of the host", f)
		}
	}
	// Written outside: what is there already.
	dir := t.TempDir()
	lines := newTool(t).weak(t, []string{"-m"}, "", "", "knobs", "same", dir, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname")
	for _, how := range []string{"path", "self/root", "thread-self/root", "self/cwd", "dots", "link", "bind", "fresh proc"} {
		succeeded(t, lines, "WROTE", "/proc/sys/kernel/core_pattern by "+how)
	}
	succeeded(t, lines, "WROTE", "/proc/sys/kernel/hostname by path")
}

// Process 1 of the sandbox, which is another uid's, is out of reach.
func TestTO43_OtherProcesses(t *testing.T) {
	each(t, func(t *testing.T, b bench) { b.holds(t, b.trials(t, "trace", "1"), "trace", "DONE") })

	target := exec.Command("setpriv", "--reuid=65534", "--clear-groups", "sleep", "300")
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Process.Kill(); _ = target.Wait() }()
	comm := fmt.Sprintf("/proc/%d/comm", target.Process.Pid)
	await.That(t, "setpriv becomes sleep", func() bool { b, _ := os.ReadFile(comm); return bytes.HasPrefix(b, []byte("sleep")) })
	lines := newTool(t).outside(t, "trace", strconv.Itoa(target.Process.Pid))
	succeeded(t, lines, "DONE", "attach", "seize", "process_vm_readv", "process_vm_writev", "open mem to read", "open mem to write", "pidfd_getfd",
		"signal", "priority", "read environ", "read maps", "list its descriptors", "look into its root", "enter its namespaces")
}

// What only a kernel's owner may ask for is refused, and so is what nobody
// knows. TO-46 is in the same list: io_uring does not exist.
func TestTO44_PrivilegedCalls(t *testing.T) {
	before := hostState(t, "/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id", "/proc/swaps")
	began := time.Now()
	each(t, func(t *testing.T, b bench) {
		b.holds(t, b.trials(t, "calls"), "calls", "DONE")
		b.holds(t, b.trials(t, "clock"), "clock", "DONE")
	})
	if wall, steady := time.Now().Round(0).Sub(began.Round(0)), time.Since(began); (wall - steady).Abs() > 10*time.Minute {
		t.Errorf("the host's clock went %v in %v", wall, steady)
	}
	unchanged(t, before, hostState(t, "/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id", "/proc/swaps"))

	want := []string{"kexec_load", "bpf map", "perf_event_open", "add_key", "syslog", "settimeofday", "reboot", "swapon", "sethostname", "open_by_handle_at"}
	var got []string
	for _, l := range with(newTool(t).outside(t, "calls"), "DONE") {
		if slices.Contains(want, l) {
			got = append(got, l)
		}
	}
	if len(got) < 7 { // a kernel may lack some
		t.Errorf("control: outside, of %q only %q were taken", want, got)
	}
}

// io_uring does not exist inside, neither set up nor used.
func TestTO46_IOUring(t *testing.T) {
	names := []string{"io_uring_setup", "openat through a ring", "io_uring_enter", "io_uring_register"}
	each(t, func(t *testing.T, b bench) {
		for _, tr := range b.trials(t, "calls") {
			for _, n := range names {
				if !slices.ContainsFunc(with(tr.lines, "NOT"), func(l string) bool { return strings.HasPrefix(l, n+":") }) {
					t.Errorf("%s: %s was not refused", tr.who, n)
				}
			}
		}
	})
	if v, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err != nil || strings.TrimSpace(string(v)) != "0" {
		t.Skip("skipped the control: this kernel has no io_uring")
	}
	succeeded(t, newTool(t).outside(t, "calls"), "DONE", names...)
}

// What the kernel tells of the machine is the sandbox's own, or in the table of
// docs/threat-model.md. The control is the host, which tells it all.
func TestTO48_InformationLeaks(t *testing.T) {
	file := bait(t)
	outside := values(newTool(t).outside(t, "leaks"))
	each(t, func(t *testing.T, b bench) {
		for _, tr := range b.trials(t, "leaks") {
			b.tellsItsOwn(t, tr.who, values(tr.lines), outside, file)
		}
	})
	for _, k := range []string{"uname-release", "uname-version", "/proc/version", "/proc/cmdline", "/proc/sys/kernel/random/boot_id", "memory", "/proc/stat", "/proc/diskstats", "dmesg"} {
		if outside[k] == "" {
			t.Errorf("control: the host does not tell %s", k)
		}
	}
}

func (b bench) tellsItsOwn(t *testing.T, who string, inside, outside map[string]string, file string) {
	t.Helper()
	known := append([]string{"cpu", "cpus", "/proc/self/cgroup"}, b.own["leaks"]...)
	for k, v := range inside {
		if v == outside[k] && len(v) > 2 && !slices.Contains(known, k) {
			t.Errorf("%s: %s is the host's: %q", who, k, v)
		}
		if strings.Contains(v, file) || strings.Contains(v, outside["uname-node"]) && k != "uname-node" && len(outside["uname-node"]) > 3 {
			t.Errorf("%s: %s names the host or a neighbour: %q", who, k, v)
		}
		t.Logf("%s: %s %.120q", who, k, v)
	}
	kib, _ := strconv.Atoi(strings.TrimSuffix(inside["memory"], " kB"))
	total, _ := strconv.Atoi(inside["sysinfo-memory"])
	if !strings.HasPrefix(inside["uname-node"], "sandbox") || !b.memory(kib) || !b.memory(total>>10) {
		t.Errorf("%s: node %q, memory %q, %q", who, inside["uname-node"], inside["memory"], inside["sysinfo-memory"])
	}
}

func values(lines []string) map[string]string {
	all := map[string]string{}
	for _, l := range with(lines, "VALUE") {
		k, v, _ := strings.Cut(l, " ")
		all[k] = v
	}
	return all
}
