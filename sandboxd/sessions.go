package sandboxd

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier/session"
)

// maxName bounds what a gateway calls an owner and a session.
const maxName = 128

func (s *Server) sessions() (*session.Sessions, error) {
	if s.cfg.Sessions == nil {
		return nil, refused(sallyport.Unavailable, "raise sandbox.sessions.count", "this sandbox host keeps no sessions")
	}
	return s.cfg.Sessions, nil
}

// ownedBy is an owner among those of one gateway.
func ownedBy(gateway, owner string) string { return gateway + "/" + owner }

// owned is whose a run is, "" if its gateway does not say.
func owned(ctx context.Context, r *sandboxpb.RunRequest) string {
	if r.GetOwner() == "" {
		return ""
	}
	return ownedBy(gatewayOf(ctx), r.GetOwner())
}

// find checks a reference. Where the session is, or whether, it does not say.
func (s *Server) find(ctx context.Context, r *sandboxpb.SessionRef) (*session.Sessions, session.Key, session.Terms, error) {
	x, err := s.sessions()
	k := session.Key{Owner: r.GetOwner(), Name: r.GetName()}
	if err == nil && (k.Owner == "" || k.Name == "" || len(k.Owner) > maxName || len(k.Name) > maxName) {
		err = refused(sallyport.Invalid, "name a session", "a session needs an owner and a name")
	}
	k.Owner = ownedBy(gatewayOf(ctx), k.Owner)
	return x, k, r.GetTerms(), err
}

// run runs a request where it wants to be: in a session, or in a sandbox of its
// own.
func (s *Server) run(ctx context.Context, r *sandboxpb.RunRequest, told func(stderr bool, b []byte)) (*sandboxpb.RunReply, error) {
	t, err := s.tier(r.Tier)
	if err != nil {
		return nil, err
	}
	req := toRequest(r)
	req.Owner = owned(ctx, r)
	in := r.GetSession()
	if in == nil {
		req.Told = told
		res, err := t.Run(ctx, req)
		return toReply(res), err
	}
	x, k, terms, err := s.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	res, err := x.Run(ctx, session.Call{
		Key: k, Terms: terms, Request: req, Tier: r.Tier, Language: in.Language, Code: in.Code, Job: in.Background, Secret: in.Secret, Told: told,
	})
	reply := toReply(res.Result)
	reply.SessionNew, reply.SessionEnded, reply.InterpreterEnded, reply.Job = res.New, res.Ended, res.Lost, res.Job
	return reply, err
}

// Follow implements the protocol.
func (s *Server) Follow(r *sandboxpb.RunRequest, stream grpc.ServerStreamingServer[sandboxpb.RunEvent]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	out := newTeller(func(stderr bool, b []byte) error {
		e := &sandboxpb.RunEvent{Message: &sandboxpb.RunEvent_Stdout{Stdout: b}}
		if stderr {
			e.Message = &sandboxpb.RunEvent_Stderr{Stderr: b}
		}
		return stream.Send(e)
	})
	reply, err := s.run(ctx, r, out.tell)
	out.end()
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	return stream.Send(&sandboxpb.RunEvent{Message: &sandboxpb.RunEvent_Done{Done: reply}})
}

// Sessions implements the protocol.
func (s *Server) Sessions(ctx context.Context, r *sandboxpb.SessionsRequest) (*sandboxpb.SessionsReply, error) {
	x, err := s.sessions()
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	reply := &sandboxpb.SessionsReply{}
	for _, i := range x.List(ownedBy(gatewayOf(ctx), r.Owner)) {
		reply.Sessions = append(reply.Sessions, &sandboxpb.Session{
			Name: i.Name, SandboxId: i.ID, SinceUnixMs: i.Since.UnixMilli(), UsedUnixMs: i.Used.UnixMilli(), Jobs: int32(i.Jobs), Frozen: i.Frozen,
		})
	}
	return reply, nil
}

