// Package sandbox executes jobs on a sandbox host: code in sandboxes, and
// third-party servers under identities of their own. It is the client of
// sallyport-sandboxd; nothing of an agent runs in this process.
package sandbox

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// Secrets reveals stored secrets to the sandboxes they are granted to. (secret)
type Secrets interface {
	// Resolve returns the value of a secret, or code NotFound.
	Resolve(ctx context.Context, tenant, name string) ([]byte, error)
}

// Options say how jobs run.
type Options struct {
	Image   string     // name or digest; "" means "default"
	Secrets Secrets    // nil refuses tools that are granted secrets
	Modules Modules    // nil refuses tools of language wasm
	Key     []byte     // of this gateway, the same after a restart: a host that serves several knows it by it; nil means a new one
	News    func(News) // of servers in sandboxes; must not block; nil drops
}

// News tells what a server in a sandbox did lately, beside its answers.
type News struct {
	Server      string
	Connections []sallyport.Connection // made or tried
	LimitsHit   []string
}

// A Backend implements sallyport.Backend. It is safe for concurrent use.
type Backend struct {
	o    Options
	conn *grpc.ClientConn
	api  sandboxpb.SandboxesClient
	host *exec.Cmd // the sandbox host, if this backend started it
	seal []byte    // keys what the host may compare and not read
	stop context.CancelFunc

	scripts OpenScript // nil: programs call no tools

	tiers     standings
	closeOnce sync.Once
}

var _ sallyport.Backend = (*Backend)(nil)

// Connect speaks to a sandbox host over a connected socket, which it takes over.
// When the socket closes, the host ends, and every sandbox with it.
func Connect(socket *os.File, o Options) (*Backend, error) {
	defer socket.Close()
	c, err := net.FileConn(socket)
	if err != nil {
		return nil, fmt.Errorf("the sandbox host's socket: %w", err)
	}
	once := make(chan net.Conn, 1)
	once <- c
	return open(o, func(ctx context.Context, _ string) (net.Conn, error) {
		select {
		case c := <-once:
			return c, nil
		default:
			return nil, errors.New("the sandbox host is gone")
		}
	})
}

// Dial speaks to a sandbox host that listens on a unix socket.
func Dial(path string, o Options) (*Backend, error) {
	b, err := open(o, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go b.attend(ctx)
	return b, nil
}

// attendAgain is the time between attempts to be known to a host.
const attendAgain = time.Second

// attend tells a host that this gateway is there, until ctx ends.
func (b *Backend) attend(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := b.api.Attend(ctx, &sandboxpb.AttendRequest{}, grpc.WaitForReady(true))
		for err == nil {
			_, err = stream.Recv()
		}
		select {
		case <-ctx.Done():
		case <-time.After(attendAgain):
		}
	}
}

// derived is a key for one use, of the gateway's.
func derived(key []byte, use string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(use))
	return mac.Sum(nil)
}

// A gatewayKey is in the metadata of each call.
type gatewayKey string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (k gatewayKey) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{sandboxpb.GatewayKey: string(k)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: the kernel
// vouches for the peer of a unix socket.
func (gatewayKey) RequireTransportSecurity() bool { return false }

// Start starts a sandbox host as a child and connects to it. Close ends it.
func Start(program string, args []string, o Options) (*Backend, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "sandboxd"), os.NewFile(uintptr(fds[1]), "gateway")
	defer theirs.Close()
	cmd := exec.Command(program, args...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting the sandbox host: %w", err)
	}
	b, err := Connect(ours, o)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	b.host = cmd
	return b, nil
}

func open(o Options, dial func(context.Context, string) (net.Conn, error)) (*Backend, error) {
	if o.Image == "" {
		o.Image = "default"
	}
	if len(o.Key) == 0 {
		o.Key = []byte(rand.Text())
	}
	conn, err := grpc.NewClient("passthrough:///sandboxd",
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket, whose peer the kernel vouches for
		grpc.WithPerRPCCredentials(gatewayKey(hex.EncodeToString(derived(o.Key, "who")))),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(sandboxpb.MaxMessage), grpc.MaxCallSendMsgSize(sandboxpb.MaxMessage)),
	)
	if err != nil {
		return nil, err
	}
	conn.Connect()
	return &Backend{o: o, conn: conn, api: sandboxpb.NewSandboxesClient(conn), seal: derived(o.Key, "terms"), stop: func() {}}, nil
}

// Info implements sallyport.Backend.
func (b *Backend) Info() sallyport.Info {
	return sallyport.Info{Name: "sandbox", Isolation: sallyport.TierGVisor}
}

// alive asks a host that worked once whether it is still there.
func (b *Backend) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := b.api.List(ctx, &sandboxpb.ListRequest{})
	return sandboxpb.FromStatus(err)
}

// A Running is one sandbox that exists now.
type Running struct {
	ID      string
	Tier    string
	CallID  string
	Started time.Time

	Deleting bool // what is left of it cannot be deleted yet
}

// List tells which sandboxes and which servers exist now.
func (b *Backend) List(ctx context.Context) (sandboxes []Running, servers []string, err error) {
	reply, err := b.api.List(ctx, &sandboxpb.ListRequest{})
	if err != nil {
		return nil, nil, sandboxpb.FromStatus(err)
	}
	for _, s := range reply.Sandboxes {
		sandboxes = append(sandboxes, Running{s.Id, s.Tier, s.CallId, time.UnixMilli(s.StartedUnixMs), s.Deleting})
	}
	return sandboxes, reply.Servers, nil
}

// Held tells how many sessions a host keeps, of all its gateways, and what bounds
// them; nil where it keeps none.
func (b *Backend) Held(ctx context.Context) (*Held, error) {
	reply, err := b.api.List(ctx, &sandboxpb.ListRequest{})
	h := reply.GetSessions()
	if err != nil || h == nil {
		return nil, sandboxpb.FromStatus(err)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return &Held{int(h.Kept), int(h.Frozen), int(h.Most), int(h.MostOfOwner), ms(h.RestMs), ms(h.IdleMs), ms(h.LifeMs)}, nil
}

// A Held tells of the sessions of a host.
type Held struct {
	Kept, Frozen      int // frozen ones are kept too
	Most, MostOfOwner int
	Rest, Idle, Life  time.Duration // without a call until one is frozen (0: never), until it ends, and until it ends in any case
}

// Kill ends one sandbox, and reports whether it existed.
func (b *Backend) Kill(ctx context.Context, id string) (bool, error) {
	reply, err := b.api.Kill(ctx, &sandboxpb.KillRequest{SandboxId: id})
	return reply.GetExisted(), sandboxpb.FromStatus(err)
}

// closePatience is how long a host may take to end after its connection closed.
const closePatience = time.Minute

// Close implements sallyport.Backend. A host that this backend started has
// ended, with every sandbox, when Close returns.
func (b *Backend) Close() error {
	var err error
	b.closeOnce.Do(func() {
		b.stop()
		err = b.conn.Close()
		if b.host == nil {
			return
		}
		kill := time.AfterFunc(closePatience, func() { _ = b.host.Process.Kill() })
		defer kill.Stop()
		if waitErr := b.host.Wait(); waitErr != nil {
			err = errors.Join(err, fmt.Errorf("the sandbox host: %w", waitErr))
		}
	})
	return err
}
