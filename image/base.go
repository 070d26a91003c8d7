package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"strings"
)

// pruned tells which paths of packages no sandbox needs.
func pruned(p string) bool {
	for _, prefix := range []string{
		"usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/lintian/", "usr/share/bug/",
		"usr/share/locale/", "usr/share/bash-completion/", "usr/share/zsh/", "usr/share/menu/",
		"usr/share/pixmaps/", "usr/share/icons/", "usr/share/applications/", "usr/share/gitweb/",
		"usr/share/perl5/Debian/", "usr/share/debconf/", "usr/share/apport/", "usr/share/gdb/",
		"usr/share/zoneinfo/right/", "usr/share/zoneinfo/posix/",
		"usr/lib/systemd/", "etc/init.d/", "etc/cron.daily/", "etc/cron.d/", "etc/logrotate.d/", "etc/apt/",
		"etc/sudoers.d/", "etc/pam.d/", "etc/default/",
	} {
		if strings.HasPrefix(p, prefix) {
			return true
		}
	}
	return strings.Contains(p, "/__pycache__/")
}

// mountPoints are the empty folders that a sandbox mounts over, or writes to
// once something is mounted there.
var mountPoints = []struct {
	path string
	perm fs.FileMode
	uid  int
}{
	{"dev", 0o755, 0}, {"dev/shm", 0o777, 0}, {"proc", 0o555, 0}, {"sys", 0o555, 0},
	{"run", 0o755, 0}, {"run/sallyport", 0o755, 0}, {"run/lock", 0o755, 0},
	{"tmp", 0o777, 0}, {"var/tmp", 0o777, 0}, {"work", 0o755, AgentUID},
	{"home", 0o755, 0}, {"home/agent", 0o755, AgentUID}, {"root", 0o700, 0},
	{"mnt", 0o755, 0}, {"opt", 0o755, 0}, {"srv", 0o755, 0}, {"var/log", 0o755, 0}, {"var/lib", 0o755, 0},
}

// AgentUID is the user and group that programs run as inside an image.
const AgentUID = 1000

var baseFiles = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n" +
		"agent:x:1000:1000:agent:/home/agent:/bin/bash\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"etc/group":    "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
	"etc/hosts":    "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost sandbox\n",
	"etc/hostname": "sandbox\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n" +
		"networks: files\nprotocols: files\nservices: files\n",
	"etc/resolv.conf": "", // a place to mount over
	"etc/shells":      "/bin/sh\n/bin/bash\n",
	"etc/fstab":       "",
}

type baseLink struct{ path, target, needs string }

// baseLinks are the links that maintainer scripts make. Each is made only where
// what it leads to is in the image; "" in needs means always.
var baseLinks = []baseLink{
	{"bin", "usr/bin", ""}, {"sbin", "usr/sbin", ""}, {"lib", "usr/lib", ""}, {"lib64", "usr/lib64", "usr/lib64"},
	{"usr/bin/sh", "dash", "usr/bin/dash"},
	{"usr/bin/awk", "mawk", "usr/bin/mawk"},
	{"usr/bin/which", "which.debianutils", "usr/bin/which.debianutils"},
	{"usr/bin/python", "python3", "usr/bin/python3"},
	{"usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt"},
	{"etc/mtab", "/proc/self/mounts", ""},
	{"etc/localtime", "/usr/share/zoneinfo/Etc/UTC", "usr/share/zoneinfo/Etc/UTC"},
	{"var/run", "/run", ""}, {"var/lock", "/run/lock", ""},
}

// multiarch is Debian's name of this machine's folder of libraries.
var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]

// alternatives are the links by which Debian chooses one of several libraries.
func alternatives() (links []baseLink) {
	for _, name := range []string{"libopenblas.so.0", "libblas.so.3", "liblapack.so.3"} {
		dir, target := "usr/lib/"+multiarch+"/", "openblas-pthread/"+name
		links = append(links, baseLink{dir + name, target, dir + target})
	}
	return links
}

