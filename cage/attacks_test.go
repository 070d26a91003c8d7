package cage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// refusedAll makes attempts in a cage: each must fail with one of the errors. As the
// control, the one named must succeed in a cage without the protections named.
func refusedAll(t *testing.T, attempts []string, control string, without protection, errnos ...unix.Errno) {
	t.Helper()
	h := open(t)
	said, _ := run(t, h, Spec{}, attempts...)
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != len(attempts) {
		t.Fatalf("%d answers to %d attempts: %q", len(lines), len(attempts), said)
	}
	for i, l := range lines {
		_, n, _ := strings.Cut(l, " ")
		if v, err := strconv.Atoi(n); err != nil || !with(errnos...)(v) {
			t.Errorf("%s: %s (%s)", attempts[i], n, unix.Errno(v))
		}
	}
	if said, _ := run(t, h, Spec{without: without}, control); !strings.HasSuffix(said, " 0\n") {
		t.Errorf("control: %q", said)
	}
}

func calling(numbers ...int) (all []string) {
	for _, n := range numbers {
		all = append(all, fmt.Sprintf("call=%d", n))
	}
	return all
}

func TestTO41_Mounts(t *testing.T) {
	refusedAll(t, append([]string{"mount", "remount", "chroot", "unshare"}, calling(
		unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_PIVOT_ROOT, unix.SYS_UMOUNT2, unix.SYS_SETNS)...),
		"mount", calls|privileges|landlock, unix.EPERM)
}

func TestTO42_KernelKnobs(t *testing.T) {
	var all []string
	for _, p := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/proc/sys/kernel/modprobe", "/proc/self/mem", "/proc/self/environ",
		"/sys/fs/bpf", "/sys/fs/cgroup", "/proc/1/root", "/proc/kcore", "/etc/passwd", "/lib",
	} {
		all = append(all, "read="+p, "create="+p)
	}
	refusedAll(t, all, "read=/proc/sys/kernel/core_pattern", files|calls|landlock, unix.ENOENT, unix.EROFS, unix.EACCES)
}

func TestTO43_OtherProcesses(t *testing.T) {
	pid := os.Getpid()
	refusedAll(t, append([]string{fmt.Sprintf("signal=%d", pid), fmt.Sprintf("trace=%d", pid), "trace=1"}, calling(
		unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KCMP, unix.SYS_KILL, unix.SYS_TKILL)...),
		fmt.Sprintf("signal=%d", pid), processes|calls|privileges|landlock, unix.EPERM)
}

func TestTO44_KernelInterfaces(t *testing.T) {
	refusedAll(t, calling(
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_ADD_KEY, unix.SYS_KEYCTL,
		unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SYSLOG, unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_SWAPON,
		unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSINFO, unix.SYS_MEMFD_CREATE, 700),
		fmt.Sprintf("call=%d", unix.SYS_SCHED_YIELD), 0, unix.EPERM)
}

func TestTO45_Devices(t *testing.T) {
	var all []string
	for _, d := range []string{"mem", "kmem", "port", "kvm", "fuse", "loop-control", "loop0", "net/tun", "vhost-net", "vda", "sda", "nvidia0", "null", "urandom", "tty"} {
		all = append(all, "read=/dev/"+d)
	}
	refusedAll(t, append(all, "device"), "read=/dev/null", files|calls|landlock, unix.ENOENT, unix.EPERM)
}

func TestTO46_IoUring(t *testing.T) {
	refusedAll(t, calling(unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER), fmt.Sprintf("call=%d", unix.SYS_SCHED_YIELD), 0, unix.EPERM)
}
