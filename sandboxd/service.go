package sandboxd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/sandboxd/install"
	"sallyport.dev/sallyport/sandboxd/install/npx"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier"
)

// Services run programs that live long in sandboxes. (gvisor)
type Services interface {
	// Serve starts a service; see gvisor.Host.Serve for the contract.
	Serve(ctx context.Context, v gvisor.Service) (*gvisor.Instance, error)
}

const (
	npmMemory   = 1 << 30   // of an installation
	npmOutput   = 256 << 10 // of what it says
	newsWaiting = 16        // that a gateway has not taken yet
)

// serviceLimits are those of a server in a sandbox that names none.
func serviceLimits() sallyport.Limits {
	l := sallyport.DefaultLimits()
	l.Processes = 128
	return l
}

// describe checks what a server in a sandbox asks for.
func (s *Server) describe(start *sandboxpb.ServeStart) (v gvisor.Service, uid int, err error) {
	c := s.cfg.Servers.withDefaults()
	uid, home, err := c.identity(start.Name)
	if err != nil {
		return v, 0, err
	}
	v = gvisor.Service{UID: uid, Request: toRequest(&sandboxpb.RunRequest{
		Image: "default", Argv: start.Argv, Env: start.Env, CallId: "server " + start.Name,
		Limits: start.Limits, Reach: start.Reach, Inject: start.Inject,
	})}
	v.Limits = v.Limits.Or(serviceLimits())
	if err := v.Check(); err != nil {
		return v, 0, err
	}
	roots, err := c.openRoots(start.Roots, uid)
	v.Folders = append([]gvisor.Folder{{Inside: tier.WorkDir, Path: home, Writable: true}}, roots...)
	return v, uid, err
}

// startService starts a server in a sandbox of its own.
func (s *Server) startService(ctx context.Context, start *sandboxpb.ServeStart) (*serverProcess, error) {
	if s.cfg.Services == nil {
		return nil, refused(sallyport.Unavailable, "set `isolation: uid` for the server", "this sandbox host runs no servers in gVisor")
	}
	v, uid, err := s.describe(start)
	if err != nil {
		return nil, err
	}
	command, named, err := npx.Parse(start.Argv)
	if err != nil {
		return nil, err
	}
	if named {
		file, have, err := s.packages.Open(start.Name, uid, command)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		v.Package = file
		if v.Argv, err = have.Program(gvisor.PackageDir, command); err != nil {
			return nil, err
		}
	}
	own, err := s.openState(v.Folders[0].Path, uid, start.StateBytes)
	if err != nil {
		return nil, err
	}
	p, err := s.launchService(ctx, start.Name, own, v)
	if err != nil {
		own.close()
	}
	return p, err
}

func (s *Server) launchService(ctx context.Context, name string, own *state, v gvisor.Service) (*serverProcess, error) {
	p := &serverProcess{name: name, news: make(chan *sandboxpb.ServeNews, newsWaiting), exited: make(chan struct{})}
	theirs, err := p.openStreams()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs[:])
	v.Stdin, v.Stdout, v.Stderr = theirs[0], theirs[1], theirs[2]
	v.Told = func(c []sallyport.Connection, limits []string) {
		p.tell(&sandboxpb.ServeNews{Attempts: toAttempts(c), LimitsHit: limits})
	}
	i, err := s.cfg.Services.Serve(ctx, v)
	if err != nil {
		p.closeStreams()
		return nil, err
	}
	p.ask, p.end = i.Terminate, func() {
		i.Kill()
		<-i.Done()
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		own.watch(i, p.tell)
	}()
	go func() {
		e := i.Exit()
		<-watched
		if e.Err != nil {
			slog.Error("a server left something behind", "server", name, "err", e.Err)
		}
		if len(e.Connections)+len(e.LimitsHit) > 0 {
			p.tell(&sandboxpb.ServeNews{Attempts: toAttempts(e.Connections), LimitsHit: e.LimitsHit})
		}
		status := serverStatus{code: e.Code, signal: e.Signal, oom: e.OutOfMemory}
		status.said = own.close()
		close(p.news)
		p.ended(status)
	}()
	return p, nil
}

// Install implements the protocol.
func (s *Server) Install(_ context.Context, r *sandboxpb.ServeStart) (*sandboxpb.InstallReply, error) {
	_, uid, err := s.describe(r)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	command, named, err := npx.Parse(r.Argv)
	if err != nil || !named {
		return &sandboxpb.InstallReply{}, sandboxpb.ToStatus(err)
	}
	have, err := s.packages.Install(r.Name, uid, command)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	return &sandboxpb.InstallReply{Package: have.Name, Version: have.Version, Digest: have.Digest}, nil
}

// npm runs npm as a server's own user, in a group that ends with it.
func (s *Server) npm(ctx context.Context, uid int, dir string, env, args []string) ([]byte, error) {
	path, err := install.Npm(s.cfg.Servers.Environ)
	if err != nil {
		return nil, err
	}
	g, err := s.cfg.Nursery.NewGroup(fmt.Sprintf("npm-%d", uid), npmMemory)
	if err != nil {
		return nil, err
	}
	c := s.cfg.Servers.withDefaults()
	cmd := c.asUser(uid, g, path, append([]string{"npm"}, args...))
	cmd.Dir, cmd.Env = dir, env
	out, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	err = s.cfg.Nursery.Start(cmd)
	in.Close()
	if err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	stop := context.AfterFunc(ctx, func() { _ = g.Kill(killPatience) })
	defer stop()
	var said bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = said.ReadFrom(&firstBytes{out, npmOutput})
	}()
	err = cmd.Wait()
	err = errors.Join(err, g.Kill(killPatience), g.Remove())
	<-read
	if ctx.Err() != nil {
		err = errors.New("it took too long")
	}
	return bytes.ReplaceAll(said.Bytes(), []byte(dir), []byte(strings.TrimSuffix(filepath.Base(dir), "/"))), err
}

// firstBytes reads a stream to its end and passes on the first bytes of it.
type firstBytes struct {
	from *os.File
	left int
}

func (f *firstBytes) Read(b []byte) (int, error) {
	n, err := f.from.Read(b)
	kept := min(n, f.left)
	f.left -= kept
	return kept, err
}
