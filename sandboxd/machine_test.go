package sandboxd

import (
	"os"
	"path/filepath"
	"testing"
)

// Servers of different gateways on one machine are strangers to each other, too.
func TestTO40_UIDsAcrossGateways(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives folders to other users")
	}
	dir := t.TempDir()
	config := func(state string) ServerConfig {
		return ServerConfig{State: filepath.Join(dir, state), Book: filepath.Join(dir, "uids.json"), FirstUID: 64900, UIDs: 3}.withDefaults()
	}
	owners := map[int]string{}
	take := func(state, name string) (int, error) {
		t.Helper()
		uid, home, err := config(state).identity(name)
		if err == nil && owners[uid] != "" && owners[uid] != home {
			t.Errorf("%s and %s share uid %d", owners[uid], home, uid)
		}
		owners[uid] = home
		return uid, err
	}
	first, err := take("a", "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"b", "c"} {
		if _, err := take(s, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := take("a", "orders"); err != nil || again != first {
		t.Errorf("uid %d, then %d (%v); want the same each time", first, again, err)
	}
	if _, err := take("d", "orders"); err == nil {
		t.Error("a fourth home got one of three uids")
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	delete(owners, 64901)
	if uid, err := take("d", "orders"); err != nil || uid != 64901 {
		t.Errorf("uid %d, %v; want 64901, which its home gave back", uid, err)
	}
}
