package port

import (
	"net"
	"strconv"
	"testing"
)

// Ports are free, are none that Linux gives to others, and are given to nobody twice.
func TestFree(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		addr, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := net.SplitHostPort(addr)
		if n, err := strconv.Atoi(text); err != nil || n < lowest || n >= highest || seen[addr] || draw(n) {
			t.Fatalf("%s, after %v", addr, seen)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
