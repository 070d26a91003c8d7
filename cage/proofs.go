package cage

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// rows are the proofs. Attempts that could harm the host are made only where
// another protection keeps them from it.
func (b *bait) rows(landlockVersion int) []proof {
	connect := fmt.Sprintf("connect=%d", b.listener.Addr().(*net.TCPAddr).Port)
	rows := []proof{
		{name: "network", what: network, alone: calls | landlock, attempts: []attempt{
			{try: connect, denied: failing}, {try: "abstract=" + b.name, denied: failing},
		}},
		{name: "processes", what: processes, alone: calls | landlock | privileges, attempts: []attempt{
			{try: fmt.Sprintf("signal=%d", os.Getpid()), denied: with(unix.ESRCH, unix.EPERM)},
		}},
		{name: "files", what: files, alone: calls | landlock | privileges, attempts: []attempt{
			{try: "read=" + b.canary, denied: failing}, {try: "create=" + b.fresh, denied: failing},
			{try: "entries", denied: func(n int) bool { return n == 0 }},
		}},
		{name: "host name", what: hostNames, alone: calls | landlock, attempts: []attempt{
			{try: "name=" + nodeName(), denied: failing},
		}},
		{name: "privileges", what: privileges, alone: calls | landlock, attempts: []attempt{
			{try: "uid", denied: failing}, {try: "capabilities", denied: func(n int) bool { return n == 0 }},
			{try: "rename", denied: with(unix.EPERM)}, {try: "chroot", denied: with(unix.EPERM)},
			{try: "mount", denied: with(unix.EPERM)},
		}},
		{name: "no new privileges", what: gaining, alone: calls | landlock, attempts: []attempt{
			{try: "gain", denied: func(n int) bool { return n == 1 }},
		}},
		{name: "limits", what: limits, alone: calls | landlock, attempts: []attempt{
			{try: fmt.Sprintf("limit=%d", unix.RLIMIT_CORE), denied: func(n int) bool { return n == 0 }},
			{try: fmt.Sprintf("limit=%d", unix.RLIMIT_CPU), denied: func(n int) bool { return n == 10 }},
			{try: "write=1", denied: with(unix.EFBIG)},
			{try: fmt.Sprintf("memory=%d", 2*proveData>>20), denied: with(unix.ENOMEM)},
			{try: fmt.Sprintf("fork=%d", 2*proveThreads), denied: func(n int) bool { return n < proveThreads }},
			{try: "open", denied: func(n int) bool { return n < proveOpen }},
		}},
		{name: "system calls", what: calls, alone: landlock | privileges, attempts: callAttempts()},
		{name: "descriptors", what: descriptors, alone: calls | landlock, attempts: []attempt{
			{try: "files", denied: func(n int) bool { return n == 3+1 }},
		}},
		b.landlockRow(landlockVersion, connect),
	}
	if b.key != 0 {
		rows = append(rows, proof{name: "IPC", what: ipc, alone: calls | landlock | privileges, attempts: []attempt{{try: fmt.Sprintf("shared=%d", b.key), denied: failing}}})
	}
	return rows
}

// callAttempts are calls that the filter alone denies to root: with EPERM, whatever their arguments.
func callAttempts() []attempt {
	denied := with(unix.EPERM)
	all := []attempt{{try: "unix", denied: denied}, {try: fmt.Sprintf("call=%d", unix.SYS_SYSINFO), denied: denied}, {try: "unshare", denied: denied}, {try: "fork=1", denied: func(n int) bool { return n == 0 }}}
	for _, family := range []int{unix.AF_INET, unix.AF_NETLINK, unix.AF_VSOCK} {
		all = append(all, attempt{try: fmt.Sprintf("family=%d", family), denied: denied, always: true}) // not every kernel has each
	}
	for _, n := range []int{
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_USERFAULTFD,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SYSLOG, unix.SYS_SETTIMEOFDAY, unix.SYS_SETNS,
		unix.SYS_PROCESS_VM_READV, unix.SYS_PIDFD_GETFD, unix.SYS_MEMFD_CREATE, unix.SYS_FSOPEN, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_SWAPON,
		unix.SYS_MLOCKALL, unix.SYS_SHMGET, unix.SYS_INOTIFY_INIT1, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_SETRESUID, unix.SYS_PERSONALITY,
	} {
		all = append(all, attempt{try: fmt.Sprintf("call=%d", n), denied: denied, always: true})
	}
	return all
}

// landlockRow proves what landlock denies beside the root: writing, and the network.
func (b *bait) landlockRow(version int, connect string) proof {
	row := proof{name: "landlock", what: landlock, alone: calls | files | privileges | network, optional: true, attempts: []attempt{
		{try: "create=" + b.fresh, denied: failing},
	}}
	if version >= 4 {
		row.attempts = append(row.attempts, attempt{try: connect, denied: failing})
	}
	if version == 0 {
		row.absent = "this kernel has none; the empty read-only root and the network namespace deny the same"
	}
	return row
}

func nodeName() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it has no way to fail
	return unix.ByteSliceToString(u.Nodename[:])
}
