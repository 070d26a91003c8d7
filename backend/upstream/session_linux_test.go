package upstream_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/child"
)

// A server without isolation is not in the operator's session, where a login
// would let it decide tickets.
func TestLocalHasASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	p, err := child.Launcher{}.Launch(t.Context(), upstream.LaunchSpec{Name: "s", Argv: []string{"/bin/sh", "-c", "cut -d' ' -f1,6 /proc/$$/stat; cat"}, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(time.Second) //nolint:errcheck // it may be gone already
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid, session int
	if _, err := fmt.Sscan(strings.TrimSpace(line), &pid, &session); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	own, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	if session == own || session != pid {
		t.Errorf("the server %d is in session %d; ours is %d", pid, session, own)
	}
}
