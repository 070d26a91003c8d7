package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// A Command is one program to run in a sandbox.
type Command struct {
	Argv   []string
	Env    []string          // NAME=value
	Files  map[string][]byte // by path, relative to the working folder
	Stdin  []byte
	Module *Module // what runs, in a tier without programs; Argv are then its name and its arguments
	GPU    bool
	Tier   string // "" means gvisor
	Image  string // "" means the backend's
	Limits sallyport.Limits
	CallID string
	Owner  string   // opaque: see owner
	Reach  []string // host:port, all that it may reach
	Inject []Injection

	Session *SessionRun                 // where it runs, if not in a sandbox of its own; Argv is then not used
	Talk    Script                      // that the program may call; nil if nothing
	Told    func(stderr bool, b []byte) // of output as it comes; may be nil
}

// A Module is code for a runtime that a tier brings along.
type Module struct {
	Language string // "javascript", "wasm"
	Code     []byte
	Digest   string // of wasm, sha256 in hex, "" if it is not known: the host may have it
}

// An Injection is a secret that the egress broker adds to requests to one host,
// outside of the sandbox.
type Injection struct {
	sallyport.SecretGrant
	Value []byte
}

// An Outcome is how a command ended. Bytes are exact.
type Outcome struct {
	ExitCode   int // 128+n for signal n
	Signal     string
	Stdout     []byte
	Stderr     []byte
	Truncated  bool
	KilledBy   string   // "memory", "timeout" or ""
	LimitsHit  []string // of processes, disk, output
	Duration   time.Duration
	PeakMemory int64
	Tier       string
	SandboxID  string

	Connections []sallyport.Connection // made or tried
	Receipt     *sallyport.Receipt

	Artifacts []Artifact // of the output folder
	LeftOut   []string   // paths of more, that are too many or too large

	Session string // its name, "" if none
	New     bool   // the session began with this call
	Ended   string // why the session is over, "" if it goes on
	Lost    bool   // the interpreter ended, and its variables with it
	Job     uint32 // of a program in the background
}

// An Artifact is a file that a program left in the output folder.
type Artifact struct {
	Path    string
	Content []byte
}

// Exec runs one command to its end. Limits that are zero take their defaults.
func (b *Backend) Exec(ctx context.Context, c Command) (Outcome, error) {
	if c.Tier == "" {
		c.Tier = sallyport.TierGVisor
	}
	if c.Image == "" && c.Module == nil {
		c.Image = b.o.Image
	}
	l := c.Limits.Or(sallyport.DefaultLimits())
	req := &sandboxpb.RunRequest{
		Tier: c.Tier, Image: c.Image, Argv: c.Argv, Env: c.Env, Stdin: c.Stdin, CallId: c.CallID, Owner: c.Owner, Reach: c.Reach, Gpu: c.GPU,
		Limits: &sandboxpb.Limits{
			TimeoutMs: max(1, l.Timeout.Milliseconds()), MemoryBytes: l.Memory, Processes: int32(min(l.Processes, 1<<20)),
			DiskBytes: l.Disk, OutputBytes: l.Output, Cpus: l.CPUs,
		},
	}
	for _, i := range c.Inject {
		req.Inject = append(req.Inject, &sandboxpb.Injection{Name: i.Name, Host: i.Host, Header: i.Header, Prefix: i.Prefix, Value: i.Value})
	}
	for path, content := range c.Files {
		req.Files = append(req.Files, &sandboxpb.File{Path: path, Content: content})
	}
	req.Session = b.sessionRun(c)
	if ctx.Err() != nil {
		return Outcome{}, ctx.Err()
	}
	r, err := b.asked(ctx, req, c)
	if status.Code(err) == codes.DeadlineExceeded {
		awaitDeadline(ctx) // the host's clock may be a moment ahead
	}
	if ctx.Err() != nil && err != nil {
		return Outcome{}, ctx.Err()
	}
	if err != nil {
		err = sandboxpb.FromStatus(err)
		if e, ok := errors.AsType[*sallyport.Error](err); ok && e.Code == sallyport.Unavailable && e.RetryAfter == 0 { // not just busy
			b.doubt(c.Tier)
		}
		return Outcome{}, err
	}
	out := Outcome{
		ExitCode: int(r.ExitCode), Signal: r.Signal, Stdout: r.Stdout, Stderr: r.Stderr, Truncated: r.Truncated,
		KilledBy: r.KilledBy, LimitsHit: r.LimitsHit, Duration: time.Duration(r.DurationMs) * time.Millisecond,
		PeakMemory: r.PeakMemoryBytes, Tier: c.Tier, SandboxID: r.SandboxId, Receipt: receipt(r.Receipt),
		New: r.SessionNew, Ended: r.SessionEnded, Lost: r.InterpreterEnded, Job: r.Job,
	}
	if c.Session != nil {
		out.Session = c.Session.Name
	}
	for _, f := range r.Artifacts {
		out.Artifacts = append(out.Artifacts, Artifact{f.Path, f.Content})
	}
	out.LeftOut = r.LeftOut
	out.Connections = connections(r.Attempts)
	return out, nil
}

