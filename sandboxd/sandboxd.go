// Package sandboxd is the sandbox host's side of the protocol in sandboxpb: it
// checks what a gateway asks for and runs it in a tier, or under a uid of its
// own. It has the privileges and no policy.
package sandboxd

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/install"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/sandboxd/volume"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
	"sallyport.dev/sallyport/tier/session"
)

// A Nursery starts third-party servers so that none can outlive the host. (gvisor)
type Nursery interface {
	NewGroup(name string, memory int64) (cgroup.Group, error)
	Start(cmd *exec.Cmd) error
}

// A Config says what a Server is made of.
type Config struct {
	Tiers    map[string]tier.Tier // by name, those that this host has
	Services Services
	Nursery  Nursery
	Servers  ServerConfig
	Volumes  *volume.Store // servers' own folders; nil: they are only looked at

	Sessions *session.Sessions // nil: none are kept
	Grace    time.Duration     // that a gateway may be away before its sessions end; 0 means DefaultGrace
}

// A Server answers gateways.
type Server struct {
	sandboxpb.UnimplementedSandboxesServer
	cfg       Config
	packages  *install.Store
	gateways  *gateways
	noVolumes sync.Once // said that there are none

	mu      sync.Mutex
	servers map[string]int // name → how many run
}

// NewServer returns a server that is ready to be registered with grpc.
func NewServer(cfg Config) *Server {
	s := &Server{cfg: cfg, servers: map[string]int{}}
	s.gateways = newGateways(cfg.Grace, func(gateway string) int {
		if cfg.Sessions == nil {
			return 0
		}
		return cfg.Sessions.EndOf(ownedBy(gateway, ""), "its gateway is gone")
	})
	s.packages = &install.Store{Dir: filepath.Join(cfg.Servers.State, "packages"), Run: s.npm, Environ: cfg.Servers.Environ}
	if err := s.packages.Clean(); err != nil {
		slog.Warn("an unfinished installation could not be removed", "err", err)
	}
	if err := volume.Clean(cfg.Servers.homes()); err != nil {
		slog.Warn("the folder of a server that runs no more stays mounted", "err", err)
	}
	return s
}

// Register makes a grpc server that answers with s.
func (s *Server) Register(opts ...grpc.ServerOption) *grpc.Server {
	opts = append(opts, grpc.MaxRecvMsgSize(sandboxpb.MaxMessage), grpc.MaxSendMsgSize(sandboxpb.MaxMessage))
	g := grpc.NewServer(opts...)
	sandboxpb.RegisterSandboxesServer(g, s)
	return g
}

// Probe implements the protocol.
func (s *Server) Probe(ctx context.Context, r *sandboxpb.ProbeRequest) (*sandboxpb.ProbeReply, error) {
	t, err := s.tier(r.Tier)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	if r.Gpu {
		return probeGPU(ctx, t)
	}
	platform, err := t.Probe(ctx, r.Image)
	return &sandboxpb.ProbeReply{Platform: platform}, sandboxpb.ToStatus(err)
}

// A shower can say what GPUs it would show a program. (gvisor)
type shower interface {
	ProbeGPU(ctx context.Context) (what string, err error)
}

func probeGPU(ctx context.Context, t tier.Tier) (*sandboxpb.ProbeReply, error) {
	g, ok := t.(shower)
	if !ok {
		return nil, sandboxpb.ToStatus(tier.Unavailable("use the tier gvisor", "this tier shows no GPU"))
	}
	what, err := g.ProbeGPU(ctx)
	return &sandboxpb.ProbeReply{Platform: what}, sandboxpb.ToStatus(err)
}

// Run implements the protocol.
func (s *Server) Run(ctx context.Context, r *sandboxpb.RunRequest) (*sandboxpb.RunReply, error) {
	reply, err := s.run(ctx, r, nil)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	return reply, nil
}

