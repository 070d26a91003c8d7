package image

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
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

// baseLinks are the links that maintainer scripts make. Each is made only where
// what it leads to is in the image; "" in needs means always.
var baseLinks = []struct{ path, target, needs string }{
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
	for _, l := range baseLinks {
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
