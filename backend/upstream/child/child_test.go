package child

import (
	"bufio"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
)

// What a program had not read when it was stopped is known, where it had closed its input.
func TestUnreadOfAClosedInput(t *testing.T) {
	p, err := Launcher{}.Launch(t.Context(), upstream.LaunchSpec{Name: "s", Argv: []string{"/bin/sh", "-c", "read x; exec <&-; echo $x; sleep 1000"}, Env: []string{"PATH=/bin:/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin().Write([]byte("first\nsecond\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = p.Stop(3 * time.Second)
	u, ok := p.(interface{ Unread() int })
	if !ok || u.Unread() != len("second\n") {
		t.Errorf("%v, %d bytes are unread", ok, u.Unread())
	}
}
