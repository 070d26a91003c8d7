package cage

import (
	"context"
	"encoding/binary"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/cage/order"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

func runAlone(path string) ([]byte, error) { return exec.Command(path).CombinedOutput() }

// judge evaluates the filter as the kernel would.
func judge(t *testing.T, prog []byte, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.NativeEndian.PutUint32(data[0:], nr)
	binary.NativeEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.NativeEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(prog)/8; pc++ {
		in := prog[8*pc:]
		code, yes, no, k := binary.NativeEndian.Uint16(in), int(in[2]), int(in[3]), binary.NativeEndian.Uint32(in[4:])
		jump := func(cond bool) {
			if cond {
				pc += yes
			} else {
				pc += no
			}
		}
		switch code {
		case bpfLoad:
			acc = binary.NativeEndian.Uint32(data[k:])
		case bpfEqual:
			jump(acc == k)
		case bpfAtMost:
			jump(acc > k)
		case bpfAnd:
			acc &= k
		case bpfReturn:
			return k
		default:
			t.Fatalf("instruction %d has the code %#x", pc, code)
		}
	}
	t.Fatal("the program has no end")
	return 0
}

const (
	refusal1 = resultErrno | uint32(unix.EPERM)
	refusal2 = resultErrno | uint32(unix.ENOSYS)
)

func TestTO44_FilterIsAList(t *testing.T) {
	for _, connect := range []bool{false, true} {
		prog := filterProgram(connect)
		allowed := slices.Concat(plain, olderCalls)
		conditional := []uint32{unix.SYS_CLONE3}
		for _, r := range slices.Concat(bounded, connects) {
			conditional = append(conditional, r.call)
		}
		for nr := range uint32(1024) {
			got := judge(t, prog, auditArch, nr, 1<<31, 1<<31, 1<<31)
			switch {
			case slices.Contains(allowed, nr):
				if got != resultAllow {
					t.Errorf("call %d: %#x", nr, got)
				}
			case !slices.Contains(conditional, nr) && got != refusal1:
				t.Errorf("call %d, which is on no list: %#x", nr, got)
			}
		}
		for _, c := range []struct {
			nr   uint32
			args []uint64
			want uint32
		}{
			{unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_FS}, resultAllow},
			{unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, refusal1},
			{unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, refusal1},
			{unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, refusal1},
			{unix.SYS_CLONE3, nil, refusal2},
			{unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, resultAllow},
			{unix.SYS_PRCTL, []uint64{unix.PR_SET_DUMPABLE}, refusal1},
			{unix.SYS_IOCTL, []uint64{3, fionread}, resultAllow},
			{unix.SYS_IOCTL, []uint64{3, unix.TIOCSTI}, refusal1},
			{unix.SYS_EXECVEAT, []uint64{order.Kept}, resultAllow},
			{unix.SYS_EXECVEAT, []uint64{3}, refusal1},
			{unix.SYS_EXECVE, nil, refusal1},
			{unix.SYS_SOCKET, []uint64{unix.AF_INET}, refusal1},
			{unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, refusal1},
			{unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, map[bool]uint32{true: resultAllow, false: refusal1}[connect]},
			{unix.SYS_CONNECT, nil, map[bool]uint32{true: resultAllow, false: refusal1}[connect]},
			{unix.SYS_BIND, nil, refusal1},
			{unix.SYS_READ | otherABI, nil, resultKill},
		} {
			if got := judge(t, prog, auditArch, c.nr, c.args...); got != c.want {
				t.Errorf("call %d %v (connect %v): %#x, want %#x", c.nr, c.args, connect, got, c.want)
			}
		}
		if got := judge(t, prog, unix.AUDIT_ARCH_I386, 3); got != resultKill {
			t.Errorf("a call of 32 bits: %#x", got)
		}
	}
}
