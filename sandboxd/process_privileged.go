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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/child"
)

// killPatience is how long a killed server may take to be gone.
const killPatience = 30 * time.Second

// A serverProcess is a third-party server, under its own uid or in a sandbox.
type serverProcess struct {
	name   string
	stdin  *os.File
	stdout io.ReadCloser
	stderr io.ReadCloser

	feeding sync.Mutex // held while input is written
	fed     int64      // bytes of input that came out

	ask func() // it to end
	end func() // ends it and all that it started

	news   chan *sandboxpb.ServeNews // of one in a sandbox; closed before exited is
	exited chan struct{}             // closed when it and all that it started are gone
	status serverStatus              // valid once exited is closed
	once   sync.Once
}

// A serverStatus is how a server ended.
type serverStatus struct {
	code   int
	signal string
	oom    bool
	read   *int64 // bytes of input that it had read, if known
	said   string // why the host ended it, for the server's own log
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
	p := &serverProcess{name: start.Name, exited: make(chan struct{})}
	cmd := c.asUser(uid, g, path, start.Argv)
	cmd.Dir, cmd.Env = home, env
	if err := p.launch(n, cmd, g); err != nil {
		_ = g.Remove()
		return nil, refused(sallyport.Unavailable, "see the log of sallyport-sandboxd", "the server %s could not be started: %v", start.Name, err)
	}
	return p, nil
}

// asUser is a program that sallyport-init starts as uid, in a group.
func (c ServerConfig) asUser(uid int, g cgroup.Group, path string, argv []string) *exec.Cmd {
	args := []string{"exec", strconv.Itoa(uid), strconv.Itoa(os.Getpid()), strings.Join(g.Dirs(), ":"), path}
	cmd := exec.Command(c.Init, append(args, argv...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	return cmd
}

// openStreams makes the pipes and returns the server's ends. They are plain
// pipes, not exec's own: those would make Wait wait for whoever holds them.
func (p *serverProcess) openStreams() (theirs [3]*os.File, err error) {
	ours := [3]*os.File{}
	for i := range theirs {
		r, w, e := os.Pipe()
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	if err != nil {
		closeAll(append(ours[:], theirs[:]...))
		return theirs, err
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	return theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// launch starts a process on pipes of its own.
func (p *serverProcess) launch(n Nursery, cmd *exec.Cmd, g cgroup.Group) error {
	theirs, err := p.openStreams()
	if err != nil {
		return err
	}
	defer closeAll(theirs[:])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	if err := n.Start(cmd); err != nil {
		p.closeStreams()
		return err
	}
	p.ask = func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	p.end = func() {
		_ = cmd.Process.Kill()
		if err := g.Kill(killPatience); err != nil {
			slog.Error("a server survives", "server", p.name, "err", err)
		}
	}
	go p.reap(cmd, g)
	return nil
}

func (p *serverProcess) closeStreams() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

// reap waits for the main process, then ends the rest of its group: a server
// that forked into the background does not stay.
func (p *serverProcess) reap(cmd *exec.Cmd, g cgroup.Group) {
	_ = cmd.Wait() // the status is read from ProcessState
	s := serverStatus{oom: g.OOMKills() > 0}
	if err := errors.Join(g.Kill(killPatience), g.Remove()); err != nil {
		slog.Error("a server left something behind", "server", p.name, "err", err)
	}
	s.code, s.signal = exitOf(cmd.ProcessState)
	p.ended(s)
}

// exitOf tells exactly how a process ended.
func exitOf(state *os.ProcessState) (code int, signal string) {
	switch ws, ok := state.Sys().(syscall.WaitStatus); {
	case !ok:
		slog.Error("a server has no wait status")
		return -1, ""
	case ws.Signaled():
		return 128 + int(ws.Signal()), tier.SignalName(ws.Signal())
	default:
		return ws.ExitStatus(), ""
	}
}

// ended writes down how the server ended.
func (p *serverProcess) ended(s serverStatus) {
	_ = p.stdin.SetWriteDeadline(time.Now()) // ends what is being written
	p.feeding.Lock()
	if n := child.Unread(p.stdin); n >= 0 {
		read := p.fed - int64(n)
		s.read = &read
	}
	p.feeding.Unlock()
	p.status = s
	close(p.exited)
}

// feed writes to the server's input. Once nobody can read it any more, what is
// written is lost; the exit will tell.
func (p *serverProcess) feed(b []byte) {
	p.feeding.Lock()
	defer p.feeding.Unlock()
	n, _ := p.stdin.Write(b)
	p.fed += int64(n)
}

// kill ends it and all that it started. It is idempotent.
func (p *serverProcess) kill() { p.once.Do(p.end) }

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
