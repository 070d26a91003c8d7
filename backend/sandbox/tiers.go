package sandbox

import (
	"context"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
)

// A TierState says what is known of one tier of the host.
type TierState struct {
	Tier  string
	Proof string    // how a program ran in it, in words
	Lack  error     // why none can, nil if one did
	Since time.Time // of the proof, or of the last try
}

// GPU stands beside the tiers where their state is told: what GPUs programs would be
// shown. Nothing is run on one.
const GPU = "gpu"

// retryProbe is how long a failed probe is believed.
const retryProbe = 10 * time.Second

// A standing is what is known of one tier.
type standing struct {
	turn    chan struct{} // of who probes; one at a time
	state   TierState
	reached bool // the host itself answered
}

// standings of all tiers, by name.
type standings struct {
	mu  sync.Mutex
	all map[string]*standing
}

func (s *standings) of(tier string) *standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[tier] == nil {
		if s.all == nil {
			s.all = map[string]*standing{}
		}
		s.all[tier] = &standing{turn: make(chan struct{}, 1), state: TierState{Tier: tier}}
	}
	return s.all[tier]
}

// probe has the host really run a program in a tier, once, and after that only
// answers; a failure is tried again after a while. The error is the end of ctx.
func (b *Backend) probe(ctx context.Context, tier string) (state TierState, reached bool, err error) {
	s := b.tiers.of(tier)
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return TierState{}, false, ctx.Err()
	}
	if !s.state.Since.IsZero() && (s.state.Lack == nil || time.Since(s.state.Since) < retryProbe) {
		return s.state, s.reached, nil
	}
	ask := &sandboxpb.ProbeRequest{Tier: tier, Image: b.o.Image}
	if tier == GPU {
		ask.Tier, ask.Gpu = sallyport.TierGVisor, true
	}
	reply, err := b.api.Probe(ctx, ask)
	if ctx.Err() != nil {
		return TierState{}, false, ctx.Err()
	}
	s.state, s.reached = TierState{tier, reply.GetPlatform(), sandboxpb.FromStatus(err), time.Now()}, err == nil || sandboxpb.Refused(err)
	return s.state, s.reached, nil
}

// doubt forgets that a tier was proven, after it could not run what it was asked.
// The next who needs it has it proven again.
func (b *Backend) doubt(tier string) {
	s := b.tiers.of(tier)
	select {
	case s.turn <- struct{}{}:
		if s.state.Lack == nil {
			s.state.Since = time.Time{}
		}
		<-s.turn
	default: // it is being probed
	}
}

// Lack says why no sandbox of a tier can be had now, nil if one can. The first who
// asks waits until the tier is proven. A host that does not answer at all lacks
// nothing: its calls fail by themselves.
func (b *Backend) Lack(ctx context.Context, tier string) error {
	within, cancel := context.WithTimeout(ctx, provenWithin)
	defer cancel()
	state, reached, err := b.probe(within, tier)
	switch {
	case err != nil && ctx.Err() == nil:
		return late()
	case err != nil || !reached:
		return nil
	}
	return state.Lack
}

// provenWithin is how long a call waits for the proof of its tier.
const provenWithin = time.Minute

// late is the lack of a tier whose proof takes longer.
func late() error {
	return &sallyport.Error{Code: sallyport.Unavailable, Message: "it was not proven in time", Hint: "ask again: it goes on being opened", RetryAfter: retryProbe}
}

// Tiers has each tier proven that is not known, and tells how all stand, and what
// GPUs there are. What is not known when ctx ends is said to be so, and a host that
// does not answer any more has no tier, whatever was proven.
func (b *Backend) Tiers(ctx context.Context) []TierState {
	names := append(sallyport.Tiers(), GPU)
	out := make([]TierState, len(names))
	if gone := b.alive(ctx); gone != nil {
		for i, tier := range names {
			out[i] = TierState{Tier: tier, Lack: gone, Since: time.Now()}
		}
		return out
	}
	var all sync.WaitGroup
	for i, tier := range names {
		all.Go(func() {
			state, _, err := b.probe(ctx, tier)
			if err != nil {
				state = TierState{Tier: tier, Lack: late()}
			}
			out[i] = state
		})
	}
	all.Wait()
	return out
}

// Check implements sallyport.Backend: the tier that tools have where nothing else
// is said must work. Another that is lacking makes no gateway unready.
func (b *Backend) Check(ctx context.Context) error {
	state, _, err := b.probe(ctx, sallyport.TierGVisor)
	switch {
	case err != nil:
		return err
	case state.Lack != nil:
		return state.Lack
	}
	return b.alive(ctx)
}
