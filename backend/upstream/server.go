package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/follow"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/turn"
)

// A State says how a server does.
type State string

// The states of a server.
const (
	StateIdle     State = "idle"     // lazy, not called yet
	StateStarting State = "starting" // connecting
	StateReady    State = "ready"
	StateDown     State = "down"    // waiting to try again; Error says why
	StateRefused  State = "refused" // its configuration cannot be used
	StateStopped  State = "stopped"
)

// A Status tells how one server does.
type Status struct {
	Name      string          `json:"name"`
	State     State           `json:"state"`
	Isolation string          `json:"isolation"`
	Era       string          `json:"era,omitempty"`         // "modern" or "legacy"
	Version   string          `json:"version,omitempty"`     // of the protocol
	Info      json.RawMessage `json:"server_info,omitempty"` // as the server says; not to be trusted
	Error     string          `json:"error,omitempty"`
	Degraded  string          `json:"degraded,omitempty"` // e.g. "pagination"
	Tools     int             `json:"tools"`
	Restarts  int             `json:"restarts"`
	Warnings  []string        `json:"warnings,omitempty"`
	Stderr    []string        `json:"stderr,omitempty"` // last lines, control characters escaped
}

const (
	maxBackOff = 30 * time.Second
	stable     = 10 * time.Second // a connection this old was a good one
)

// server supervises one server.
type server struct {
	Config
	o        *Options
	endpoint string
	life     context.Context //nolint:containedctx // ends when the server is removed, with all its calls
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the supervisor is done
	kick     chan struct{} // holds one: wakes a server that sleeps
	line     *turn.Line    // of calls
	relist   chan struct{} // asks for a listing
	rumour   chan struct{} // the server says that what it has changed
	follows  follow.Set
	lists    chan struct{} // held by the one listing that runs
	told     atomic.Bool   // what it has, once at least

	mu       sync.Mutex // guards what follows
	state    State
	se       *session // nil unless ready
	changed  chan struct{}
	down     time.Time // since when there is no session; zero when there is one
	lastErr  error
	restarts int
	plain    bool // a program that died of server/discover: it gets initialize
	listing  Listing
	listErr  error
	stderr   line.Ring
}

// start begins to supervise a server.
func start(ctx context.Context, c Config, o *Options) *server {
	s := &server{
		Config: c, o: o, endpoint: c.endpoint(), state: StateIdle,
		ended: make(chan struct{}), kick: make(chan struct{}, 1), relist: make(chan struct{}, 1), rumour: make(chan struct{}, 1), lists: make(chan struct{}, 1), changed: make(chan struct{}),
		down: time.Now(), line: turn.New(cmp.Or(c.Calls, o.Calls), cmp.Or(c.Queue, o.Queue)),
	}
	if !s.Lazy {
		s.state = StateStarting
	}
	s.life, s.cancel = context.WithCancel(ctx)
	go s.supervise(s.life)
	return s
}

// stop ends the server and waits for its processes, and for a listing that is
// being passed on.
func (s *server) stop() {
	s.cancel()
	<-s.ended
	s.lists <- struct{}{}
	<-s.lists
}

func (s *server) supervise(ctx context.Context) {
	defer close(s.ended)
	defer s.set(func() { s.state, s.se = StateStopped, nil })
	var lists sync.WaitGroup
	defer lists.Wait()
	lists.Go(func() { s.keepListed(ctx) })
	if s.Lazy && !s.sleep(ctx) {
		return
	}
	for failures, said := 0, ""; ctx.Err() == nil; { // said: why it is down
		s.set(func() { s.state = StateStarting })
		begun := time.Now()
		se, err := s.connect(ctx)
		if err == nil {
			s.set(func() { s.state, s.se, s.down = StateReady, se, time.Time{} })
			s.askList()
			err = s.attend(ctx, se)
			if se.answered.Load() || time.Since(begun) > stable {
				failures = 0
			}
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errIdle) {
			failures = 0
			if !s.sleep(ctx) {
				return
			}
			continue
		}
		if failures == 0 || err.Error() != said {
			said = err.Error()
			s.o.Log.Warn("upstream is down", "server", s.Name, "error", err)
		}
		s.set(func() {
			s.state, s.se, s.lastErr = StateDown, nil, err
			s.restarts++
			if s.down.IsZero() {
				s.down = time.Now()
			}
		})
		failures++
		if errors.Is(err, errProbeKilled) {
			continue
		}
		if !pause(ctx, backOff(s.o.BackOff, failures)) {
			return
		}
	}
}

