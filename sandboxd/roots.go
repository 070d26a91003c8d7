package sandboxd

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier"
)

// The folders of the host that a server may be shown are the operator's choice,
// within this list: whatever a gateway asks for, the following stay closed, and
// so does every folder that holds one of them.
var closedFolders = []string{"/proc", "/sys", "/dev", "/etc", "/root", "/boot", "/run"}

// hidden would take the image's own programs from the server.
var hidden = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", tier.WorkDir}

const maxRoots = 32

// openRoots checks a server's roots, resolves their links once, and says what
// its sandbox is to show.
func (c ServerConfig) openRoots(roots []*sandboxpb.Root, uid int) ([]gvisor.Folder, error) {
	if len(roots) > maxRoots {
		return nil, refused(sallyport.Invalid, "list fewer", "%d roots; at most %d are shown", len(roots), maxRoots)
	}
	var out []gvisor.Folder
	for _, r := range roots {
		real, err := c.checkRoot(r.GetPath())
		if err != nil {
			return nil, err
		}
		if err := reachable(r.GetPath(), real, uid, r.GetWritable()); err != nil {
			return nil, err
		}
		out = append(out, gvisor.Folder{Inside: r.GetPath(), Path: real, Writable: r.GetWritable()})
	}
	return out, nil
}

// checkRoot returns where a root really is, if it may be shown.
func (c ServerConfig) checkRoot(path string) (real string, err error) {
	bad := func(hint, why string) error {
		return refused(sallyport.Invalid, hint, "the root %.200q %s", path, why)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return "", bad("write an absolute path without . and ..", "is not a path of a folder")
	}
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", bad("make the folder, or correct the path", "cannot be opened: "+reason(err))
	}
	info, err := os.Stat(real)
	if err != nil || !info.IsDir() {
		return "", bad("name the folder that it is in", "is not a folder")
	}
	for _, p := range []string{path, real} {
		for _, h := range hidden {
			if p == h {
				return "", bad("name a folder in it", "would hide what the sandbox itself has there")
			}
		}
		for _, closed := range append(c.closed(), closedFolders...) {
			if within(p, closed) || within(closed, p) || sameOrAbove(info, closed) {
				return "", bad("choose a folder that neither holds nor is in "+closed, "is not shown to servers")
			}
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(real, &fs); err != nil {
		return "", bad("correct the path", "cannot be looked at: "+reason(err))
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC:
		return "", bad("choose a folder with files", "belongs to the kernel")
	}
	return real, nil
}

// closed are the gateway's folders and this host's own, without links.
func (c ServerConfig) closed() (out []string) {
	for _, p := range append([]string{c.State, filepath.Dir(c.Book), filepath.Dir(c.Init)}, c.Closed...) {
		if !filepath.IsAbs(p) {
			continue
		}
		out = append(out, filepath.Clean(p)) // also where it is not there yet
		if real, err := filepath.EvalSymlinks(p); err == nil {
			out = append(out, real)
		}
	}
	return out
}

// within tells whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// sameOrAbove finds a closed folder, or one above it, under another name, as a
// bind mount gives.
func sameOrAbove(info os.FileInfo, closed string) bool {
	for p := closed; len(p) > 1; p = filepath.Dir(p) {
		if other, err := os.Stat(p); err == nil && os.SameFile(info, other) {
			return true
		}
	}
	return false
}

// reachable says early what the server would run into: it is a user of its own,
// to whom the folder must be open.
func reachable(path, real string, uid int, writable bool) error {
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return err
	}
	want, word := uint32(5), "read"
	if writable {
		want, word = 7, "written"
	}
	switch {
	case int(st.Uid) == uid:
		want <<= 6
	case int(st.Gid) == uid:
		want <<= 3
	}
	if st.Mode&want == want {
		return nil
	}
	return refused(sallyport.Invalid, "open it to others (chmod o+rX"+map[bool]string{true: "w"}[writable]+"), or give it to the server's own user (chown)",
		"the root %.200q cannot be %s by the server, which runs as uid %d", path, word, uid)
}

func reason(err error) string {
	if e, ok := err.(*os.PathError); ok { //nolint:errorlint // what EvalSymlinks and Stat return
		return e.Err.Error()
	}
	return err.Error()
}
