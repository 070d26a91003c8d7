// Package port finds ports of the loopback interface for programs that are started in a moment.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"

	"golang.org/x/sys/unix"
)

const lowest, highest = 12000, 32000

// Free is a HOST:PORT on which nothing listens. The port is drawn from below those that
// Linux gives to outgoing connections and to listeners on port 0 (ip_local_port_range,
// where nobody has set it lower), so that none of them takes it before the program does; nor does anybody else who asks
// here, for as long as this process lives.
func Free() (string, error) {
	for range 50 {
		n := lowest + rand.IntN(highest-lowest) //nolint:gosec // it protects nothing
		if !draw(n) {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", n)
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("no free port between %d and %d", lowest, highest)
}

// draw takes a port, and reports whether nobody has. A socket that only stands for it
// ends with the process.
func draw(n int) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@sallyport-port-%d", n)})
	if err != nil {
		err = errors.Join(err, unix.Close(fd))
	}
	return err == nil
}
