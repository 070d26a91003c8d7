package sandboxd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	p, err := s.startServer(start)
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
	select {
	case <-p.exited:
	case <-stream.Context().Done():
	}
	p.kill()
	out.Wait()
	return send.send(&sandboxpb.ServeReply{Message: &sandboxpb.ServeReply_Exit{Exit: p.exit()}})
}

func (s *Server) count(name string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers[name] += by; s.servers[name] == 0 {
		delete(s.servers, name)
	}
}

func (s *Server) startServer(start *sandboxpb.ServeStart) (*serverProcess, error) {
	switch start.Isolation {
	case sandboxpb.Isolation_ISOLATION_UID:
	case sandboxpb.Isolation_ISOLATION_GVISOR:
		return nil, refused(sallyport.Unavailable, "set `isolation: uid` for the server", "servers in gVisor are not supported by this sandbox host")
	default:
		return nil, refused(sallyport.Invalid, "name an isolation", "no isolation given")
	}
	var b [6]byte
	rand.Read(b[:]) // never fails
	return startProcess(s.cfg.Nursery, s.cfg.Servers.withDefaults(), start, hex.EncodeToString(b[:]))
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

// stop asks the server to end: its stdin is closed already; then SIGTERM, then
// SIGKILL to everything of it, all within grace.
func (p *serverProcess) stop(grace time.Duration) {
	for _, step := range []struct {
		wait time.Duration
		act  func()
	}{
		{grace / 2, func() { _ = unix.Kill(-p.cmd.Process.Pid, unix.SIGTERM) }},
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
	e := &sandboxpb.ServeExit{OutOfMemory: p.oom, StdinRead: p.read}
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		slog.Error("server has no wait status", "server", p.name)
		e.Code = -1
	case ws.Signaled():
		e.Code, e.Signal = int32(128+int(ws.Signal())), unix.SignalName(ws.Signal())
	default:
		e.Code = int32(ws.ExitStatus())
	}
	return e
}
