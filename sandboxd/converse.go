package sandboxd

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/talk"
)

// Converse implements the protocol. It carries what the program and the gateway
// say to each other, and looks at none of it.
func (s *Server) Converse(stream grpc.BidiStreamingServer[sandboxpb.ConverseRequest, sandboxpb.RunEvent]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	r := first.GetRun()
	if r == nil || r.GetSession() != nil {
		return sandboxpb.ToStatus(refused(sallyport.Invalid, "send a run without a session first", "a conversation begins with a run in a sandbox of its own"))
	}
	t, err := s.tier(r.Tier)
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	line := talk.New()
	go hearken(ctx, stream, line, cancel)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for b := line.Take(); b != nil; b = line.Take() {
			if stream.Send(&sandboxpb.RunEvent{Message: &sandboxpb.RunEvent_Heard{Heard: b}}) != nil {
				cancel(errors.New("the gateway is gone"))
				return
			}
		}
	}()
	req := toRequest(r)
	req.Owner, req.Talk = owned(ctx, r), line
	res, err := t.Run(ctx, req)
	line.End()
	<-told
	if err != nil {
		return sandboxpb.ToStatus(err)
	}
	return stream.Send(&sandboxpb.RunEvent{Message: &sandboxpb.RunEvent_Done{Done: toReply(res)}})
}

// hearken passes on what the gateway says, until the run or the stream ends.
func hearken(ctx context.Context, stream grpc.BidiStreamingServer[sandboxpb.ConverseRequest, sandboxpb.RunEvent], line *talk.Line, stop context.CancelCauseFunc) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return // the stream's own context ends with it
		}
		switch {
		case m.GetStop():
			stop(tier.ErrStopped)
		case line.Say(ctx, m.GetSaid()) != nil:
			return
		}
	}
}
