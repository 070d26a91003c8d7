package sandboxd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

const rootsUID = 64888

func TestRootsThatStayClosed(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	make := func(parts ...string) string {
		dir := filepath.Join(append([]string{top}, parts...)...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link := func(to, name string) string {
		from := filepath.Join(top, name)
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
		return from
	}
	open, data := make("open"), make("host", "data")
	c := ServerConfig{State: make("state"), Book: filepath.Join(make("book"), "uids.json"), Init: filepath.Join(make("bin"), "sallyport-init"), Closed: []string{data, filepath.Join(top, "not-there-yet")}}
	file := filepath.Join(open, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"the data folder": data, "in the data folder": make("host", "data", "keys"), "above the data folder": filepath.Dir(data),
		"a link to it": link(data, "l1"), "a link to what holds it": link(filepath.Dir(data), "l2"), "a link into it": link(make("host", "data", "keys"), "l3"),
		"all": "/", "a link to all": link("/", "l4"), "/proc": "/proc", "of a process": "/proc/1", "/sys": "/sys/kernel", "/etc": "/etc", "in /etc": "/etc/ssl",
		"/root": "/root", "/dev": "/dev/shm", "/run": "/run", "a link to /run": "/var/run", "/boot": "/boot", "above /root by ..": "/root/..",
		"its own state": c.State, "its own programs": filepath.Dir(c.Init), "the book": filepath.Dir(c.Book),
		"what the image has": "/usr", "and through a link": "/bin", "a file": file, "nothing": filepath.Join(top, "no"), "relative": "open", "not clean": open + "/../open", "empty": "",
		"closed before it is there": make("not-there-yet"),
	} {
		if got, err := c.checkRoot(path); err == nil {
			t.Errorf("%s: %q is shown, as %s", name, path, got)
		}
	}
	for name, path := range map[string]string{"a folder": open, "a link to it": link(open, "l5"), "beside the data folder": make("host", "data-of-others")} {
		if _, err := c.checkRoot(path); err != nil {
			t.Errorf("control: %s: %v", name, err)
		}
	}
	if got, err := c.checkRoot(filepath.Join(top, "l5")); err != nil || got != open {
		t.Errorf("a link is not resolved: %q %v", got, err)
	}
}

// A closed folder is the same folder under every name.
func TestRootThatIsMountedElsewhere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting needs root")
	}
	data, alias := t.TempDir(), t.TempDir()
	c := ServerConfig{State: t.TempDir(), Closed: []string{data}}.withDefaults()
	if _, err := c.checkRoot(alias); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := unix.Mount(data, alias, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("skipped: no mounts here: %v", err)
	}
	defer unix.Unmount(alias, unix.MNT_DETACH) //nolint:errcheck // the folder is temporary
	if _, err := c.checkRoot(alias); err == nil {
		t.Error("the data folder is shown by its other name")
	}
}

func TestRootsAreOpenToTheServersUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: giving folders away needs root")
	}
	dir := t.TempDir()
	c := ServerConfig{State: t.TempDir()}.withDefaults()
	try := func(writable bool) error {
		_, err := c.openRoots([]*sandboxpb.Root{{Path: dir, Writable: writable}}, rootsUID)
		return err
	}
	for _, step := range []struct {
		owner      int
		mode       os.FileMode
		read, both bool
	}{{0, 0o755, true, false}, {0, 0o700, false, false}, {0, 0o777, true, true}, {rootsUID, 0o700, true, true}, {rootsUID, 0o500, true, false}, {rootsUID, 0o077, false, false}} {
		if err := os.Chown(dir, step.owner, step.owner); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, step.mode); err != nil {
			t.Fatal(err)
		}
		for writable, want := range map[bool]bool{false: step.read, true: step.both} {
			err := try(writable)
			if (err == nil) != want {
				t.Errorf("owner %d, mode %o, writable %t: %v", step.owner, step.mode, writable, err)
			}
			if err != nil && !strings.Contains(err.Error(), "runs as uid 64888") {
				t.Errorf("it does not say who the server is: %v", err)
			}
		}
	}
}
