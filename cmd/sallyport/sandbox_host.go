package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	sagatools "sallyport.dev/sallyport/backend/saga"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/backend/search"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/child"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/secret"
)

// A sandboxHost is the connection to a sandbox host, or the lack of one. There
// is no weaker way to run code: without a host, every call that needs one is
// refused.
type sandboxHost struct {
	*sandbox.Backend
	pid    int // of a host that the first stage started
	digest string
	remote bool // it has images of its own
}

// openSandbox takes over the sandbox host that the first stage started, or
// connects to the configured one.
func openSandbox(vault *secret.Vault, c config.Sandbox, news func(sandbox.News), log *slog.Logger) (*sandboxHost, error) {
	o := sandbox.Options{Image: c.Image, Secrets: vault, Key: vault.Derive("sandbox host"), News: news}
	h := &sandboxHost{remote: c.Host != ""}
	img, err := image.Open(cli.CacheDir(), c.Image)
	switch {
	case err == nil:
		h.digest, o.Image = img.Digest, img.Digest
	case c.Host == "":
		log.Warn("no sandbox image, so code calls will be refused", "err", err)
	}
	switch fd := os.Getenv(envSandbox); {
	case c.Host != "":
		h.Backend, err = sandbox.Dial(c.Host, o)
	case fd != "":
		var n int
		if n, err = strconv.Atoi(fd); err != nil {
			return nil, err
		}
		h.pid, _ = strconv.Atoi(os.Getenv(envPID))
		h.Backend, err = sandbox.Connect(os.NewFile(uintptr(n), "sandboxd"), o)
	default:
		err = nil
	}
	return h, err
}

// Close ends the sandbox host that the first stage started, and returns when
// it and every sandbox are gone.
func (h *sandboxHost) Close() error {
	if h.Backend == nil {
		return nil
	}
	err := h.Backend.Close()
	if h.pid > 0 {
		if p, e := os.FindProcess(h.pid); e == nil {
			_, _ = p.Wait() // its status says nothing more
		}
	}
	return err
}

func (h *sandboxHost) missing() error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
		Message: "this gateway has no sandbox host, and neither code nor servers with isolation gvisor or uid run elsewhere",
		Hint:    "start `sallyport serve` as root, or have root start sallyport-sandboxd and name its socket as sandbox.host",
	}
}

func (h *sandboxHost) Info() sallyport.Info {
	return sallyport.Info{Name: "sandbox", Isolation: "gvisor"}
}

func (h *sandboxHost) Check(ctx context.Context) error {
	if h.Backend == nil {
		return h.missing()
	}
	return h.Backend.Check(ctx)
}

func (h *sandboxHost) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if h.Backend == nil {
		return sallyport.Output{}, h.missing()
	}
	return h.Backend.Run(ctx, job)
}

