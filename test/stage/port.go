package stage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreePort is a HOST:PORT of the loopback interface for a program to listen on.
func FreePort(t testing.TB) string {
	t.Helper()
	addr, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Port is FreePort. The port is drawn from below those that Linux gives to
// outgoing connections and to listeners on port 0 (ip_local_port_range), so
// that none of them takes it before the program does.
func Port() (string, error) {
	for range 50 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no free port between 12000 and 32000")
}
