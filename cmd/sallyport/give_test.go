package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const testUID = 64551 // nobody's

// dataFolder is what init leaves, as far as give looks at it.
func dataFolder(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to another user")
	}
	data := filepath.Join(t.TempDir(), "data")
	for _, d := range []string{"keys/many", "agents", "policies", "tools"} {
		if err := os.MkdirAll(filepath.Join(data, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"sallyport.yaml", "sallyport.db", "owner", "keys/a", "agents/a", "policies/a.cedar", "tools/a.yaml"} {
		if err := os.WriteFile(filepath.Join(data, f), []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for dir := filepath.Dir(data); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) { // so that the other user can get there
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func ownerAndMode(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
}

// as runs a shell command as the gateway's user.
func as(t *testing.T, command string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	return cmd.Run()
}

func TestGive(t *testing.T) {
	data := dataFolder(t)
	if err := give(data, 0, testUID, testUID); err != nil {
		t.Fatal(err)
	}
	g := fmt.Sprint(testUID)
	for name, want := range map[string]string{
		".": "0:" + g + " 1771", "keys": g + ":" + g + " 700", "keys/a": g + ":" + g + " 600", "sallyport.db": g + ":" + g + " 600",
		"agents": "0:0 700", "agents/a": "0:0 600", "owner": "0:" + g + " 640",
		"policies": "0:" + g + " 750", "policies/a.cedar": "0:" + g + " 640", "sallyport.yaml": "0:" + g + " 640",
	} {
		if got := ownerAndMode(t, filepath.Join(data, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for command, works := range map[string]bool{
		"cat policies/a.cedar sallyport.yaml": true, "touch new && rm new": true, "mv keys keys2 && mv keys2 keys": true,
		"mv policies p2": false, "rm -f sallyport.yaml": false, "echo > policies/b.cedar": false, "cat agents/a": false, "mv agents a2": false,
	} {
		if err := as(t, "cd "+data+" && "+command); (err == nil) != works {
			t.Errorf("the gateway's user: %s: %v; want it to work: %v", command, err, works)
		}
	}
}

func TestGive_RefusesLinks(t *testing.T) {
	for name, plant := range map[string]func(outside, inside string) error{"symbolic": os.Symlink, "hard": os.Link} {
		for _, place := range []string{"keys/x", "policies/x.cedar", "x"} {
			data := dataFolder(t)
			outside := filepath.Join(filepath.Dir(data), "outside")
			if err := os.WriteFile(outside, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := plant(outside, filepath.Join(data, place)); err != nil {
				t.Fatal(err)
			}
			if err := give(data, 0, testUID, testUID); err == nil || !strings.Contains(err.Error(), "link") {
				t.Errorf("%s link at %s: %v; want it refused", name, place, err)
			}
			if got := ownerAndMode(t, outside); got != "0:0 600" {
				t.Errorf("%s link at %s: the file outside is now %s", name, place, got)
			}
		}
	}
}

// The gateway's user puts a link in the place of a folder while root walks it.
func TestGive_FolderSwappedMeanwhile(t *testing.T) {
	data := dataFolder(t)
	many, outside := filepath.Join(data, "keys/many"), filepath.Join(filepath.Dir(data), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	const files = 3000
	for i := range files {
		for _, dir := range []string{many, outside} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	swapped := make(chan error, 1)
	go func() {
		for { // until root has come to the folder
			var st unix.Stat_t
			if err := unix.Stat(many, &st); err != nil || st.Uid == testUID {
				break
			}
		}
		err := os.Rename(many, many+"2")
		if err == nil {
			err = os.Symlink(outside, many)
		}
		swapped <- err
	}()
	_ = give(data, 0, testUID, testUID) // whether it notices is not the point
	if err := <-swapped; err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if got := ownerAndMode(t, filepath.Join(outside, fmt.Sprint(i))); got != "0:0 600" {
			t.Fatalf("root gave away a file outside the data folder: %s", got)
		}
	}
}

func TestLock_FollowsNoLink(t *testing.T) {
	data, outside := t.TempDir(), filepath.Join(t.TempDir(), "made")
	if err := os.Symlink(outside, filepath.Join(data, "serve.lock")); err != nil {
		t.Fatal(err)
	}
	if f, err := lock(data); err == nil {
		f.Close()
		t.Error("a lock file that is a link was taken")
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a file outside the data folder was made")
	}
}
