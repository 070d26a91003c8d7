package main

import "golang.org/x/sys/unix"

// makesTasks is true of clone and clone3.
const makesTasks = "id == 220 || id == 435"

// isNoKey is true of all but pkey_alloc, which finds no space where a processor has no
// keys for memory: Node.js asks for one as it starts.
const isNoKey = "id != 289"

const auditArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are those that only this processor has.
var refusedHere []uint32
