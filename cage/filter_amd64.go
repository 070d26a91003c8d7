package cage

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// olderCalls are those of which this processor has two.
var olderCalls = []uint32{
	unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_WAIT,
	unix.SYS_EPOLL_CREATE, unix.SYS_PIPE, unix.SYS_DUP2, unix.SYS_ACCEPT, unix.SYS_EVENTFD, unix.SYS_ARCH_PRCTL, unix.SYS_TIME, unix.SYS_GETRLIMIT, unix.SYS_PAUSE,
}