func connections(attempts []*sandboxpb.Attempt) (all []sallyport.Connection) {
	for _, a := range attempts {
		all = append(all, sallyport.Connection{Target: a.Target, Allowed: a.Allowed, Reason: a.Reason, Count: int(a.Count), Bytes: a.Bytes})
	}
	return all
}

// ask has the host run a request, and tells of output as it comes if somebody
// wants to hear.
func (b *Backend) ask(ctx context.Context, req *sandboxpb.RunRequest, c Command) (*sandboxpb.RunReply, error) {
	switch {
	case c.Talk != nil:
		return b.converse(ctx, req, c.Talk)
	case c.Told == nil:
		return b.api.Run(ctx, req)
	}
	events, err := b.api.Follow(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		e, err := events.Recv()
		if err != nil {
			return nil, err
		}
		switch m := e.Message.(type) {
		case *sandboxpb.RunEvent_Stdout:
			c.Told(false, m.Stdout)
		case *sandboxpb.RunEvent_Stderr:
			c.Told(true, m.Stderr)
		case *sandboxpb.RunEvent_Done:
			return m.Done, nil
		}
	}
}

// awaitDeadline waits for a deadline that is about to come.
func awaitDeadline(ctx context.Context) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) < time.Second {
		<-ctx.Done()
	}
}

// Run implements sallyport.Backend.
func (b *Backend) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if job.Tool.Code != nil && job.Tool.Code.Language == sessionLanguage {
		return b.session(ctx, job)
	}
	c, err := command(job)
	if err == nil {
		err = b.load(&c, job)
	}
	if err != nil {
		return sallyport.Output{}, err
	}
	if tools := sallyport.ScriptTools(job.Tool, job.Args); len(tools) > 0 {
		return b.script(ctx, job, c, tools)
	}
	secrets, err := b.reveal(ctx, job)
	if err != nil {
		return sallyport.Output{}, err
	}
	for _, s := range secrets {
		if s.Header != "" {
			c.Inject = append(c.Inject, s)
		} else {
			c.Env = append(c.Env, s.Env+"="+string(s.Value))
		}
	}
	if job.Watched && len(secrets) == 0 { // what holds secrets is cleaned as a whole only
		c.Told = tell(job.Notify)
		if c.Session == nil && c.Module == nil { // there it always does
			c.Env = append(c.Env, unbuffered)
		}
	}
	out, err := b.Exec(ctx, c)
	if err != nil {
		return sallyport.Output{}, err
	}
	if len(c.Env) > 0 && len(secrets) > 0 { // what is in a picture cannot be masked
		for _, a := range out.Artifacts {
			out.LeftOut = append(out.LeftOut, a.Path)
		}
		out.Artifacts = nil
	}
	for _, s := range secrets {
		out.Stdout, out.Stderr = hide(out.Stdout, s), hide(out.Stderr, s)
	}
	return present(job, out)
}

// unbuffered has Python write lines as they are printed. It is the one
// variable that a waiting sandbox can still be given.
const unbuffered = "PYTHONUNBUFFERED=1"

// tell passes output on as it comes.
func tell(notify func(sallyport.Notice)) func(bool, []byte) {
	return func(stderr bool, b []byte) {
		n := sallyport.Notice{Stream: "stdout", Output: b}
		if stderr {
			n.Stream = "stderr"
		}
		notify(n)
	}
}

// hide masks a granted secret that a program prints as it is. What a program
// encodes first gets past it: grant secrets to tools that do not talk.
func hide(b []byte, s Injection) []byte {
	if len(s.Value) < 4 { // it would be found everywhere, and gives nothing away
		return b
	}
	return bytes.ReplaceAll(b, s.Value, []byte("[masked: secret "+s.Name+"]"))
}

// reveal reads the granted secrets. They exist in memory only; those that go
// into the environment inside the sandbox too.
func (b *Backend) reveal(ctx context.Context, job sallyport.Job) ([]Injection, error) {
	var out []Injection
	for _, g := range job.Tool.Manifest.Secrets {
		if b.o.Secrets == nil {
			return nil, refuse(sallyport.Unavailable, "configure a secret store", "the tool needs the secret %q, and there is no secret store", g.Name)
		}
		v, err := b.o.Secrets.Resolve(ctx, job.Who.Tenant, g.Name)
		if err != nil {
			e := sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("the tool's secret %q cannot be read", g.Name), Hint: "an operator sets it with `sallyport secrets set`"}
			e.Step, e.Err = sallyport.Execute, errors.Join(sallyport.ErrNotExecuted, err)
			return nil, &e
		}
		out = append(out, Injection{g, v})
	}
	return out, nil
}

func refuse(code sallyport.Code, hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: code, Step: sallyport.Execute, Hint: hint,
		Message: fmt.Sprintf(format, args...), Err: sallyport.ErrNotExecuted,
	}
}
