package stage

import (
	"testing"

	"sallyport.dev/sallyport/port"
)

// FreePort is a HOST:PORT of the loopback interface for a program to listen on.
func FreePort(t testing.TB) string {
	t.Helper()
	addr, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
