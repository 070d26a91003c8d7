package sandboxd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

type serveStream = grpc.BidiStreamingServer[sandboxpb.ServeRequest, sandboxpb.ServeReply]

// Serve implements the protocol. The server dies with its stream.
func (s *Server) Serve(stream serveStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return sandboxpb.ToStatus(refused(sallyport.Invalid, "send start first", "the first message must be start"))
	}
	p, err := s.startServer(stream.Context(), start)
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	s.count(start.Name, 1)
	defer s.count(start.Name, -1)
	send := &serialSender{stream: stream}
	if err := send.send(&sandboxpb.ServeReply{Message: &sandboxpb.ServeReply_Started{Started: true}}); err != nil {
		p.kill()
		return err
	}
	go s.feed(stream, p)
	var out sync.WaitGroup
	out.Go(func() { pump(p, p.stdout, send, stdoutReply) })
	out.Go(func() { pump(p, p.stderr, send, stderrReply) })
	if p.news != nil {
		out.Go(func() { pass(p, send) })
	}
	select {
	case <-p.exited:
	case <-stream.Context().Done():
	}
	p.kill()
	out.Wait()
	<-p.exited
	if p.status.said != "" {
		_ = send.send(stderrReply([]byte("sallyport: " + p.status.said + "\n")))
	}
	return send.send(&sandboxpb.ServeReply{Message: &sandboxpb.ServeReply_Exit{Exit: p.exit()}})
}

func (s *Server) count(name string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers[name] += by; s.servers[name] == 0 {
		delete(s.servers, name)
	}
}

func (s *Server) startServer(ctx context.Context, start *sandboxpb.ServeStart) (*serverProcess, error) {
	var b [6]byte
	rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	switch start.Isolation {
	case sandboxpb.Isolation_ISOLATION_UID:
		if start.Limits != nil || len(start.Reach)+len(start.Inject)+len(start.Roots) > 0 {
			return nil, refused(sallyport.Invalid, "use `isolation: gvisor`", "limits, egress, secrets and roots do not bind a server that runs as a uid")
		}
		return startProcess(s.cfg.Nursery, s.cfg.Servers.withDefaults(), start, id)
	case sandboxpb.Isolation_ISOLATION_GVISOR:
		return s.startService(ctx, start)
	default:
		return nil, refused(sallyport.Invalid, "name an isolation", "no isolation given")
	}
}

// feed carries the gateway's side of the stream to the server.
func (s *Server) feed(stream serveStream, p *serverProcess) {
	defer p.stdin.Close()
	for {
		m, err := stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				p.kill() // the gateway gave up
			}
			return
		}
		switch m := m.Message.(type) {
		case *sandboxpb.ServeRequest_Stdin:
			p.feed(m.Stdin)
		case *sandboxpb.ServeRequest_CloseStdin:
			p.stdin.Close()
		case *sandboxpb.ServeRequest_StopWithinMs:
			p.stdin.Close()
			go p.stop(milliseconds(m.StopWithinMs))
		}
	}
}

// A serialSender lets several goroutines send on one stream.
type serialSender struct {
	mu     sync.Mutex
	stream serveStream
}

func (s *serialSender) send(m *sandboxpb.ServeReply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Send(m)
}

func stdoutReply(b []byte) *sandboxpb.ServeReply {
	return &sandboxpb.ServeReply{Message: &sandboxpb.ServeReply_Stdout{Stdout: b}}
}

func stderrReply(b []byte) *sandboxpb.ServeReply {
	return &sandboxpb.ServeReply{Message: &sandboxpb.ServeReply_Stderr{Stderr: b}}
}

// pump sends what the server writes. When the gateway stops taking it, the
// server is killed: nobody would read it.
func pump(p *serverProcess, r io.ReadCloser, send *serialSender, reply func([]byte) *sandboxpb.ServeReply) {
	defer r.Close()
	for {
		buf := make([]byte, 32<<10)
		n, err := r.Read(buf)
		if n > 0 && send.send(reply(buf[:n])) != nil {
			p.kill()
			return
		}
		if err != nil {
			return
		}
	}
}

// pass sends what the server did beside what it said. Where nobody takes it, it is
// in the log at least.
func pass(p *serverProcess, send *serialSender) {
	for n := range p.news {
		if send.send(&sandboxpb.ServeReply{Message: &sandboxpb.ServeReply_News{News: n}}) != nil {
			p.logNews(n)
		}
	}
}

func (p *serverProcess) logNews(n *sandboxpb.ServeNews) {
	for _, a := range n.Attempts {
		slog.Info("a server reached out", "server", p.name, "target", a.Target, "allowed", a.Allowed, "reason", a.Reason, "count", a.Count, "bytes", a.Bytes)
	}
	if len(n.LimitsHit) > 0 {
		slog.Info("a server ran into limits", "server", p.name, "limits", n.LimitsHit)
	}
}

// tell takes news, and never waits: a gateway that takes none has them in the log.
func (p *serverProcess) tell(n *sandboxpb.ServeNews) {
	select {
	case p.news <- n:
	default:
		p.logNews(n)
	}
}

// stop asks the server to end: its stdin is closed already; then SIGTERM, then
// SIGKILL to everything of it, all within grace.
func (p *serverProcess) stop(grace time.Duration) {
	for _, step := range []struct {
		wait time.Duration
		act  func()
	}{
		{grace / 2, p.ask},
		{grace / 2, p.kill},
	} {
		t := time.NewTimer(step.wait)
		select {
		case <-p.exited:
			t.Stop()
			return
		case <-t.C:
			step.act()
		}
	}
}

func (p *serverProcess) exit() *sandboxpb.ServeExit {
	<-p.exited
	s := p.status
	return &sandboxpb.ServeExit{Code: int32(s.code), Signal: s.signal, OutOfMemory: s.oom, StdinRead: s.read}
}
