package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/backend/upstream/entry"
	"sallyport.dev/sallyport/backend/upstream/failure"
	"sallyport.dev/sallyport/backend/upstream/follow"
	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/pace"
	"sallyport.dev/sallyport/backend/upstream/turn"
)

// A Status tells how one server does.
type Status = entry.Status

// A State says it in a word.
type State = entry.State

// The states of a server.
const (
	StateIdle     = entry.Idle
	StateStarting = entry.Starting
	StateReady    = entry.Ready
	StateDown     = entry.Down
	StateRefused  = entry.Refused
	StateStopped  = entry.Stopped
)

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
	ended    chan struct{}  // closed when the supervisor is done
	kick     chan struct{}  // holds one: wakes a server that sleeps
	line     *turn.Line     // of calls
	solo     *turn.Line     // of calls that come one at a time
	given    *given.Keeper  // what it is given
	parting  sync.WaitGroup // sessions that only end their calls
	asks     *atomic.Bool   // it asks without saying for which call; its own sessions know it, too
	circuit  *breaker.Breaker
	relist   chan struct{} // asks for a listing
	rumour   chan struct{} // the server says that what it has changed
	again    chan struct{} // it is called, and was not listed for a while
	follows  follow.Set
	lists    chan struct{}       // held by the one listing that runs
	told     atomic.Bool         // what it has, once at least
	owns     owns                // sessions of its callers
	mute     bool                // it is such a session: it lists nothing
	who      sallyport.Principal // whose, then

	mu       sync.Mutex // guards what follows
	state    State
	se       *session // nil unless ready
	changed  chan struct{}
	down     time.Time // since when there is no session; zero when there is one
	tried    time.Time // when the last try to get one failed
	next     time.Time // when it is tried again
	lastErr  error
	restarts int
	turn     int   // of what it was given when it was last connected to
	plain    bool  // it died of server/discover, or is older than that: it gets initialize
	older    bool  // it speaks HTTP+SSE
	trouble  error // of the last call that failed for the server's sake
	listing  Listing
	listErr  error
	listed   time.Time // when that was last tried
	stderr   line.Ring
}

func prepare(c Config, o *Options) *server {
	s := &server{
		Config: c, o: o, endpoint: c.Endpoint(), state: StateIdle,
		ended: make(chan struct{}), kick: make(chan struct{}, 1), relist: make(chan struct{}, 1), rumour: make(chan struct{}, 1), again: make(chan struct{}, 1), lists: make(chan struct{}, 1), changed: make(chan struct{}),
		down: time.Now(), line: turn.New(cmp.Or(c.Calls, o.Calls), cmp.Or(c.Queue, o.Queue), cmp.Or(c.Wait, o.Wait)), circuit: breaker.New(o.Breaker),
		solo: turn.New(1, ownQueue, cmp.Or(c.Wait, o.Wait)), asks: new(atomic.Bool),
		given: given.New(given.Values{Env: c.Env, Header: c.Header, Inject: c.Confinement.Inject}, c.Given),
	}
	return s
}

func (s *server) begin(ctx context.Context) {
	if !s.Lazy {
		s.state = StateStarting
	}
	s.life, s.cancel = context.WithCancel(ctx)
	go s.supervise(s.life)
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
	if !s.mute {
		lists.Go(func() { s.keepListed(ctx) })
	}
	defer s.owns.gone()
	defer s.parting.Wait()
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
		if errors.Is(err, errStale) {
			continue
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
			s.o.Log.Warn("upstream is down", "server", s.Name, "error", failure.Detail(err))
		}
		s.set(func() {
			s.state, s.se, s.lastErr, s.tried = StateDown, nil, err, time.Now()
			s.restarts++
			if s.down.IsZero() {
				s.down = time.Now()
			}
		})
		failures++
		if errors.Is(err, errProbeKilled) {
			continue
		}
		wait := pace.Before(failures, s.o.BackOff, maxBackOff)
		s.set(func() { s.next = time.Now().Add(wait) })
		if !s.rest(ctx, wait) {
			return
		}
	}
}

