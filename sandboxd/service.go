package sandboxd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/sandboxd/install"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// Services run programs that live long in sandboxes. (gvisor)
type Services interface {
	// Serve starts a service; see gvisor.Host.Serve for the contract.
	Serve(ctx context.Context, v gvisor.Service) (*gvisor.Instance, error)
}

const (
	defaultState = 256 << 20   // bytes of a server's own folder
	stateFiles   = 20_000      // and files in it
	stateLook    = time.Second // between looks at it
	npmMemory    = 1 << 30     // of an installation
	npmOutput    = 256 << 10   // of what it says
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
	v.Folders = append([]gvisor.Folder{{Inside: gvisor.WorkDir, Path: home, Writable: true}}, roots...)
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
	home, bound := v.Folders[0].Path, start.StateBytes
	if bound <= 0 {
		bound = defaultState
	}
	if size, files := measure(home, bound); size > bound || files > stateFiles {
		return nil, refused(sallyport.Unavailable, "delete what is not needed from "+home+", or raise the server's limit state", "the server's own folder is full: more than %d bytes or %d files", bound, stateFiles)
	}
	command, named, err := install.Parse(start.Argv)
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
	return s.launchService(ctx, start.Name, bound, v)
}

func (s *Server) launchService(ctx context.Context, name string, bound int64, v gvisor.Service) (*serverProcess, error) {
	p := &serverProcess{name: name, exited: make(chan struct{})}
	theirs, err := p.openStreams()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs[:])
	v.Stdin, v.Stdout, v.Stderr = theirs[0], theirs[1], theirs[2]
	i, err := s.cfg.Services.Serve(ctx, v)
	if err != nil {
		p.closeStreams()
		return nil, err
	}
	p.ask, p.end = i.Terminate, func() {
		i.Kill()
		<-i.Done()
	}
	var full atomic.Bool
	go watchState(v.Folders[0].Path, bound, i, &full)
	go func() {
		e := i.Exit()
		if e.Err != nil {
			slog.Error("a server left something behind", "server", name, "err", e.Err)
		}
		for _, a := range e.Connections {
			slog.Info("a server reached out", "server", name, "target", a.Target, "allowed", a.Allowed, "reason", a.Reason, "count", a.Count, "bytes", a.Bytes)
		}
		status := serverStatus{code: e.Code, signal: e.Signal, oom: e.OutOfMemory}
		if full.Load() {
			status.said = fmt.Sprintf("stopped, for its own folder holds more than %d bytes or %d files", bound, stateFiles)
		}
		p.ended(status)
	}()
	return p, nil
}

// watchState ends a service whose own folder grows beyond its bound. gVisor has
// no quotas for a folder of the host: what a server writes between two looks is
// what it can have in excess.
func watchState(home string, bound int64, i *gvisor.Instance, full *atomic.Bool) {
	t := time.NewTicker(stateLook)
	defer t.Stop()
	for {
		select {
		case <-i.Done():
			return
		case <-t.C:
			if size, files := measure(home, bound); size > bound || files > stateFiles {
				full.Store(true)
				i.Kill()
				return
			}
		}
	}
}

// measure adds up what a folder holds, until it is more than bound. It follows
// no links.
func measure(dir string, bound int64) (size int64, files int) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what vanishes meanwhile counts as nothing
		if files++; size > bound || files > stateFiles {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // see above
		}
		if info, err := d.Info(); err == nil {
			size += max(info.Size(), allocated(info))
		}
		return nil
	})
	return size, files
}

// Install implements the protocol.
func (s *Server) Install(_ context.Context, r *sandboxpb.ServeStart) (*sandboxpb.InstallReply, error) {
	_, uid, err := s.describe(r)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	command, named, err := install.Parse(r.Argv)
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

// allocated is what a file takes on the disk.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return 0
}
