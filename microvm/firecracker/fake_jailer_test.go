package firecracker

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

var idForm = regexp.MustCompile(`^[a-zA-Z0-9-]{1,64}$`)

func fakeJailer() error {
	f := flag.NewFlagSet("jailer", flag.ContinueOnError)
	id, program := f.String("id", "", ""), f.String("exec-file", "", "")
	uid, gid := f.Uint("uid", 0, ""), f.Uint("gid", 0, "")
	base, netns := f.String("chroot-base-dir", "/srv/jailer", ""), f.String("netns", "", "")
	version, parent := f.String("cgroup-version", "1", ""), f.String("parent-cgroup", "", "")
	limit := f.String("resource-limit", "", "")
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	mode := wrong(filepath.Dir(os.Args[0]))
	switch {
	case mode == "jailer fails":
		return fmt.Errorf("as it was told")
	case !idForm.MatchString(*id) || *program == "" || *uid == 0 || *gid == 0 || *netns == "" || *version != "2" || *parent == "" || *limit == "" || os.Getpid() != 1:
		return fmt.Errorf("arguments %q", os.Args[1:])
	case len(os.Environ()) != 0:
		return fmt.Errorf("environment %q", os.Environ())
	}
	if all, err := net.Interfaces(); err != nil || len(all) != 1 || all[0].Name != "lo" || all[0].Flags&net.FlagUp != 0 {
		return fmt.Errorf("the network has %v, %v", all, err)
	}
	root := filepath.Join(*base, filepath.Base(*program), *id, "root")
	if err := os.MkdirAll(filepath.Join(root, "run"), 0o700); err != nil {
		return err
	}
	for from, to := range map[string]string{*program: "firecracker", filepath.Join(filepath.Dir(os.Args[0]), "wrong"): "wrong"} {
		b, _ := os.ReadFile(from) // there may be no wrong
		if err := os.WriteFile(filepath.Join(root, to), b, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"", "run"} {
		if err := os.Chown(filepath.Join(root, dir), int(*uid), int(*gid)); err != nil {
			return err
		}
	}
	if mode != "outside" {
		if err := os.WriteFile(filepath.Join(unifiedMount(), *parent, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return err
		}
	}
	if err := errors.Join(syscall.Chroot(root), os.Chdir("/"), syscall.Setgid(int(*gid)), syscall.Setuid(int(*uid))); err != nil {
		return err
	}
	return syscall.Exec("/firecracker", append([]string{"./firecracker", "--id=" + *id}, f.Args()...), nil)
}

func unifiedMount() string {
	b, _ := os.ReadFile("/proc/mounts") // "" then
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	return ""
}
