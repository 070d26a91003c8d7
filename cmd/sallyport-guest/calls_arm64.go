package main

import "golang.org/x/sys/unix"

// makesTasks is true of clone and clone3.
const makesTasks = "id == 220 || id == 435"

const auditArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are those that only this processor has.
var refusedHere []uint32
