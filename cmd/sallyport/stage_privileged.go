package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cli"
)

// The gateway of a host where root starts it runs in two stages. The first,
// here, has the privileges: it starts sandboxd, gives the data folder to the
// sallyport user, and becomes the second, which has none, for good. Both are
// one process, so whoever started the first sees the second end.

// fallbackID is the uid and gid of the gateway where no `sallyport` user exists.
const fallbackID = 64550

// Where the second stage finds what the first one opened.
const (
	envStage   = "SALLYPORT_STAGE"        // "2"
	envSandbox = "SALLYPORT_SANDBOXD_FD"  // connected socket
	envPID     = "SALLYPORT_SANDBOXD_PID" // our child, to wait for
	envOwner   = "SALLYPORT_OWNER"        // uid that ran init
	envData    = "SALLYPORT_DATA_AT"      // where the data folder is for everybody else
	envConfig  = "SALLYPORT_CONFIG_AT"    // and the folder of a configuration that is elsewhere
)

// identityOf is the user that the gateway becomes.
func identityOf() (uid, gid int) {
	u, err := user.Lookup("sallyport")
	if err != nil {
		return fallbackID, fallbackID
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err1 != nil || err2 != nil {
		return fallbackID, fallbackID
	}
	return uid, gid
}

// startSandboxd starts the sandbox host beside this program, at the other end
// of a socket that nobody else can reach.
func startSandboxd(args ...string) (socket *os.File, pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	path := filepath.Join(filepath.Dir(self), "sallyport-sandboxd")
	if _, err := os.Stat(path); err != nil {
		return nil, 0, fmt.Errorf("the sandbox host is not beside this program: %w", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "sandboxd"), os.NewFile(uintptr(fds[1]), "gateway")
	defer theirs.Close()
	cmd := exec.Command(path, args...)
	cmd.ExtraFiles = []*os.File{theirs} // fd 3
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	// A group of its own: an interrupt at the terminal reaches the gateway,
	// which ends its calls first.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, 0, err
	}
	return ours, cmd.Process.Pid, nil
}

// drop gives the data folder away and becomes the second stage. It does not
// return, except with an error.
func drop(data, config string, argv []string, sandboxd *os.File, pid int) error {
	uid, gid := identityOf()
	owner, err := ownerOf(data)
	if err != nil {
		return err
	}
	if err := give(data, owner, uid, gid); err != nil {
		return fmt.Errorf("giving the data folder to uid %d: %w", uid, err)
	}
	// The mount namespace that unshare makes belongs to this thread, which the
	// exec below turns into the whole process.
	runtime.LockOSThread()
	at := filepath.Dir(config)
	mounted, config, err := bind(data, config)
	if err != nil {
		return err
	}
	// The cache stays the one that root made: what is in it is trusted because
	// only root can write it.
	env := append(os.Environ(), envStage+"=2", envOwner+"="+strconv.Itoa(owner), "SALLYPORT_CACHE="+cli.CacheDir(),
		envData+"="+data, envConfig+"="+at)
	if sandboxd != nil {
		fd, err := unix.FcntlInt(sandboxd.Fd(), unix.F_DUPFD, 3) // survives the exec
		if err != nil {
			return err
		}
		env = append(env, envSandbox+"="+strconv.Itoa(fd), envPID+"="+strconv.Itoa(pid))
	}
	args := append([]string{"sallyport", "serve"}, argv...)
	args = append(args, "--data", mounted)
	if config != "" {
		args = append(args, "--config", config)
	}
	if err := become(uid, gid); err != nil {
		return err
	}
	return fmt.Errorf("starting without privileges: %w", unix.Exec("/proc/self/exe", args, env))
}

// become gives this thread another identity, with no way back.
func become(uid, gid int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for _, call := range []struct {
		name   string
		number uintptr
		args   [3]uintptr
	}{
		{"setgroups", unix.SYS_SETGROUPS, [3]uintptr{0, 0, 0}},
		{"setresgid", unix.SYS_SETRESGID, [3]uintptr{uintptr(gid), uintptr(gid), uintptr(gid)}},
		{"setresuid", unix.SYS_SETRESUID, [3]uintptr{uintptr(uid), uintptr(uid), uintptr(uid)}},
	} {
		if _, _, errno := unix.RawSyscall(call.number, call.args[0], call.args[1], call.args[2]); errno != 0 {
			return fmt.Errorf("%s: %w", call.name, errno)
		}
	}
	return nil
}

// mountBase is where only the second stage sees its folders.
const mountBase = "/run/sallyport"

// everybodys returns a text of the second stage with the paths that everybody
// else knows.
func everybodys(s string) string {
	for name, env := range map[string]string{"/data": envData, "/config": envConfig} {
		if at := os.Getenv(env); at != "" {
			s = strings.ReplaceAll(s, mountBase+name, at)
		}
	}
	return s
}

// An outsideWriter writes for somebody who does not see the second stage's mounts.
type outsideWriter struct{ io.Writer }

func (w outsideWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, everybodys(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// bind makes the data folder, and the folder of a configuration that is
// elsewhere, reachable under a path that the unprivileged user may walk: the
// folders above them (such as /root) are often closed. Only this process sees
// these mounts.
func bind(data, config string) (newData, newConfig string, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", "", fmt.Errorf("a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", "", fmt.Errorf("private mounts: %w", err)
	}
	base := mountBase
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", "", err
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return "", "", fmt.Errorf("mounting %s: %w", base, err)
	}
	one := func(from, name string) (string, error) {
		to := filepath.Join(base, name)
		if err := os.Mkdir(to, 0o755); err != nil {
			return "", err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("binding %s: %w", from, err)
		}
		return to, nil
	}
	if newData, err = one(data, "data"); err != nil || config == "" {
		return newData, "", err
	}
	folder, err := one(filepath.Dir(config), "config")
	return newData, filepath.Join(folder, filepath.Base(config)), err
}

// ownerUID is ownerOf for a gateway that runs: what the first stage found, or
// the file. -1 is nobody.
func ownerUID(data string) int {
	if uid, err := strconv.Atoi(os.Getenv(envOwner)); err == nil {
		return uid
	}
	uid, err := ownerOf(data)
	if err != nil {
		return -1
	}
	return uid
}

// ownerOf is the uid that ran init: the only one, beside root and the gateway,
// that may use the admin socket.
func ownerOf(data string) (int, error) {
	b, err := os.ReadFile(filepath.Join(data, "owner"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, &sallyport.Error{Code: sallyport.Invalid, Message: data + " is not a data folder of Sallyport", Hint: "make one with `sallyport init`"}
	}
	if err != nil {
		return 0, err
	}
	uid, err := strconv.Atoi(string(b))
	if err != nil || uid < 0 {
		return 0, fmt.Errorf("%s: %q is not a uid", filepath.Join(data, "owner"), b)
	}
	return uid, nil
}
