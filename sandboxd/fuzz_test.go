package sandboxd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/cgroup"
)

// A strictTier runs nothing. It checks a request as the real one does, and then
// fails the test where what passed is not within bounds that are written here
// once more.
type strictTier struct{ t *testing.T }

func (s strictTier) Probe(context.Context, string) (string, error) { return "none", nil }
func (s strictTier) List() []tier.Running                          { return []tier.Running{{ID: "sp-1"}} }
func (s strictTier) Kill(id string) bool                           { return id == "sp-1" }

func (s strictTier) Run(_ context.Context, r tier.Request) (tier.Result, error) {
	if err := r.Check(); err != nil {
		return tier.Result{}, err
	}
	l, size := r.Limits, len(r.Stdin)
	for _, f := range r.Files {
		size += len(f.Content)
		if !filepath.IsLocal(f.Path) || strings.ContainsRune(f.Path, 0) || slices.Contains(strings.Split(f.Path, "/"), "..") {
			s.t.Errorf("a file %q reached the tier", f.Path)
		}
	}
	for what, bad := range map[string]bool{
		"timeout": l.Timeout <= 0 || l.Timeout > MaxTimeout, "memory": l.Memory <= 0, "disk": l.Disk <= 0, "output": l.Output <= 0,
		"processes": l.Processes <= 0 || l.Processes > 1<<16, "cpus": math.IsNaN(l.CPUs) || math.IsInf(l.CPUs, 0) || l.CPUs <= 0,
		"argv": len(r.Argv) == 0, "size": size > 1<<30,
	} {
		if bad {
			s.t.Errorf("%s out of bounds reached the tier: %+v", what, l)
		}
	}
	for _, word := range append(slices.Clone(r.Argv), r.Env...) {
		if strings.ContainsRune(word, 0) {
			s.t.Errorf("the word %q reached the tier", word)
		}
	}
	return tier.Result{ID: "sp-2"}, nil
}

// A closedNursery starts nothing.
type closedNursery struct{}

var errClosed = errors.New("closed")

func (closedNursery) NewGroup(string, int64) (cgroup.Group, error) { return cgroup.Group{}, errClosed }
func (closedNursery) Start(*exec.Cmd) error                        { return errClosed }

// A scripted stream says what the fuzzer wrote.
type scripted struct {
	said [][]byte
	sent int
}

func (s *scripted) Recv() (*sandboxpb.ServeRequest, error) {
	if len(s.said) == 0 {
		return nil, io.EOF
	}
	m := &sandboxpb.ServeRequest{}
	err := proto.Unmarshal(s.said[0], m)
	s.said = s.said[1:]
	return m, err
}
func (s *scripted) Send(*sandboxpb.ServeReply) error { s.sent++; return nil }
func (s *scripted) Context() context.Context         { return context.Background() }
func (s *scripted) SetHeader(metadata.MD) error      { return nil }
func (s *scripted) SendHeader(metadata.MD) error     { return nil }
func (s *scripted) SetTrailer(metadata.MD)           {}
func (s *scripted) SendMsg(any) error                { return nil }
func (s *scripted) RecvMsg(any) error                { return io.EOF }

