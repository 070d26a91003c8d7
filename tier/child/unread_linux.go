package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// Unread is how many bytes lie in a pipe, written and not read, or -1 if that is not
// known.
func Unread(pipe *os.File) int {
	n := -1
	conn, err := pipe.SyscallConn()
	if err != nil {
		return n
	}
	_ = conn.Control(func(fd uintptr) {
		if got, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			n = got
		}
	})
	return n
}
