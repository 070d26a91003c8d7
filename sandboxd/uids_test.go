package sandboxd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
)

// Each name keeps its own uid and home; a range that is used up is an error.
func TestIdentity(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: giving homes away needs root")
	}
	c := ServerConfig{State: t.TempDir(), FirstUID: 64600, UIDs: 2}
	for _, tt := range []struct {
		name string
		uid  int
	}{{"a", 64600}, {"b", 64601}, {"a", 64600}} {
		uid, home, err := c.identity(tt.name)
		if err != nil || uid != tt.uid {
			t.Fatalf("%s: %d, %v; want %d", tt.name, uid, err, tt.uid)
		}
		var st unix.Stat_t
		if err := unix.Stat(home, &st); err != nil || int(st.Uid) != uid || st.Mode&0o777 != 0o700 {
			t.Errorf("%s: home of %d with mode %o, %v", home, st.Uid, st.Mode&0o777, err)
		}
	}
	if _, _, err := c.identity("c"); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("a third name of two: %v", err)
	}
	for _, bad := range []string{"", "..", ".uids.json", "a/b", "-x", strings.Repeat("x", 65), "a\x00"} {
		if _, _, err := c.identity(bad); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// A home that became a link must not be given away.
	home := filepath.Join(c.State, "servers", "a")
	if err := os.Remove(home); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", home); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.identity("a"); err == nil {
		t.Error("a link was accepted as home")
	}
}
