package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// A LaunchSpec says which server to start.
type LaunchSpec struct {
	Name string   // the server's configured name; one uid and one home each
	Argv []string // passed as it is, no shell
	Env  []string // the whole environment, "NAME=value", but for HOME, TMPDIR and USER
	Own  []string // what of it the operator wrote: all that a sandbox is given

	Confinement sallyport.Confinement // in a sandbox
}

// An Isolation of a server.
type Isolation = sandboxpb.Isolation

// The isolations that a sandbox host knows.
const (
	InSandbox = sandboxpb.Isolation_ISOLATION_GVISOR // a long-lived sandbox
	AsUser    = sandboxpb.Isolation_ISOLATION_UID    // a uid of its own
)

// A Process is a running server. Its streams must be read, or it stalls.
type Process interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader

	// Wait returns when the process has ended: nil for status 0, else an error
	// that says how. It may be called more than once, also concurrently.
	Wait() error

	// Stop ends the process and all that it started: end of input first, then a
	// request to end, then force, all within grace. It returns when they are gone.
	Stop(grace time.Duration) error

	// Unread returns, once the server has ended, how many of the bytes written to
	// Stdin it certainly had not read, or -1 if that is not known.
	Unread() int
}

type serveClient = grpc.BidiStreamingClient[sandboxpb.ServeRequest, sandboxpb.ServeReply]

// Launch starts a long-lived third-party server. ctx bounds only the start.
func (b *Backend) Launch(ctx context.Context, how Isolation, spec LaunchSpec) (Process, error) {
	life, cancel := context.WithCancel(context.Background())
	stopWaiting := context.AfterFunc(ctx, cancel)
	p, err := b.launch(life, cancel, startOf(how, spec))
	if !stopWaiting() && err == nil { // ctx ended during the start
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return p, nil
}

// startOf is what the host is asked for. Confinement binds sandboxes only.
func startOf(how Isolation, spec LaunchSpec) *sandboxpb.ServeStart {
	start := &sandboxpb.ServeStart{Name: spec.Name, Argv: spec.Argv, Env: spec.Env, Isolation: how}
	if how != InSandbox {
		return start
	}
	c := spec.Confinement
	start.Env, start.Reach, start.StateBytes = spec.Own, c.Egress, c.State
	start.Limits = &sandboxpb.Limits{MemoryBytes: c.Limits.Memory, Processes: int32(min(c.Limits.Processes, 1<<20)), DiskBytes: c.Limits.Disk, Cpus: c.Limits.CPUs}
	for _, i := range c.Inject {
		start.Inject = append(start.Inject, &sandboxpb.Injection{Name: i.Name, Host: i.Host, Header: i.Header, Prefix: i.Prefix, Value: i.Value})
	}
	for _, r := range c.Roots {
		start.Roots = append(start.Roots, &sandboxpb.Root{Path: r.Path, Writable: r.Writable})
	}
	return start
}

// Install has the host check a server that is to run in a sandbox, and install
// the package that its command names, if it names one, afresh.
func (b *Backend) Install(ctx context.Context, spec LaunchSpec) (Package, error) {
	r, err := b.api.Install(ctx, startOf(InSandbox, spec))
	if err != nil {
		return Package{}, sandboxpb.FromStatus(err)
	}
	return Package{Name: r.Package, Version: r.Version, Digest: r.Digest}, nil
}

// A Package is what was installed for a server.
type Package struct {
	Name, Version string
	Digest        string // sha256 of all that was installed
}

func (b *Backend) launch(life context.Context, cancel context.CancelFunc, start *sandboxpb.ServeStart) (*process, error) {
	stream, err := b.api.Serve(life)
	if err != nil {
		return nil, sandboxpb.FromStatus(err)
	}
	// A failed send has its reason in Recv.
	_ = stream.Send(&sandboxpb.ServeRequest{Message: &sandboxpb.ServeRequest_Start{Start: start}})
	first, err := stream.Recv()
	if err != nil {
		return nil, sandboxpb.FromStatus(err)
	}
	if !first.GetStarted() {
		return nil, refuse(sallyport.Internal, "report this", "the sandbox host answered out of order")
	}
	p := &process{name: start.Name, news: b.o.News, stream: stream, cancel: cancel, done: make(chan struct{})}
	// The system's pipes have a buffer, as a process of one's own would: who reads
	// one stream does not have to read the other at the same moment.
	var outErr, errErr error
	p.stdoutR, p.stdoutW, outErr = os.Pipe()
	p.stderrR, p.stderrW, errErr = os.Pipe()
	if err := errors.Join(outErr, errErr); err != nil {
		return nil, err
	}
	go p.receive()
	return p, nil
}

// A process is a server on the other side of a Serve stream.
type process struct {
	name   string
	news   func(News)
	stream serveClient
	cancel context.CancelFunc

	stdoutR, stderrR *os.File
	stdoutW, stderrW *os.File

	mu     sync.Mutex // guards sending, closed and sent
	closed bool
	sent   int64 // bytes of input, those on their way out too

	done chan struct{}
	err  error  // valid once done is closed
	read *int64 // bytes of input that the server had read, if known; valid once done is closed
}

func (p *process) Stdin() io.WriteCloser { return (*processStdin)(p) }
func (p *process) Stdout() io.Reader     { return p.stdoutR }
func (p *process) Stderr() io.Reader     { return p.stderrR }

func (p *process) Wait() error {
	<-p.done
	return p.err
}

func (p *process) Unread() int {
	<-p.done
	if p.read == nil {
		return -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(max(0, p.sent-*p.read))
}

// stopPatience is how long a server that was killed at the end of its grace may take
// to be gone.
const stopPatience = 20 * time.Second

func (p *process) Stop(grace time.Duration) error {
	// In the background: a Write that waits for a server that does not read holds
	// the stream, and is ended only by the cancel below.
	go func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.stream.Send(&sandboxpb.ServeRequest{Message: &sandboxpb.ServeRequest_StopWithinMs{StopWithinMs: max(0, grace.Milliseconds())}})
	}()
	// Nobody may be reading any more; what is left must not hold the exit back.
	p.stdoutR.Close()
	p.stderrR.Close()
	t := time.NewTimer(grace + stopPatience)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		p.cancel() // the host kills the server when the stream ends
		<-p.done
		return refuse(sallyport.Unavailable, "see the log of sallyport-sandboxd", "the server did not stop in time")
	}
}

