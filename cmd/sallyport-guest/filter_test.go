package main

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What the filter says of calls: the kernel's numbers, in the order of this processor's
// bytes, are put before it in that of a network, which is what the machine of this test reads.
func TestFilter(t *testing.T) {
	var raw []bpf.RawInstruction
	for _, f := range filter() {
		raw = append(raw, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K})
	}
	prog, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("it is no program")
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	const allow, noCall, noFamily = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS), unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	for _, c := range []struct {
		what             string
		arch, call, arg0 uint32
		want             uint32
	}{
		{"a call that programs need", auditArch, unix.SYS_READ, 0, allow},
		{"a task of a new kind", auditArch, unix.SYS_CLONE3, 0, allow},
		{"a call that they do not", auditArch, unix.SYS_IO_URING_SETUP, 0, noCall},
		{"the first that is refused", auditArch, refused[0], 0, noCall},
		{"the last that is refused", auditArch, refused[len(refused)-1], 0, noCall},
		{"another processor's", auditArch + 1, unix.SYS_READ, 0, noCall},
		{"another ABI's", auditArch, unix.SYS_READ | otherABI, 0, noCall},
		{"a number below zero", auditArch, 1<<32 - 1, 0, noCall},
		{"a socket", auditArch, unix.SYS_SOCKET, unix.AF_INET, allow},
		{"a socket of another family", auditArch, unix.SYS_SOCKET, unix.AF_VSOCK, noFamily},
		{"a pair", auditArch, unix.SYS_SOCKETPAIR, unix.AF_UNIX, allow},
		{"a pair of another family", auditArch, unix.SYS_SOCKETPAIR, unix.AF_TIPC, noFamily},
	} {
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data, c.call)
		binary.BigEndian.PutUint32(data[4:], c.arch)
		binary.BigEndian.PutUint32(data[16:], c.arg0)
		got, err := vm.Run(data)
		if err != nil || uint32(got) != c.want {
			t.Errorf("%s: %#x, %v; want %#x", c.what, uint32(got), err, c.want)
		}
	}
}
