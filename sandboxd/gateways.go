package sandboxd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// Gateways that a host serves are told apart by a secret of each. It is in the
// key of every session, so that none finds another's; and when a gateway is gone,
// its sessions end: not at once, for it may only be starting again.

// DefaultGrace is how long a gateway may be away before its sessions end.
const DefaultGrace = 30 * time.Second

// gateways counts the streams of each gateway that is there.
type gateways struct {
	grace time.Duration
	end   func(gateway string) int // ends the sessions of one

	mu    sync.Mutex
	there map[string]int
	away  map[string]*time.Timer
}

func newGateways(grace time.Duration, end func(string) int) *gateways {
	if grace <= 0 {
		grace = DefaultGrace
	}
	return &gateways{grace: grace, end: end, there: map[string]int{}, away: map[string]*time.Timer{}}
}

func (g *gateways) come(gateway string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.there[gateway]++
	if t := g.away[gateway]; t != nil {
		t.Stop()
		delete(g.away, gateway)
	}
}

func (g *gateways) leave(gateway string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.there[gateway]--; g.there[gateway] > 0 {
		return
	}
	delete(g.there, gateway)
	var t *time.Timer
	t = time.AfterFunc(g.grace, func() {
		g.mu.Lock()
		still := g.away[gateway] == t
		if still {
			delete(g.away, gateway)
		}
		g.mu.Unlock()
		if !still {
			return
		}
		if n := g.end(gateway); n > 0 {
			slog.Info("sessions ended", "reason", "their gateway is gone", "sessions", n)
		}
	})
	g.away[gateway] = t
}

// gatewayOf is who calls, "" for a gateway that does not say.
func gatewayOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	key := md.Get(sandboxpb.GatewayKey)
	if len(key) == 0 || key[0] == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key[0]))
	return hex.EncodeToString(sum[:16])
}

// Attend implements the protocol.
func (s *Server) Attend(_ *sandboxpb.AttendRequest, stream grpc.ServerStreamingServer[sandboxpb.AttendReply]) error {
	who := gatewayOf(stream.Context())
	if who == "" {
		return sandboxpb.ToStatus(refused(sallyport.Invalid, "send the metadata "+sandboxpb.GatewayKey, "the gateway does not say who it is"))
	}
	s.gateways.come(who)
	defer s.gateways.leave(who)
	if err := stream.Send(&sandboxpb.AttendReply{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}
