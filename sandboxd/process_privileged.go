package sandboxd

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor/cgroup"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// killPatience is how long a killed server may take to be gone.
const killPatience = 5 * time.Second

// A serverProcess is a third-party server under its own uid.
type serverProcess struct {
	name   string
	cmd    *exec.Cmd
	group  cgroup.Group
	stdin  *os.File
	stdout io.ReadCloser
	stderr io.ReadCloser
	fed    atomic.Int64 // bytes of input, those on their way out too

	exited chan struct{} // closed when the process and its whole group are gone
	oom    bool          // valid once exited is closed
	read   *int64        // bytes of input that it had read, if known; valid once exited is closed
	once   sync.Once
}

// startProcess starts a server: own uid, own home, own session, own cgroup, no
// shell, no_new_privs, and no variable but those given. The steps from root to
// that uid are sallyport-init's.
func startProcess(n Nursery, c ServerConfig, start *sandboxpb.ServeStart, id string) (*serverProcess, error) {
	uid, home, err := c.identity(start.Name)
	if err != nil {
		return nil, err
	}
	env := ownEnvironment(start.Env, start.Name, home)
	path, err := findProgram(start.Argv, env)
	if err != nil {
		return nil, err
	}
	g, err := n.NewGroup("srv-"+start.Name+"-"+id, c.Memory)
	if err != nil {
		return nil, err
	}
	p := &serverProcess{name: start.Name, group: g, exited: make(chan struct{})}
	args := []string{"exec", strconv.Itoa(uid), strconv.Itoa(os.Getpid()), strings.Join(g.Dirs(), ":"), path}
	p.cmd = exec.Command(c.Init, append(args, start.Argv...)...)
	p.cmd.Dir, p.cmd.Env = home, env
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	if err := p.launch(n); err != nil {
		_ = g.Remove()
		return nil, refused(sallyport.Unavailable, "see the log of sallyport-sandboxd", "the server %s could not be started: %v", start.Name, err)
	}
	return p, nil
}

// launch makes the pipes and starts the process. They are plain pipes, not
// exec's own: those would make Wait wait for whoever holds them.
func (p *serverProcess) launch(n Nursery) (err error) {
	var child []*os.File
	pipe := func(childReads bool) *os.File {
		r, w, e := os.Pipe()
		if e != nil {
			err = errors.Join(err, e)
			return nil
		}
		if childReads {
			r, w = w, r
		}
		child = append(child, w)
		return r
	}
	in, out, errs := pipe(true), pipe(false), pipe(false)
	defer func() {
		for _, f := range child {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	p.stdin, p.stdout, p.stderr = in, out, errs
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = child[0], child[1], child[2]
	if err := n.Start(p.cmd); err != nil {
		in.Close()
		out.Close()
		errs.Close()
		return err
	}
	go p.reap()
	return nil
}

// reap waits for the main process, then ends the rest of its group: a server
// that forked into the background does not stay.
func (p *serverProcess) reap() {
	defer close(p.exited)
	_ = p.cmd.Wait() // the status is read from ProcessState
	p.oom = p.group.OOMKills() > 0
	if err := errors.Join(p.group.Kill(killPatience), p.group.Remove()); err != nil {
		slog.Error("a server left something behind", "server", p.name, "err", err)
	}
	if n := unread(p.stdin); n >= 0 {
		read := p.fed.Load() - int64(n)
		p.read = &read
	}
}

// feed writes to the server's input. Once nobody can read it any more, what is
// written is lost; the exit will tell.
func (p *serverProcess) feed(b []byte) {
	p.fed.Add(int64(len(b))) // first: what was read is never understated
	n, err := p.stdin.Write(b)
	if err != nil {
		p.fed.Add(int64(n - len(b)))
	}
}

// unread is how many bytes lie in a pipe, or -1 if that is not known.
func unread(pipe *os.File) int {
	n := -1
	conn, err := pipe.SyscallConn()
	if err != nil {
		return n
	}
	_ = conn.Control(func(fd uintptr) {
		if got, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			n = got
		}
	})
	return n
}

// kill ends the whole group. It is idempotent.
func (p *serverProcess) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		if err := p.group.Kill(killPatience); err != nil {
			slog.Error("a server survives", "server", p.name, "err", err)
		}
	})
}

// ownEnvironment is the environment as given, but for the folders and the name
// of a user: those of a gateway are of no use to a server that may not read them.
func ownEnvironment(env []string, name, home string) []string {
	own := []string{"HOME=" + home, "TMPDIR=" + home, "USER=" + name}
	for _, e := range env {
		if n, _, _ := strings.Cut(e, "="); n != "HOME" && n != "TMPDIR" && n != "USER" {
			own = append(own, e)
		}
	}
	return own
}

// findProgram finds argv[0] as execvp would, in the PATH that the server gets.
func findProgram(argv, env []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", refused(sallyport.Invalid, "give a command", "the server has no command")
	}
	for _, s := range append(append([]string{}, argv...), env...) {
		if strings.ContainsRune(s, 0) {
			return "", refused(sallyport.Invalid, "remove the NUL character", "the server's command or environment contains a NUL character")
		}
	}
	for _, e := range env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return "", refused(sallyport.Invalid, "write NAME=value", "%.40q is not an environment variable", name)
		}
	}
	if filepath.IsAbs(argv[0]) {
		return argv[0], nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	if !strings.Contains(argv[0], "/") {
		for dir := range strings.SplitSeq(path, ":") {
			full := filepath.Join(dir, argv[0])
			if info, err := os.Stat(full); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return full, nil
			}
		}
	}
	return "", refused(sallyport.Unavailable, "install it, or give its absolute path", "the program %.80q was not found in %s", argv[0], path)
}
