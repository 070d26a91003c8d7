package main

import "golang.org/x/sys/unix"

// makesTasks is true of clone, fork, vfork and clone3.
const makesTasks = "id == 56 || id == 57 || id == 58 || id == 435"

// isNoKey is true of all but pkey_alloc, which finds no space where a processor has no
// keys for memory: Node.js asks for one as it starts.
const isNoKey = "id != 330"

const auditArch = unix.AUDIT_ARCH_X86_64

// refusedHere are those that only this processor has.
var refusedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS_SYSFS}