// EndSession implements the protocol.
func (s *Server) EndSession(ctx context.Context, r *sandboxpb.SessionRef) (*sandboxpb.EndSessionReply, error) {
	x, k, _, err := s.find(ctx, r)
	if err == nil {
		err = x.End(k)
	}
	return &sandboxpb.EndSessionReply{}, sandboxpb.ToStatus(err)
}

// ForkSession implements the protocol.
func (s *Server) ForkSession(ctx context.Context, r *sandboxpb.ForkSessionRequest) (*sandboxpb.ForkSessionReply, error) {
	x, k, terms, err := s.find(ctx, r.Session)
	for _, name := range r.Names {
		if err == nil && (name == "" || len(name) > maxName) {
			err = refused(sallyport.Invalid, "name each sibling", "a sibling without a name, or with one of %d bytes", len(name))
		}
	}
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	paused, err := x.Fork(ctx, k, terms, r.Names)
	return &sandboxpb.ForkSessionReply{PausedUs: paused.Microseconds()}, sandboxpb.ToStatus(err)
}

// Job implements the protocol.
func (s *Server) Job(ctx context.Context, r *sandboxpb.JobRequest) (*sandboxpb.JobReply, error) {
	x, k, _, err := s.find(ctx, r.Session)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	j, err := x.Job(ctx, k, r.Job, r.Offset)
	return &sandboxpb.JobReply{
		Output: j.Output, Next: j.Next, Running: j.Running, ExitCode: int32(j.ExitCode), Signal: j.Signal, Truncated: j.Truncated,
	}, sandboxpb.ToStatus(err)
}

// PutFile implements the protocol.
func (s *Server) PutFile(stream grpc.ClientStreamingServer[sandboxpb.PutFileRequest, sandboxpb.PutFileReply]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return sandboxpb.ToStatus(refused(sallyport.Invalid, "send start first", "the first message must be start"))
	}
	x, k, terms, err := s.find(stream.Context(), start.Session)
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	n, err := x.Put(stream.Context(), k, terms, start.Path, start.Size, &putReader{stream: stream})
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	return stream.SendAndClose(&sandboxpb.PutFileReply{Size: n})
}

// A putReader reads what a gateway sends. It ends with io.EOF only where the
// gateway said that this is all.
type putReader struct {
	stream grpc.ClientStreamingServer[sandboxpb.PutFileRequest, sandboxpb.PutFileReply]
	left   []byte
}

func (p *putReader) Read(b []byte) (int, error) {
	for len(p.left) == 0 {
		m, err := p.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		p.left = m.GetData()
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

// GetFile implements the protocol.
func (s *Server) GetFile(r *sandboxpb.GetFileRequest, stream grpc.ServerStreamingServer[sandboxpb.GetFileReply]) error {
	x, k, terms, err := s.find(stream.Context(), r.Session)
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	size, err := x.Get(stream.Context(), k, terms, r.Path, r.Offset, r.Length, getWriter{stream})
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	return stream.Send(&sandboxpb.GetFileReply{Message: &sandboxpb.GetFileReply_Size{Size: size}})
}

type getWriter struct {
	stream grpc.ServerStreamingServer[sandboxpb.GetFileReply]
}

func (g getWriter) Write(b []byte) (int, error) {
	err := g.stream.Send(&sandboxpb.GetFileReply{Message: &sandboxpb.GetFileReply_Data{Data: b}})
	return len(b), err
}

// ListFiles implements the protocol.
func (s *Server) ListFiles(ctx context.Context, r *sandboxpb.ListFilesRequest) (*sandboxpb.ListFilesReply, error) {
	x, k, terms, err := s.find(ctx, r.Session)
	if err != nil {
		return nil, sandboxpb.ToStatus(err)
	}
	entries, more, err := x.ListFiles(ctx, k, terms, r.Path)
	reply := &sandboxpb.ListFilesReply{More: more}
	for _, e := range entries {
		reply.Entries = append(reply.Entries, &sandboxpb.FileEntry{Name: []byte(e.Name), Kind: e.Kind, Size: e.Size, TimeUnixMs: e.Time.UnixMilli()})
	}
	return reply, sandboxpb.ToStatus(err)
}