// images tells the digests that names stand for now, once: a name that is moved
// later means the same until the next start or reload.
func (h *sandboxHost) images(names ...string) (sallyport.Images, error) {
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

// fix puts digests in place of the names of images in manifests.
func (h *sandboxHost) fix(manifests []catalog.Manifest) ([]catalog.Manifest, error) {
	fixed := slices.Clone(manifests)
	for i, m := range fixed {
		if m.Rules.Image == "" {
			continue
		}
		found, err := h.images(m.Rules.Image)
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

// image is the digest that a ticket for sandboxed code binds.
func (h *sandboxHost) image() string { return h.digest }

// builtins are the gateway's own tools.
func builtins(images sallyport.Images) []sallyport.Tool {
	return append(slices.Concat(sandbox.Tools(images), sagatools.Tools(), search.Tools()), sallyport.Tool{
		Name: gateway.ApprovalResult, Version: "1",
		Description: "Comes back for the result of a call that waits for a human's approval.",
		Definition: []byte(`{"name":"approval_result","title":"Result of an approved call",` +
			`"description":"Comes back for the result of a call that waited for a human's approval. Give the ticket from the approval_pending answer. If it was approved, the call runs now, once, exactly as it was asked for; asking again returns the same result.",` +
			`"inputSchema":{"type":"object","properties":{"ticket":{"type":"string","description":"id of the ticket, tkt_…","minLength":1,"maxLength":64}},"required":["ticket"],"additionalProperties":false}}`),
		InputSchema: []byte(`{"type":"object","properties":{"ticket":{"type":"string","description":"id of the ticket","minLength":1,"maxLength":64}},"required":["ticket"],"additionalProperties":false}`),
		Origin:      sallyport.Origin{Backend: "builtin", Name: gateway.ApprovalResult},
		Status:      sallyport.ToolActive,
	})
}

// launchers start third-party servers: in sandboxes or as users of their own,
// through the sandbox host; or, where the operator says so, as the gateway's own
// user.
func (h *sandboxHost) launchers() map[string]upstream.Launcher {
	all := map[string]upstream.Launcher{config.IsolationNone: child.Launcher{}}
	for name, how := range map[string]sandbox.Isolation{config.IsolationUID: sandbox.AsUser, config.IsolationGVisor: sandbox.InSandbox} {
		all[name] = launcher{h.Backend, how}
		if h.Backend == nil {
			all[name] = noLauncher{h.missing()}
		}
	}
	return all
}

// install checks a server for a sandbox, and installs its package. It says what
// was installed, "" for nothing.
func (h *sandboxHost) install(ctx context.Context, name string, argv []string, c sallyport.Confinement) (string, error) {
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

func (l launcher) Launch(ctx context.Context, s upstream.LaunchSpec) (pipe.Process, error) {
	return l.host.Launch(ctx, l.how, sandbox.LaunchSpec(s))
}

type noLauncher struct{ why error }

func (n noLauncher) Launch(context.Context, upstream.LaunchSpec) (pipe.Process, error) {
	return nil, n.why
}

// sessions says for doctor how many there are, and what bounds them.
func (h *sandboxHost) sessions(ctx context.Context) string {
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

func (h *sandboxHost) RunCommand(ctx context.Context, c adminapi.SandboxCommand) (adminapi.SandboxResult, error) {
	if h.Backend == nil {
		return adminapi.SandboxResult{}, h.missing()
	}
	if _, err := egress.ParseRules(c.Allow); err != nil {
		return adminapi.SandboxResult{}, &sallyport.Error{Code: sallyport.Invalid, Message: err.Error(), Hint: "for example --allow api.example.com:443"}
	}
	limits := sallyport.DefaultLimits()
	if c.Timeout != 0 {
		t := time.Duration(c.Timeout * float64(time.Second))
		if t <= 0 || t > limits.Timeout {
			return adminapi.SandboxResult{}, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("timeout: more than 0 and at most %s", limits.Timeout)}
		}
		limits.Timeout = t
	}
	o, err := h.Exec(ctx, sandbox.Command{Argv: c.Argv, Stdin: c.Stdin, Tier: c.Tier, Image: c.Image, Limits: limits, CallID: "cli", Reach: c.Allow})
	return adminapi.SandboxResult{
		ExitCode: o.ExitCode, Signal: o.Signal, Stdout: o.Stdout, Stderr: o.Stderr, KilledBy: o.KilledBy, LimitsHit: o.LimitsHit,
		Truncated: o.Truncated, SandboxID: o.SandboxID, Tier: o.Tier, Duration: float64(o.Duration) / float64(time.Millisecond),
		Connections: o.Connections, Receipt: o.Receipt,
	}, err
}

func (h *sandboxHost) Running(ctx context.Context) ([]adminapi.SandboxInfo, error) {
	if h.Backend == nil {
		return nil, h.missing()
	}
	list, _, err := h.List(ctx)
	out := make([]adminapi.SandboxInfo, 0, len(list))
	for _, s := range list {
		state := "running"
		if s.Deleting {
			state = "deleting"
		}
		out = append(out, adminapi.SandboxInfo{ID: s.ID, Tier: s.Tier, CallID: s.CallID, Started: s.Started, State: state})
	}
	return out, err
}
