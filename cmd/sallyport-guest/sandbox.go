package main

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
)

const (
	insideWord = "inside"
	initName   = "/sallyport-init"
)

// launch makes a sandbox: process 1 of new namespaces, in the control group, with
// pipes that lead to the host's streams.
func (m *machine) launch(l guest.Launch) {
	if err := m.start(l); err != nil {
		m.trouble("making the sandbox", err)
		return
	}
	m.say(guest.Renewed, m.bounds().Append(nil))
}

func (m *machine) start(l guest.Launch) error {
	if err := m.limitMemory(l.Memory); err != nil {
		return err
	}
	m.limits.again = l.Stays
	if l.Leads {
		if err := m.openWay(); err != nil {
			return err
		}
	}
	p := &pipes{m: m}
	files := p.files(l)
	defer p.closeTheirs()
	if p.err != nil {
		return p.err
	}
	args := []string{"sallyport-guest", insideWord, strconv.Itoa(len(files)), strconv.Itoa(len(files) + 1)}
	if l.Stays {
		args = append(args, "session", "copy")
	}
	files = append(files, m.init.Fd(), m.identity.boot.Fd())
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Files: files,
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP, Setsid: true,
			UseCgroupFD: true, CgroupFD: m.group,
		},
	})
	if err != nil {
		return err
	}
	go m.await(pid, p)
	return nil
}

// await tells how the sandbox ended, after all that it said.
func (m *machine) await(pid int, p *pipes) {
	over := make(chan struct{})
	go m.watchMemory(over)
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			break
		}
	}
	close(over)
	p.out.Wait()
	m.say(guest.Ended, m.ending(uint32(ws)).Append(nil))
}

// ending tells how the sandbox has been held.
func (m *machine) ending(status uint32) guest.Ending {
	e := guest.Ending{Status: status}
	for line := range strings.Lines(m.groupFile("memory.events")) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			e.OOMKills, _ = strconv.ParseUint(strings.TrimSpace(n), 10, 64)
		}
	}
	if m.starved.Load() {
		e.OOMKills++
	}
	e.Peak, _ = strconv.ParseUint(m.groupFile("memory.peak"), 10, 64)
	e.Processes, e.Disk = m.limits.hit()
	return e
}

// inside is process 1 of the sandbox: it becomes sallyport-init, behind a filter of
// system calls, whatever kernel this is.
func inside(args []string) {
	if len(args) < 2 {
		fail(unix.EINVAL, insideWord)
	}
	program, _ := strconv.Atoi(args[0])
	boot, _ := strconv.Atoi(args[1])
	mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	mount("/proc/self/fd/"+args[1], "/"+bootID, "", unix.MS_BIND, "")
	unix.Close(boot)
	unix.CloseOnExec(program)
	for _, r := range []struct {
		what int
		lim  unix.Rlimit
	}{{unix.RLIMIT_CORE, unix.Rlimit{}}, {unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 1024, Max: 4096}}} {
		must(unix.Setrlimit(r.what, &r.lim), "limits")
	}
	unix.Umask(0o022)
	must(unix.Setpriority(unix.PRIO_PROCESS, 0, 0), "priority")
	must(refuseCalls(), "the filter of system calls")
	must(unix.Exec("/proc/self/fd/"+args[0], append([]string{initName}, args[2:]...), nil), initName)
}

// pipes lead from the sandbox's descriptors to streams.
type pipes struct {
	m      *machine
	theirs []int
	out    sync.WaitGroup // those that come from the sandbox
	err    error
}

// files are the descriptors of the sandbox's process 1: see cmd/sallyport-init.
func (p *pipes) files(l guest.Launch) []uintptr {
	if l.Stays {
		return []uintptr{p.in(guest.Orders), p.from(guest.Report), p.from(guest.Stderr)}
	}
	stdin := p.null
	if !l.NoInput {
		stdin = func() uintptr { return p.in(guest.Stdin) }
	}
	f := []uintptr{stdin(), p.from(guest.Stdout), p.from(guest.Stderr), p.in(guest.Orders), p.from(guest.Report)}
	if l.Ahead {
		f = append(f, p.in(guest.Line))
	}
	return f
}

func (p *pipes) null() uintptr {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return p.keep(fd, err)
}

func (p *pipes) keep(fd int, err error) uintptr {
	if err != nil {
		p.err = err
		return 0
	}
	p.theirs = append(p.theirs, fd)
	return uintptr(fd)
}

func (p *pipes) pair(id uint32) (r, w int, s *mux.Stream) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		p.err = err
	}
	return fds[0], fds[1], p.m.session.Stream(id)
}

// polled is a file of which the runtime's poller tells: a thread that waits in a
// system call would keep the one processor from others for milliseconds.
func polled(fd int) *os.File {
	_ = unix.SetNonblock(fd, true) // it does not fail on what was just opened
	return os.NewFile(uintptr(fd), "polled")
}

// in carries a stream into the sandbox.
func (p *pipes) in(id uint32) uintptr {
	r, w, s := p.pair(id)
	go func() {
		f := polled(w)
		if _, err := io.Copy(onlyWrite{f}, onlyRead{s}); err != nil {
			s.Close() // nobody reads it
		}
		f.Close()
	}()
	return p.keep(r, nil)
}

// from carries what the sandbox says.
func (p *pipes) from(id uint32) uintptr {
	r, w, s := p.pair(id)
	p.out.Go(func() {
		f := polled(r)
		_, _ = io.Copy(onlyWrite{s}, onlyRead{f})
		f.Close()
		_ = s.CloseWrite()
	})
	return p.keep(w, nil)
}

// closeTheirs closes the sandbox's ends here.
func (p *pipes) closeTheirs() {
	for _, fd := range p.theirs {
		unix.Close(fd)
	}
}

// io.Copy is to use Read and Write, whatever else there is.
type (
	onlyRead  struct{ io.Reader }
	onlyWrite struct{ io.Writer }
)

// openWay listens where the sandbox's proxy connects to, and carries each
// connection to the host.
func (m *machine) openWay() error {
	if err := unix.Mount("tmpfs", guest.WayDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0700"); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: guest.WaySocket, Net: "unix"})
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go m.carry(c)
		}
	}()
	return nil
}

func (m *machine) carry(c *net.UnixConn) {
	defer c.Close()
	s, err := m.session.Open()
	if err != nil {
		return
	}
	defer s.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(onlyWrite{s}, onlyRead{c})
		_ = s.CloseWrite()
	})
	_, _ = io.Copy(onlyWrite{c}, onlyRead{s})
	_ = c.CloseWrite()
	up.Wait()
}
