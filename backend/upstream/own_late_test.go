package upstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/wire"
)

// gone is a program that has ended.
type gone struct{ asked int }

func (g *gone) Exchange(context.Context, link.Request) (wire.Message, error) {
	g.asked++
	return wire.Message{}, link.ErrGone
}
func (g *gone) Send(context.Context, wire.Message) error { return link.ErrGone }
func (g *gone) Done() <-chan struct{}                    { c := make(chan struct{}); close(c); return c }
func (g *gone) Err() error                               { return link.ErrGone }
func (g *gone) Close(time.Duration)                      {}

var errStarted = errors.New("a process of its own was started")

type starts struct{}

func (starts) Launch(context.Context, LaunchSpec) (pipe.Process, error) { return nil, errStarted }

// A caller's program may end while a call is on its way, and another caller be the first
// in the next one. The call then goes to a process of its own, too.
func TestACallDoesNotFollowIntoAnothersProcess(t *testing.T) {
	t.Parallel()
	o := &Options{Launchers: map[string]Launcher{"x": starts{}}, Budget: time.Millisecond}
	o.fill()
	s := prepare(Config{Name: "s", Argv: []string{"x"}, Isolation: "x", Lazy: true, Processes: "each"}, o)
	s.begin(t.Context())
	t.Cleanup(s.stop)
	ann, bob := sallyport.Principal{Tenant: "t", ID: "ann"}, sallyport.Principal{Tenant: "t", ID: "bob"}
	for who, runsHere := range map[*sallyport.Principal]bool{&ann: false, &bob: true} {
		l := &gone{}
		next := &session{s: s, link: l, era: eraLegacy}
		next.room.Keep(asked.Whose(bob))
		s.set(func() { s.state, s.se = StateReady, next })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := s.deliver(ctx, sallyport.Job{Who: *who, Kind: sallyport.CallTool})
		cancel()
		if (l.asked > 0) != runsHere || err == nil || s.owns.of(asked.Whose(*who)) != nil == runsHere {
			t.Errorf("%s's call: %d times in bob's process, %v", who.ID, l.asked, err)
		}
	}
}
