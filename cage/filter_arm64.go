package cage

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// olderCalls are those of which this processor has two.
var olderCalls = []uint32{unix.SYS_ACCEPT, unix.SYS_GETRLIMIT}