func toReply(res tier.Result) *sandboxpb.RunReply {
	reply := &sandboxpb.RunReply{
		SandboxId: res.ID, ExitCode: int32(res.ExitCode), Signal: res.Signal,
		Stdout: res.Stdout, Stderr: res.Stderr, Truncated: res.Truncated,
		KilledBy: string(res.KilledBy), LimitsHit: res.LimitsHit,
		DurationMs: res.Duration.Milliseconds(), PeakMemoryBytes: res.PeakMemory,
		Receipt: toReceipt(res.Receipt),
	}
	for _, f := range res.Output.Files {
		reply.Artifacts = append(reply.Artifacts, &sandboxpb.File{Path: strings.ToValidUTF8(f.Path, "\uFFFD"), Content: f.Content})
	}
	for _, p := range res.Output.LeftOut {
		reply.LeftOut = append(reply.LeftOut, strings.ToValidUTF8(p, "\uFFFD"))
	}
	reply.Attempts = toAttempts(res.Connections)
	return reply
}

func toAttempts(all []sallyport.Connection) (out []*sandboxpb.Attempt) {
	for _, a := range all {
		out = append(out, &sandboxpb.Attempt{
			Target: strings.ToValidUTF8(a.Target, "\uFFFD"), Allowed: a.Allowed, Reason: a.Reason, Count: int32(min(a.Count, math.MaxInt32)), Bytes: a.Bytes,
		})
	}
	return out
}

// List implements the protocol.
func (s *Server) List(context.Context, *sandboxpb.ListRequest) (*sandboxpb.ListReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := &sandboxpb.ListReply{}
	for name, t := range s.cfg.Tiers {
		for _, r := range t.List() {
			reply.Sandboxes = append(reply.Sandboxes, &sandboxpb.Sandbox{
				Id: r.ID, Tier: name, CallId: r.CallID, StartedUnixMs: r.Started.UnixMilli(), Deleting: r.Deleting,
			})
		}
	}
	if s.cfg.Sessions != nil {
		h := s.cfg.Sessions.Held()
		reply.Sessions = &sandboxpb.Held{
			Kept: int32(h.Kept), Frozen: int32(h.Frozen), Most: int32(h.Most), MostOfOwner: int32(h.MostOfOwner),
			RestMs: h.Rest.Milliseconds(), IdleMs: h.Idle.Milliseconds(), LifeMs: h.Life.Milliseconds(),
		}
	}
	for name := range s.servers {
		reply.Servers = append(reply.Servers, name)
	}
	return reply, nil
}

// Kill implements the protocol.
func (s *Server) Kill(_ context.Context, r *sandboxpb.KillRequest) (*sandboxpb.KillReply, error) {
	for _, t := range s.cfg.Tiers {
		if t.Kill(r.SandboxId) {
			return &sandboxpb.KillReply{Existed: true}, nil
		}
	}
	return &sandboxpb.KillReply{}, nil
}

// tier finds a tier by name. One that is not here is refused: never another.
func (s *Server) tier(name string) (tier.Tier, error) {
	if t := s.cfg.Tiers[name]; t != nil {
		return t, nil
	}
	return nil, tier.Unavailable("use one of: "+strings.Join(slices.Sorted(maps.Keys(s.cfg.Tiers)), ", "), "tier %.40q cannot run on this host", name)
}

func toRequest(r *sandboxpb.RunRequest) tier.Request {
	l := r.GetLimits()
	req := tier.Request{
		Image: r.Image, Argv: r.Argv, Env: r.Env, Stdin: r.Stdin, CallID: r.CallId, Way: tier.Way{Reach: r.Reach}, GPU: r.Gpu,
		Limits: sallyport.Limits{
			Timeout: milliseconds(l.GetTimeoutMs()), Memory: l.GetMemoryBytes(),
			Processes: int(l.GetProcesses()), Disk: l.GetDiskBytes(), Output: l.GetOutputBytes(), CPUs: l.GetCpus(),
		},
	}
	if m := r.Module; m != nil {
		req.Module = &tier.Module{Language: m.Language, Code: m.Code, Digest: m.Digest}
	}
	for _, i := range r.Inject {
		req.Way.Inject = append(req.Way.Inject, tier.Injection{Name: i.GetName(), Host: i.GetHost(), Header: i.GetHeader(), Prefix: i.GetPrefix(), Value: i.GetValue()})
	}
	for _, f := range r.Files {
		req.Files = append(req.Files, tier.File{Path: f.GetPath(), Content: f.GetContent()})
	}
	return req
}

// MaxTimeout bounds one run, and keeps arithmetic with durations from wrapping.
const MaxTimeout = 24 * time.Hour

func milliseconds(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), MaxTimeout.Milliseconds())) * time.Millisecond
}