// receive distributes what the host sends, until the server has ended.
func (p *process) receive() {
	defer close(p.done)
	defer p.cancel()
	p.err = errors.New("the connection to the sandbox host ended")
	for {
		m, err := p.stream.Recv()
		if err != nil {
			p.err = sandboxpb.FromStatus(err)
			break
		}
		if e := m.GetExit(); e != nil {
			p.err, p.read = exitError(e), e.StdinRead
			break
		}
		switch m := m.Message.(type) {
		case *sandboxpb.ServeReply_Stdout:
			_, _ = p.stdoutW.Write(m.Stdout) // the reader has gone: drop it
		case *sandboxpb.ServeReply_Stderr:
			_, _ = p.stderrW.Write(m.Stderr)
		case *sandboxpb.ServeReply_News:
			if p.news != nil {
				p.news(News{p.name, connections(m.News.Attempts), m.News.LimitsHit})
			}
		}
	}
	p.stdoutW.Close()
	p.stderrW.Close()
}

func exitError(e *sandboxpb.ServeExit) error {
	switch {
	case e.OutOfMemory:
		return errors.New("killed: out of memory")
	case e.Signal != "":
		return fmt.Errorf("ended by %s", e.Signal)
	case e.Code != 0:
		return fmt.Errorf("exit status %d", e.Code)
	default:
		return nil
	}
}

// A processStdin is the server's standard input.
type processStdin process

const stdinChunk = 64 << 10

func (s *processStdin) Write(b []byte) (int, error) {
	p := (*process)(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	p.sent += int64(len(b))
	for n := 0; n < len(b); n += stdinChunk {
		part := b[n:min(len(b), n+stdinChunk)]
		if err := p.stream.Send(&sandboxpb.ServeRequest{Message: &sandboxpb.ServeRequest_Stdin{Stdin: part}}); err != nil {
			return n, io.ErrClosedPipe
		}
	}
	return len(b), nil
}

func (s *processStdin) Close() error {
	p := (*process)(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	_ = p.stream.Send(&sandboxpb.ServeRequest{Message: &sandboxpb.ServeRequest_CloseStdin{CloseStdin: true}})
	return nil
}