// complete makes what no package ships and every sandbox needs, over whatever
// the packages may have put there.
func (t *tree) complete() error {
	for _, m := range mountPoints {
		n, err := t.dir(m.path)
		if err != nil {
			return fmt.Errorf("/%s: %w", m.path, err)
		}
		n.mode, n.uid, n.gid = fs.ModeDir|m.perm, m.uid, m.uid
		if m.perm == 0o777 {
			n.mode |= fs.ModeSticky
		}
	}
	for p, text := range baseFiles {
		if err := t.replace(p, text); err != nil {
			return err
		}
	}
	if err := t.addCertificates(); err != nil {
		return err
	}
	for _, l := range append(alternatives(), baseLinks...) {
		if l.needs != "" && t.get(l.needs) == nil {
			continue
		}
		if err := t.remove(l.path); err != nil {
			return err
		}
		if err := t.addSymlink(l.path, l.target); err != nil {
			return fmt.Errorf("/%s: %w", l.path, err)
		}
	}
	return nil
}

// addCertificates concatenates the certificate authorities into one bundle.
func (t *tree) addCertificates() error {
	const from, to = "usr/share/ca-certificates", "etc/ssl/certs/ca-certificates.crt"
	authorities := t.get(from)
	if authorities == nil {
		return nil
	}
	var bundle bytes.Buffer
	err := walk(from, authorities, func(p string, n *node) error {
		if !n.mode.IsRegular() || !strings.HasSuffix(p, ".crt") {
			return nil
		}
		_, err := bundle.ReadFrom(t.contents(n))
		if b := bundle.Bytes(); len(b) > 0 && b[len(b)-1] != '\n' {
			bundle.WriteByte('\n')
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.replace(to, bundle.String())
}

// replace puts a file where nothing, or another file, is.
func (t *tree) replace(p, text string) error {
	if err := t.remove(p); err != nil {
		return err
	}
	off, err := t.store(strings.NewReader(text), int64(len(text)))
	if err != nil {
		return err
	}
	if err := t.add(p, &node{mode: 0o644, off: off, size: int64(len(text))}); err != nil {
		return fmt.Errorf("/%s: %w", p, err)
	}
	return nil
}

// remove takes a file, a link or an empty folder away, if there is one.
func (t *tree) remove(p string) error {
	n := t.get(p)
	if n == nil {
		return nil
	}
	if len(n.children) > 0 {
		return fmt.Errorf("/%s: a package put a folder there", p)
	}
	delete(t.get(parentOf(p)).children, path.Base(p))
	return nil
}

func parentOf(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
}

// needed are the folders that a sandbox mounts over; srv is that of its way out.
var needed = []string{"dev", "proc", "sys", "tmp", "run", "home", "root", "srv"}

// adapt makes what every sandbox needs in an image that was not made for it:
// folders to mount over, and a name for the user that programs run as.
func (t *tree) adapt() error {
	for _, p := range needed {
		if n := t.root.children[p]; n == nil || !n.mode.IsDir() {
			delete(t.root.children, p)
			if err := t.addDir(p, 0o755); err != nil {
				return err
			}
		}
	}
	if n := t.root.children["etc"]; n != nil && !n.mode.IsDir() {
		return errors.New("/etc is not a folder")
	}
	for _, p := range []string{"etc/passwd", "etc/group", "etc/hosts", "etc/nsswitch.conf", "etc/resolv.conf"} {
		n := t.get(p)
		text := baseFiles[p]
		switch {
		case n != nil && n.mode.IsDir():
			return fmt.Errorf("/%s is a folder", p)
		case n != nil && n.mode.IsRegular() && n.size > 0:
			if p != "etc/passwd" && p != "etc/group" || n.size > 1<<20 {
				continue
			}
			own, err := io.ReadAll(t.contents(n))
			if err != nil {
				return err
			}
			if text = withAgent(string(own), text); text == string(own) {
				continue
			}
		}
		if err := t.replace(p, text); err != nil {
			return err
		}
	}
	return nil
}

// withAgent adds the agent's line of base to a passwd or group file that has no
// line of that number.
func withAgent(own, base string) string {
	for line := range strings.Lines(own) {
		if f := strings.SplitN(line, ":", 4); len(f) > 3 && f[2] == "1000" {
			return own
		}
	}
	for line := range strings.Lines(base) {
		if strings.HasPrefix(line, "agent:") {
			return strings.TrimSuffix(own, "\n") + "\n" + line
		}
	}
	return own
}
