// Package host is a gateway's connection to its sandbox host, or the lack of one.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/child"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/image/module"
	"sallyport.dev/sallyport/secret"
)

// A Host is the connection to a sandbox host, or the lack of one. There
// is no weaker way to run code: without a host, every call that needs one is
// refused.
type Host struct {
	*sandbox.Backend
	ended  <-chan struct{} // closed when a host that the first stage started is gone; nil if it started none
	digest string
	remote bool // it has images of its own
}

// A Started is a sandbox host that the first stage of serve started.
type Started struct {
	Socket string // number of the inherited descriptor, "" if none was started
	PID    string
}

// Open takes over the sandbox host that the first stage started, or connects to
// the configured one.
func Open(vault *secret.Vault, c config.Sandbox, started Started, news func(sandbox.News), log *slog.Logger) (*Host, error) {
	o := sandbox.Options{Image: c.Image, Secrets: vault, Modules: module.NewStore(cli.CacheDir()), Key: vault.Derive("sandbox host"), News: news}
	h := &Host{remote: c.Host != ""}
	img, err := image.Open(cli.CacheDir(), c.Image)
	switch {
	case err == nil:
		h.digest, o.Image = img.Digest, img.Digest
	case c.Host == "":
		log.Warn("no sandbox image, so code calls will be refused", "err", err)
	}
	switch {
	case c.Host != "":
		h.Backend, err = sandbox.Dial(c.Host, o)
	case started.Socket != "":
		var n int
		if n, err = strconv.Atoi(started.Socket); err != nil {
			return nil, err
		}
		if pid, err := strconv.Atoi(started.PID); err == nil {
			h.ended = reap(pid)
		}
		h.Backend, err = sandbox.Connect(os.NewFile(uintptr(n), "sandboxd"), o)
	default:
		err = nil
	}
	return h, err
}

// Close ends the sandbox host that the first stage started, and returns when
// it and every sandbox are gone.
func (h *Host) Close() error {
	if h.Backend == nil {
		return nil
	}
	err := h.Backend.Close()
	if h.ended != nil {
		<-h.ended
	}
	return err
}

// reap takes the end of a child of this process whenever it comes: one that is killed
// while the gateway goes on leaves no zombie.
func reap(pid int) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if p, err := os.FindProcess(pid); err == nil {
			_, _ = p.Wait() // how it ended, its own log says
		}
	}()
	return ended
}

// Missing is the error of a gateway that has no sandbox host.
func (h *Host) Missing() error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
		Message: "this gateway has no sandbox host, and neither code nor servers with isolation gvisor or uid run elsewhere",
		Hint:    "start `sallyport serve` as root, or have root start sallyport-sandboxd and name its socket as sandbox.host",
	}
}

// Info implements sallyport.Backend.
func (h *Host) Info() sallyport.Info {
	return sallyport.Info{Name: "sandbox", Isolation: "gvisor"}
}

// Check implements sallyport.Backend.
func (h *Host) Check(ctx context.Context) error {
	if h.Backend == nil {
		return h.Missing()
	}
	return h.Backend.Check(ctx)
}

// Run implements sallyport.Backend.
func (h *Host) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if h.Backend == nil {
		return sallyport.Output{}, h.Missing()
	}
	return h.Backend.Run(ctx, job)
}

// Images tells the digests that names stand for now, once: a name that is moved
// later means the same until the next start or reload.
func (h *Host) Images(names ...string) (sallyport.Images, error) {
	found := sallyport.Images{}
	for _, name := range names {
		digest, err := image.NewStore(cli.CacheDir()).Digest(name)
		switch {
		case err == nil:
			found[name] = digest
		case h.remote:
			found[name] = name // that host has images of its own
		default:
			return nil, err
		}
	}
	return found, nil
}

// Fix puts digests in place of the names of images in manifests.
func (h *Host) Fix(manifests []catalog.Manifest) ([]catalog.Manifest, error) {
	fixed := slices.Clone(manifests)
	for i, m := range fixed {
		if m.Rules.Image == "" {
			continue
		}
		found, err := h.Images(m.Rules.Image)
		if e, ok := errors.AsType[*sallyport.Error](err); ok {
			e.Message = m.File + ": " + e.Message
		}
		if err != nil {
			return nil, err
		}
		fixed[i].Rules.Image = found[m.Rules.Image]
	}
	return fixed, nil
}

// Image is the digest that a ticket for sandboxed code binds.
func (h *Host) Image() string { return h.digest }

// Launchers start third-party servers: in sandboxes or as users of their own,
// through the sandbox host; or, where the operator says so, as the gateway's own
// user.
func (h *Host) Launchers() map[string]upstream.Launcher {
	all := map[string]upstream.Launcher{config.IsolationNone: child.Launcher{}}
	for name, how := range map[string]sandbox.Isolation{config.IsolationUID: sandbox.AsUser, config.IsolationGVisor: sandbox.InSandbox} {
		all[name] = launcher{h.Backend, how}
		if h.Backend == nil {
			all[name] = noLauncher{h.Missing()}
		}
	}
	return all
}

// Install checks a server for a sandbox, and installs its package. It says what
// was installed, "" for nothing.
func (h *Host) Install(ctx context.Context, name string, argv []string, c sallyport.Confinement) (string, error) {
	if h.Backend == nil {
		return "", nil // the start says it
	}
	p, err := h.Backend.Install(ctx, sandbox.LaunchSpec{Name: name, Argv: argv, Confinement: c})
	if err != nil || p.Name == "" {
		return "", err
	}
	return fmt.Sprintf("%s@%s, all of it with digest sha256:%s", p.Name, p.Version, p.Digest), nil
}

// A launcher starts servers through the sandbox host.
type launcher struct {
	host *sandbox.Backend
	how  sandbox.Isolation
}

// Launch implements upstream.Launcher.
func (l launcher) Launch(ctx context.Context, s upstream.LaunchSpec) (pipe.Process, error) {
	return l.host.Launch(ctx, l.how, sandbox.LaunchSpec(s))
}

type noLauncher struct{ why error }

// Launch implements upstream.Launcher.
func (n noLauncher) Launch(context.Context, upstream.LaunchSpec) (pipe.Process, error) {
	return nil, n.why
}

// Kept says for doctor how many there are, and what bounds them.
func (h *Host) Kept(ctx context.Context) string {
	if h.Backend == nil {
		return ""
	}
	s, err := h.Held(ctx)
	switch {
	case err != nil:
		return "" // the sandbox host's own line says why
	case s == nil:
		return "none are kept (sandbox.sessions.count)"
	}
	rest := "stay in memory"
	if s.Rest > 0 {
		rest = fmt.Sprintf("are frozen after %s without a call", s.Rest)
	}
	return fmt.Sprintf("%d of at most %d (%d of one agent), %d of them frozen; they %s and end after %s without a call, or %s old (sandbox.sessions)",
		s.Kept, s.Most, s.MostOfOwner, s.Frozen, rest, s.Idle, s.Life)
}
