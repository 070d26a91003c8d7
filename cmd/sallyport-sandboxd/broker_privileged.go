package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/sandboxd"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
)

// The egress broker is this program again, as a uid of its own without any
// privilege: it speaks to hosts that nobody here knows. It is started when the
// first sandbox is to reach something, and again after it ended.

const (
	brokerWord   = "broker"
	brokerMemory = 256 << 20

	// What one sandbox may do with its grant.
	grantBytes  = 256 << 20
	grantRate   = 32 << 20 // a second; 2,048 attempts
	grantConns  = 64
	serverBytes = 64 << 30 // where the grant outlives every run: it is a server's
)

// A brokerProcess implements tier.Broker.
type brokerProcess struct {
	o       options
	nursery sandboxd.Nursery

	mu     sync.Mutex
	remote *egress.Remote
	end    func()
}

// Authority implements tier.Broker.
func (b *brokerProcess) Authority(within time.Duration) (tier.Authority, error) {
	ca, err := egress.NewAuthority(time.Now(), within)
	return tier.Authority(ca), err
}

// Open implements tier.Broker.
func (b *brokerProcess) Open(id string, w tier.Way, ca tier.Authority, within time.Duration, l *net.UnixListener) (end func() tier.Passed, err error) {
	defer l.Close() // the broker has its own
	g, err := grantOf(id, w, ca, within)
	if err != nil {
		return nil, err
	}
	socket, err := l.File()
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	account, err := b.open(g, socket)
	if errors.Is(err, egress.ErrGone) && b.remote != nil {
		b.stop()
		account, err = b.open(g, socket)
	}
	if err != nil {
		return nil, fmt.Errorf("the egress broker: %w", err)
	}
	return func() tier.Passed { return told(account()) }, nil
}

// Tell implements tier.Teller. What a broker that is gone saw is lost; the end
// of the sandbox says so.
func (b *brokerProcess) Tell(id string) []sallyport.Connection {
	b.mu.Lock()
	remote := b.remote
	b.mu.Unlock()
	if remote == nil {
		return nil
	}
	a, err := remote.Tell(id)
	if err != nil {
		return nil
	}
	return a.Connections
}

// grantOf checks a way and makes a grant of it. The authority goes with it only
// where secrets are to go into HTTPS requests.
func grantOf(id string, w tier.Way, ca tier.Authority, within time.Duration) (egress.Grant, error) {
	g := egress.Grant{ID: id, Rules: w.Reach, Bytes: grantBytes, Rate: grantRate, Conns: grantConns, For: within}
	if within > 2*sandboxd.MaxTimeout {
		g.Bytes = serverBytes
	}
	for _, i := range w.Inject {
		g.Inject = append(g.Inject, egress.Injection(i))
	}
	if err := g.Check(); err != nil {
		return g, &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Execute, Message: err.Error(),
			Hint: "an operator corrects egress and secrets in the tool's manifest, or the secret itself with `sallyport secrets set`", Err: sallyport.ErrNotExecuted,
		}
	}
	if own := egress.Authority(ca); len(g.Inject) > 0 {
		g.CA = &own
	}
	return g, nil
}

// Preconditions: b.mu is held.
func (b *brokerProcess) open(g egress.Grant, socket *os.File) (func() (egress.Account, error), error) {
	if b.remote == nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	return b.remote.Open(g, socket)
}

func told(a egress.Account, err error) tier.Passed {
	if err != nil {
		slog.Error("what a sandbox reached is lost", "err", err)
		return tier.Passed{Connections: []sallyport.Connection{{Reason: "broker_gone", Count: 1}}}
	}
	return tier.Passed{Egress: a.Applied, Connections: a.Connections}
}

// start starts the process with its end of the socket as descriptor 3.
// Preconditions: b.mu is held.
func (b *brokerProcess) start() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "broker"), os.NewFile(uintptr(fds[1]), "host")
	defer ours.Close()
	defer theirs.Close()
	group, err := b.nursery.NewGroup("egress", brokerMemory)
	if err != nil {
		return err
	}
	cmd, err := b.command(group)
	if err == nil {
		cmd.ExtraFiles = []*os.File{theirs}
		err = b.nursery.Start(cmd)
	}
	if err != nil {
		return errors.Join(err, group.Remove())
	}
	b.end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := errors.Join(group.Kill(10*time.Second), group.Remove()); err != nil {
			slog.Warn("the egress broker left its cgroup", "err", err)
		}
	}
	c, err := net.FileConn(ours)
	if err != nil {
		b.stop()
		return err
	}
	b.remote = egress.NewRemote(c.(*net.UnixConn))
	return nil
}

func (b *brokerProcess) command(group cgroup.Group) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(b.o.programs, gvisor.InitProgram),
		"exec", strconv.Itoa(b.o.firstUID+800), strconv.Itoa(os.Getpid()), strings.Join(group.Dirs(), ":"),
		self, "sallyport-egress", brokerWord, b.o.private, b.o.own)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/nonexistent"}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	return cmd, nil
}

// stop ends the process.
// Preconditions: b.mu is held.
func (b *brokerProcess) stop() {
	if b.remote != nil {
		_ = b.remote.Close()
		b.remote = nil
	}
	if b.end != nil {
		b.end()
		b.end = nil
	}
}

func (b *brokerProcess) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop()
}

// brokerMain is the broker's process: args are the private ranges and the
// gateways' addresses. It ends with its socket.
func brokerMain(args []string) {
	b, err := brokerOf(args)
	if err == nil {
		var c net.Conn
		if c, err = net.FileConn(os.NewFile(3, "control")); err == nil {
			err = b.Obey(context.Background(), c.(*net.UnixConn))
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "sallyport-egress:", err)
		os.Exit(1)
	}
}

func brokerOf(args []string) (*egress.Broker, error) {
	if len(args) != 2 {
		return nil, errors.New("only for use by sallyport-sandboxd")
	}
	if os.Geteuid() == 0 {
		return nil, errors.New("the broker does not run as root")
	}
	return parseBroker(args[0], args[1])
}

// parseBroker reads the operator's ranges and the gateways' addresses.
func parseBroker(private, gateways string) (*egress.Broker, error) {
	b := &egress.Broker{}
	for _, s := range list(private) {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("egress.private: %w", err)
		}
		b.Private = append(b.Private, p)
	}
	for _, s := range list(gateways) {
		own, err := egress.OwnAddresses(s)
		if err != nil {
			return nil, fmt.Errorf("the gateway's address: %w", err)
		}
		b.Own = append(b.Own, own...)
	}
	return b, nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