// attend waits for the end of a session, or until it has been idle for long
// enough, and cleans up after it.
func (s *server) attend(ctx context.Context, se *session) error {
	defer se.link.close(s.o.Grace)
	hearing, stop := context.WithCancel(ctx)
	var ears sync.WaitGroup
	defer ears.Wait()
	defer stop()
	ears.Go(func() { s.hearken(hearing, se) })
	began, look := time.Now(), make(<-chan time.Time) // never
	if s.Idle > 0 {
		t := time.NewTicker(min(s.Idle/4+1, time.Second))
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-se.link.done():
			return se.link.failure()
		case <-ctx.Done():
			return se.link.failure()
		case <-look:
			if s.retire(se, began) {
				return errIdle
			}
		}
	}
}

// backOff is the pause before the nth try in a row: doubled each time, up to
// a bound, with jitter so that servers do not come back all at once.
func backOff(base time.Duration, n int) time.Duration {
	d := base
	for range n - 1 {
		if d *= 2; d >= maxBackOff {
			d = maxBackOff
			break
		}
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter needs no secrecy
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// set changes the state and wakes who waits for a change.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) askList() {
	select {
	case s.relist <- struct{}{}:
	default:
	}
}

// acquire waits for a session, at most as long as the budget. A server that has
// been down for longer than that makes nobody wait. Errors wrap ErrNotExecuted.
func (s *server) acquire(ctx context.Context) (*session, error) {
	s.wake()
	budget := time.NewTimer(s.o.Budget)
	defer budget.Stop()
	for {
		s.mu.Lock()
		se, changed, err := s.se, s.changed, s.lastErr
		hopeless := err != nil && time.Since(s.down) > s.o.Budget
		s.mu.Unlock()
		switch {
		case se != nil:
			return se, nil
		case hopeless:
			return nil, s.notReady(err)
		}
		select {
		case <-changed:
		case <-budget.C:
			if err == nil {
				err = fmt.Errorf("it did not get ready within %v", s.o.Budget)
			}
			return nil, s.notReady(err)
		case <-ctx.Done():
			return nil, outcome.NotSent(ctx.Err())
		case <-s.ended:
			return nil, outcome.Gone(s.Name)
		}
	}
}

func (s *server) notReady(err error) error {
	return outcome.Unavailable(err, fmt.Sprintf("server %q is not available: %s", s.Name, brief(err)), "try later; the operator sees more under servers list")
}

// run does one job. It ends with ctx, and when the server is removed.
func (s *server) run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	leave, err := s.enter(inner)
	if err != nil {
		return sallyport.Output{}, err
	}
	defer leave()
	out, err := s.deliver(inner, job)
	if err != nil && outcome.IsContext(err) && ctx.Err() == nil {
		return out, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute,
			Message: fmt.Sprintf("server %q was stopped in the middle of the call", s.Name),
			Hint:    outcome.MayHaveActed, Err: err,
		}
	}
	return out, err
}

// deliver does one job. One that certainly did not reach a server that died
// is sent once more, to the next one.
func (s *server) deliver(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	for again := true; ; again = false {
		se, err := s.acquire(ctx)
		if err != nil {
			return sallyport.Output{}, err
		}
		out, err := se.do(ctx, job)
		if err == nil {
			return out, nil
		}
		if !again || !errors.Is(err, errGone) || !errors.Is(err, sallyport.ErrNotExecuted) || ctx.Err() != nil {
			return out, err
		}
		select {
		case <-se.link.done():
			s.leave(se)
		default:
		}
	}
}

// leave waits until the supervisor has noticed that a session is over.
func (s *server) leave(se *session) {
	for {
		s.mu.Lock()
		current, changed := s.se, s.changed
		s.mu.Unlock()
		if current != se {
			return
		}
		select {
		case <-changed:
		case <-s.ended:
			return
		}
	}
}

func (s *server) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Name: s.Name, State: s.state, Isolation: s.isolation(), Restarts: s.restarts,
		Tools: len(s.listing.Tools), Degraded: s.listing.Degraded, Warnings: s.listing.Warnings,
		Stderr: s.stderr.Tail(20),
	}
	if s.se != nil {
		st.Era, st.Version, st.Info = s.se.era, s.se.version, s.se.info
		if s.listErr != nil {
			st.Error = "its tools cannot be listed: " + detail(s.listErr)
		}
	} else if s.lastErr != nil {
		st.Error = detail(s.lastErr)
	}
	return st
}

// note takes one line of standard error.
func (s *server) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stderr.Add(text)
}

// lastWords returns the last lines of standard error.
func (s *server) lastWords(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.Tail(n)
}
