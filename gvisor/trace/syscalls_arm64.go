package trace

import "golang.org/x/sys/unix"

// forkCalls make tasks: EAGAIN from one means that the process limit was hit.
var forkCalls = []int{unix.SYS_CLONE, unix.SYS_CLONE3}

// spaceCalls take space: ENOSPC from one means that the disk limit was hit.
var spaceCalls = []int{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_TRUNCATE, unix.SYS_FTRUNCATE,
	unix.SYS_FALLOCATE, unix.SYS_SENDFILE, unix.SYS_SPLICE, unix.SYS_COPY_FILE_RANGE, unix.SYS_BIND,
}