func wire(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func seedRequests(f *testing.F) {
	l := &sandboxpb.Limits{TimeoutMs: 1000, MemoryBytes: 64 << 20, Processes: 8, DiskBytes: 1 << 20, OutputBytes: 1 << 16, Cpus: 1}
	sound := &sandboxpb.RunRequest{
		Tier: "gvisor", Image: "default", Argv: []string{"true"}, Env: []string{"A=b"}, Limits: l,
		Files: []*sandboxpb.File{{Path: "a/b", Content: []byte("c")}}, Reach: []string{"a.test:443"},
		Inject: []*sandboxpb.Injection{{Name: "n", Host: "a.test:443", Header: "Authorization", Value: []byte("v")}},
	}
	f.Add(byte(1), wire(f, sound))
	for _, change := range []func(*sandboxpb.RunRequest){
		func(r *sandboxpb.RunRequest) { r.Tier = "microvm" },
		func(r *sandboxpb.RunRequest) { r.Limits = nil },
		func(r *sandboxpb.RunRequest) { r.Argv = nil },
		func(r *sandboxpb.RunRequest) { r.Files[0].Path = "../../etc/passwd" },
		func(r *sandboxpb.RunRequest) { r.Files[0].Path = "/etc/passwd" },
		func(r *sandboxpb.RunRequest) { r.Files = append(r.Files, nil) },
		func(r *sandboxpb.RunRequest) { r.Limits.TimeoutMs = math.MaxInt64 },
		func(r *sandboxpb.RunRequest) { r.Limits.TimeoutMs = -1 },
		func(r *sandboxpb.RunRequest) { r.Limits.Cpus = math.NaN() },
		func(r *sandboxpb.RunRequest) { r.Limits.MemoryBytes = math.MinInt64 },
		func(r *sandboxpb.RunRequest) { r.Limits.Processes = math.MaxInt32 },
		func(r *sandboxpb.RunRequest) { r.Env = []string{"LD_PRELOAD=x\x00y"} },
		func(r *sandboxpb.RunRequest) { r.Inject = []*sandboxpb.Injection{nil} },
	} {
		r := proto.CloneOf(sound)
		change(r)
		f.Add(byte(1), wire(f, r))
	}
	f.Add(byte(0), wire(f, &sandboxpb.ProbeRequest{Tier: "gvisor", Image: "default"}))
	f.Add(byte(2), []byte{})
	f.Add(byte(3), wire(f, &sandboxpb.KillRequest{SandboxId: "../../x"}))
	for _, s := range []*sandboxpb.ServeStart{
		{Name: "one", Argv: []string{"/bin/true"}, Isolation: sandboxpb.Isolation_ISOLATION_UID},
		{Name: "../../x", Argv: []string{"sh"}, Isolation: sandboxpb.Isolation_ISOLATION_UID}, {Name: "two", Isolation: 77}, {},
	} {
		f.Add(byte(4), wire(f, &sandboxpb.ServeRequest{Message: &sandboxpb.ServeRequest_Start{Start: s}}))
	}
	f.Add(byte(4), wire(f, &sandboxpb.ServeRequest{Message: &sandboxpb.ServeRequest_Stdin{Stdin: []byte("x")}}))
}

// Whatever bytes a gateway sends, each call is answered or refused in words, and
// nothing out of bounds reaches a tier.
func FuzzRequests(f *testing.F) {
	quiet := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	f.Cleanup(func() { slog.SetDefault(quiet) })
	seedRequests(f)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, rpc byte, b []byte) {
		s := NewServer(Config{
			Tiers: map[string]tier.Tier{sallyport.TierGVisor: strictTier{t}}, Nursery: closedNursery{},
			Servers: ServerConfig{State: filepath.Join(dir, "state"), Book: filepath.Join(dir, "uids.json"), FirstUID: 64600, Init: "/nonexistent"},
		})
		err := call(t, s, rpc, b)
		if err == nil {
			return
		}
		st, ok := status.FromError(err)
		if !ok {
			t.Fatalf("refused without a status: %v", err)
		}
		refusal := slices.ContainsFunc(st.Details(), func(d any) bool {
			r, ok := d.(*sandboxpb.Refusal)
			return ok && r.Code != "" && r.Message != "" && r.Hint != ""
		})
		if !refusal || st.Code() == codes.OK {
			t.Errorf("refused without saying what to do: %v %v", st.Code(), st.Message())
		}
		if e := sandboxpb.FromStatus(err); sallyport.CodeOf(e) == "" {
			t.Errorf("not an error of ours: %v", e)
		}
	})
}

func call(t *testing.T, s *Server, rpc byte, b []byte) (err error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	parse := func(m proto.Message) bool { return proto.Unmarshal(b, m) == nil } // else grpc refuses
	switch rpc % 5 {
	case 0:
		if r := new(sandboxpb.ProbeRequest); parse(r) {
			_, err = s.Probe(ctx, r)
		}
	case 1:
		if r := new(sandboxpb.RunRequest); parse(r) {
			_, err = s.Run(ctx, r)
		}
	case 2:
		if r := new(sandboxpb.ListRequest); parse(r) {
			_, err = s.List(ctx, r)
		}
	case 3:
		if r := new(sandboxpb.KillRequest); parse(r) {
			_, err = s.Kill(ctx, r)
		}
	case 4:
		if r := new(sandboxpb.ServeRequest); parse(r) {
			err = s.Serve(&scripted{said: [][]byte{b}})
		}
	}
	return err
}
