// Package child starts servers as children of this process.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/tier/child"
)

// A Launcher starts servers as children of this process, under its own uid: no
// isolation at all. Use it for tests, and where the operator says so.
type Launcher struct {
	Dir string // working folder, "" for that of this process
}

// drainTime is how long output may still come after a process has ended, from
// descendants that hold its pipes.
const drainTime = 500 * time.Millisecond

// Launch starts a child in a process group of its own. It dies with this process.
func (l Launcher) Launch(ctx context.Context, spec upstream.LaunchSpec) (pipe.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := lookPath(spec)
	if err != nil {
		return nil, err
	}
	var pipes child.Pipes // not exec's own: those would make Wait wait for whoever holds them
	in, stdin := pipes.ToChild(false)
	stdout, out := pipes.FromChild()
	stderr, errs := pipes.FromChild()
	if pipes.Err != nil {
		pipes.Finish(true)
		return nil, pipes.Err
	}
	p := &process{stdin: stdin, stdout: stdout, stderr: stderr, ended: make(chan struct{}), leftover: -1}
	cmd := &exec.Cmd{
		Path: path, Args: spec.Argv, Env: spec.Env, Dir: l.Dir,
		Stdin: in, Stdout: out, Stderr: errs,
		// A session of its own, not only a group: a login belongs to a session.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	started := make(chan error, 1)
	go p.live(cmd, started)
	err = <-started
	pipes.Finish(err != nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// lookPath finds the program as the server's own PATH says.
func lookPath(spec upstream.LaunchSpec) (string, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return "", errors.New("there is no command")
	}
	if strings.Contains(spec.Argv[0], "/") {
		return spec.Argv[0], nil
	}
	for _, kv := range spec.Env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			file := filepath.Join(dir, spec.Argv[0])
			if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%q: %w in the PATH of server %q", spec.Argv[0], fs.ErrNotExist, spec.Name)
}

type process struct {
	stdin, stdout, stderr *os.File
	pid                   int
	ended                 chan struct{} // closed after err is set
	err                   error
	unread                int // set before ended is closed
	leftover              int // the same, of an input that was closed when nobody could read it any more; else -1; guarded by groupMu
	stopping              sync.Mutex
	reaped                bool // guarded by groupMu
	groupMu               sync.Mutex
}

func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.Reader     { return p.stdout }
func (p *process) Stderr() io.Reader     { return p.stderr }

// live is the life of the child. It keeps its thread, for the kernel sends
// Pdeathsig when the thread that forked ends, not the process.
func (p *process) live(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	// Look without reaping: the group's number stays ours until all are killed.
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.groupMu.Lock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	p.err = cmd.Wait()
	p.reaped = true
	if p.unread = child.Unread(p.stdin); p.unread < 0 {
		p.unread = p.leftover
	}
	p.groupMu.Unlock()
	deadline := time.Now().Add(drainTime)
	_ = p.stdout.SetReadDeadline(deadline)
	_ = p.stderr.SetReadDeadline(deadline)
	close(p.ended)
}

func (p *process) Wait() error {
	<-p.ended
	return p.err
}

// Unread returns how many bytes of its input the program had not read when it
// ended, or -1 if that is not known.
func (p *process) Unread() int {
	<-p.ended
	return p.unread
}

// closeInput ends the program's input. What is in it then, and can be read by nobody, is
// what the program did not read.
func (p *process) closeInput() {
	p.groupMu.Lock()
	defer p.groupMu.Unlock()
	if n := child.Unread(p.stdin); n >= 0 {
		if p.leftover = -1; deserted(p.stdin) {
			p.leftover = n
		}
	}
	_ = p.stdin.Close()
}

// deserted reports whether nobody can read from a pipe any more.
func deserted(pipe *os.File) (is bool) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	_ = conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		is = err == nil && n == 1 && fds[0].Revents&unix.POLLERR != 0
	})
	return is
}

func (p *process) Stop(grace time.Duration) error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	p.closeInput()
	if !p.wait(grace / 3) {
		p.signal(syscall.SIGTERM)
		if !p.wait(grace / 3) {
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
	}
	return nil
}

func (p *process) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
		return false
	}
}

func (p *process) signal(s syscall.Signal) {
	p.groupMu.Lock()
	defer p.groupMu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid, s)
	}
}