// attend waits for the end of a session, or until it has been idle for long
// enough, or is stale, and cleans up after it.
func (s *server) attend(ctx context.Context, se *session) (err error) {
	defer func() { s.part(ctx, se, err) }()
	hearing, stop := context.WithCancel(ctx)
	var ears sync.WaitGroup
	defer ears.Wait()
	defer stop()
	ears.Go(func() { s.hearken(hearing, se) })
	ears.Go(func() { s.feel(hearing, se) })
	began, look := time.Now(), make(<-chan time.Time) // never
	if s.Idle > 0 {
		t := time.NewTicker(min(s.Idle/4+1, time.Second))
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-se.link.Done():
			return se.link.Err()
		case <-ctx.Done():
			return se.link.Err()
		case <-se.stale:
			s.set(func() { s.state, s.se, s.down = StateStarting, nil, time.Now() })
			return errStale
		case <-look:
			if s.retire(se, began) {
				return errIdle
			}
		}
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
	if err := s.renew(ctx); err != nil {
		return nil, err
	}
	s.wake()
	budget := time.NewTimer(s.o.Budget)
	defer budget.Stop()
	for {
		s.mu.Lock()
		se, changed, err := s.se, s.changed, s.lastErr
		hopeless := err != nil && time.Since(s.down) > s.o.Budget || s.unauthorised()
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
	if sallyport.CodeOf(err) == sallyport.AuthorizationRequired {
		return err
	}
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: outcome.NotSent(err), RetryAfter: max(time.Until(next), comeBack),
		Message: fmt.Sprintf("server %q is not available: %s", s.Name, failure.Brief(err)), Hint: "try after retry_after; the operator sees more under servers list",
	}
}

// run does one job. It ends with ctx, and when the server is removed.
func (s *server) run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	s.inUse()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	own, alone, err := s.process(inner, job)
	switch {
	case err != nil:
		return sallyport.Output{}, err
	case own != nil:
		return own.run(ctx, job)
	case alone:
		done, err := s.takeTurn(inner, job)
		if err != nil {
			return sallyport.Output{}, err
		}
		defer done()
	}
	said, err := s.pass()
	if err != nil {
		return sallyport.Output{}, err
	}
	leave, err := s.enter(inner, job.Who)
	if err != nil {
		said(breaker.Untold)
		return sallyport.Output{}, err
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	if ask := job.Ask; ask != nil {
		job.Ask = func(ctx context.Context, q []sallyport.Question) ([]sallyport.Answer, error) {
			leave() // who waits for an answer keeps nobody else out
			said(breaker.Served)
			return ask(ctx, q)
		}
	}
	out, err := s.deliver(inner, job)
	s.judge(ctx, err, said)
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
		if own, err := s.own(se, job); own != nil || err != nil {
			if err != nil {
				return sallyport.Output{}, err
			}
			return own.run(ctx, job)
		}
		out, err := se.do(ctx, job)
		if err == nil {
			return out, nil
		}
		if !again || !errors.Is(err, link.ErrGone) || !errors.Is(err, sallyport.ErrNotExecuted) || ctx.Err() != nil {
			return out, err
		}
		select {
		case <-se.link.Done():
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
		Name: s.Name, State: s.state, Isolation: s.Isolated(), Restarts: s.restarts,
		Tools: len(s.listing.Tools), Degraded: s.listing.Degraded, Warnings: s.listing.Warnings,
		Stderr: s.stderr.Tail(20),
	}
	if s.se != nil {
		st.Era, st.Version, st.Info = s.se.era, s.se.version, s.se.says.Info
		if s.Processes == entry.One || s.se.room.Several() {
			st.Warnings = append(slices.Clip(st.Warnings), "shared: what it keeps in memory is common to all who call it")
		}
		if s.listErr != nil {
			st.Error = "its tools cannot be listed: " + failure.Detail(s.listErr)
		}
	} else if s.lastErr != nil {
		st.Error = failure.Detail(s.lastErr)
	}
	r := s.circuit.Read()
	st.Circuit, st.Opened = r.State, r.Opened
	if r.State != breaker.Closed && st.Error == "" {
		st.Error = s.cutOff(r.Wait).Message
	}
	return st
}
