package upstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// sick is a server whose calls end as wrong says, while it is set.
type sick struct {
	web
	calls atomic.Int64
	wrong atomic.Pointer[func(w http.ResponseWriter, r *http.Request, m wire.Message)]
}

func newSick(modern bool) *sick {
	s := &sick{web: web{modern: modern}}
	s.special = func(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
		if m.Method == "tools/call" {
			s.calls.Add(1)
		}
		if f := s.wrong.Load(); f != nil && (m.Method == "tools/call" || m.Method == "ping" || m.Method == "server/discover") {
			(*f)(w, r, m)
			return true
		}
		return false
	}
	return s
}

func (s *sick) with(f func(w http.ResponseWriter, r *http.Request, m wire.Message)) {
	s.wrong.Store(&f)
}

// movable is a clock that only pass moves.
func movable() (now func() time.Time, pass func(time.Duration)) {
	var passed atomic.Int64
	begun := time.Now()
	return func() time.Time { return begun.Add(time.Duration(passed.Load())) }, func(d time.Duration) { passed.Add(int64(d)) }
}

// timed is a context whose time is up when expire is called.
func timed(t *testing.T) (ctx context.Context, expire func()) {
	up := make(chan struct{})
	expire = sync.OnceFunc(func() { close(up) })
	t.Cleanup(expire)
	return deadline{t.Context(), up}, expire
}

type deadline struct {
	context.Context
	up chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.up }

func (d deadline) Err() error {
	select {
	case <-d.up:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func status502(w http.ResponseWriter, _ *http.Request, _ wire.Message) { w.WriteHeader(502) }

// A server that does not serve gets no more calls, then one, then all again. No
// call that may have acted is ever made twice.
func TestCircuitOpensAndCloses(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(http.ResponseWriter, *http.Request, wire.Message){
		"502": status502,
		"hangs up": func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
		},
		"cut short": func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); circuitOpensAndCloses(t, wrong) })
	}
}

func circuitOpensAndCloses(t *testing.T, wrong func(http.ResponseWriter, *http.Request, wire.Message)) {
	srv := newSick(true)
	o := options()
	now, pass := movable()
	o.Breaker = breaker.Config{Failures: 3, Now: now}
	b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t)})
	mustText(t, b, "s", "echo", `{}`)
	srv.with(wrong)
	for i := range 3 {
		if _, err := call(t, b, "s", "echo", `{}`); err == nil || errors.Is(err, sallyport.ErrNotExecuted) {
			t.Fatalf("call %d: %v, want one whose outcome is not known", i, err)
		}
	}
	_, err := call(t, b, "s", "echo", `{}`)
	e, _ := errors.AsType[*sallyport.Error](err)
	if e == nil || e.Code != sallyport.Unavailable || e.RetryAfter <= 0 || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(e.Message, "circuit open") {
		t.Fatalf("the fourth: %+v", e)
	}
	if st := status(t, b, "s"); st.Circuit != breaker.Open || st.Opened != 1 || !strings.Contains(st.Error, "circuit open") {
		t.Errorf("%+v", st)
	}
	if n := srv.calls.Load(); n != 4 {
		t.Errorf("the server saw %d calls, want 4", n)
	}
	// One of many that come back is let through, and fails: all others are kept away.
	var others, wg sync.WaitGroup
	others.Add(19)
	srv.with(func(w http.ResponseWriter, r *http.Request, m wire.Message) {
		others.Wait() // until they have been refused
		wrong(w, r, m)
	})
	pass(e.RetryAfter)
	for range 20 {
		wg.Go(func() {
			if _, err := call(t, b, "s", "echo", `{}`); err == nil || strings.Contains(err.Error(), "circuit open") {
				others.Done()
			}
		})
	}
	wg.Wait()
	if n := srv.calls.Load(); n != 5 {
		t.Errorf("the server saw %d calls, want one probe more", n-4)
	}
	srv.wrong.Store(nil)
	await.That(t, "it is well again", func() bool {
		pass(time.Minute)
		_, err := call(t, b, "s", "echo", `{}`)
		return err == nil
	})
	if st := status(t, b, "s"); st.Circuit != breaker.Closed || st.Error != "" || st.Opened < 2 {
		t.Errorf("%+v", st)
	}
}

// What a tool does wrong says nothing against its server.
func TestCircuitStaysClosed(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(http.ResponseWriter, *http.Request, wire.Message){
		"a tool's error": func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(`{"content":[],"isError":true}`)))
		},
		"an error of the protocol": func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(wire.AppendError(nil, m.ID, &wire.Error{Code: -32603, Message: "the tool threw"}))
		},
		"one with status 500": func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(500)
			_, _ = w.Write(wire.AppendError(nil, m.ID, &wire.Error{Code: -32603, Message: "the tool threw"}))
		},
		"404": func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { w.WriteHeader(404) },
		"429": func(w http.ResponseWriter, _ *http.Request, _ wire.Message) { w.WriteHeader(429) },
		"malformed": func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			_, _ = io.WriteString(w, "<html>")
		},
	} {
		srv := newSick(true)
		o := options()
		o.Breaker = breaker.Config{Failures: 2}
		b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t)})
		mustText(t, b, "s", "echo", `{}`)
		srv.with(wrong)
		for range 5 {
			_, _ = call(t, b, "s", "echo", `{}`)
		}
		if st := status(t, b, "s"); st.Circuit != breaker.Closed || srv.calls.Load() != 6 {
			t.Errorf("%s: %d of 6 calls arrived, %+v", name, srv.calls.Load(), st)
		}
	}
}

// A server that asks serves: neither does it count against it that its question is
// not answered, nor is anybody else kept out until it is.
func TestFO17QuestionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	srv := newSick(true)
	asks := func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(`{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}},"requestState":"s"}`)))
	}
	o := options()
	now, pass := movable()
	o.Breaker = breaker.Config{Failures: 2, Now: now}
	b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t)})
	mustText(t, b, "s", "echo", `{}`)
	srv.with(asks)
	for range 4 {
		_, err := b.Run(t.Context(), asksWith("echo", `{}`, func(context.Context, []sallyport.Question) ([]sallyport.Answer, error) {
			return []sallyport.Answer{{Refusal: "nobody answered in time", Code: -1}}, nil
		}))
		if sallyport.CodeOf(err) != sallyport.Rejected || errors.Is(err, sallyport.ErrNotExecuted) {
			t.Fatal(err)
		}
	}
	if st := status(t, b, "s"); st.Circuit != breaker.Closed {
		t.Fatalf("callers who do not answer: %+v", st)
	}
	srv.with(status502)
	for range 2 {
		_, _ = call(t, b, "s", "echo", `{}`)
	}
	if st := status(t, b, "s"); st.Circuit != breaker.Open {
		t.Fatalf("the control: %+v", st)
	}
	srv.with(asks)
	pass(time.Minute)
	probe, cancel := context.WithCancel(t.Context())
	asked, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Run(probe, asksWith("echo", `{}`, func(ctx context.Context, _ []sallyport.Question) ([]sallyport.Answer, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	}()
	<-asked
	srv.wrong.Store(nil)
	mustText(t, b, "s", "echo", `{}`)
	cancel()
	<-ended
}

// A slow tool is told from a server that takes calls and never answers (FO-17):
// the server is asked.
func TestFO17ServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	for name, hung := range map[string]bool{"slow tool": false, "hung server": true} {
		srv := newSick(false)
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		never := func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
			select {
			case <-r.Context().Done():
			case <-end:
			}
		}
		o := options()
		if o.Breaker = (breaker.Config{Failures: 2, Pause: time.Minute}); hung {
			o.Probe = 300 * time.Millisecond
		}
		b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t)})
		mustText(t, b, "s", "echo", `{}`)
		arrived, asked := make(chan struct{}), make(chan struct{}, 2)
		srv.with(func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method == "tools/call" {
				arrived <- struct{}{}
			} else {
				asked <- struct{}{}
			}
			if m.Method == "tools/call" || hung {
				never(w, r, m)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(wire.AppendResult(nil, m.ID, []byte(`{}`)))
		})
		for range 2 {
			ctx, expire := timed(t)
			go func() { <-arrived; expire() }()
			if _, err := b.Run(ctx, backendtest.Job(tool("s", "echo"), `{}`)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sallyport.ErrNotExecuted) {
				t.Errorf("%s: %v", name, err)
			}
			<-asked
		}
		time.Sleep(100 * time.Millisecond) // a circuit that opens though it should not does so by now
		want := map[bool]breaker.State{false: breaker.Closed, true: breaker.Open}[hung]
		await.That(t, name+": the circuit is "+string(want), func() bool { return status(t, b, "s").Circuit == want })
	}
}

// FO-10: fifty calls that find the session gone make one initialize, and each of
// them runs once.
func TestFO10FiftyCallsOneInitialize(t *testing.T) {
	t.Parallel()
	srv := &web{lost: "404"}
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
	mustText(t, b, "s", "echo", `{}`)
	await.That(t, "the first listing", func() bool { return status(t, b, "s").Tools > 0 })
	srv.session.Add(1) // the server restarts and forgets
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			args := `{"i":` + strconv.Itoa(i) + `}`
			if got := mustText(t, b, "s", "echo", args); got != args {
				t.Errorf("got %s", got)
			}
		})
	}
	wg.Wait()
	if inits, ran := srv.inits.Load(), srv.executed.Load(); inits != 2 || ran != 51 {
		t.Errorf("%d times initialize, want 2; %d calls, want 51", inits, ran)
	}
	_, bodies := srv.recorded()
	seen := map[string]int{}
	for _, body := range bodies {
		if args := wire.Path([]byte(body), "params", "arguments"); args != nil {
			seen[string(args)]++
		}
	}
	for args, n := range seen {
		if n != 1 {
			t.Errorf("%s was executed %d times", args, n)
		}
	}
}

// The call that is the probe may take long: as soon as the server answers something, the
// others need not wait for it. One that answers nothing stays shut off.
func TestASlowProbeKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	now, pass := movable()
	o := options()
	o.Probe, o.Breaker = 20*time.Millisecond, breaker.Config{Failures: 2, Now: now}
	srv := newSick(true)
	b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t)})
	mustText(t, b, "s", "echo", `{}`)
	srv.with(func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for range 2 {
		_, _ = call(t, b, "s", "echo", `{}`)
	}
	if st := status(t, b, "s"); st.Circuit != breaker.Open {
		t.Fatalf("%+v", st)
	}
	var deaf atomic.Bool
	deaf.Store(true)
	release := make(chan struct{})
	srv.with(func(w http.ResponseWriter, r *http.Request, m wire.Message) {
		if m.Method != "tools/call" && deaf.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if m.Method == "tools/call" && strings.Contains(string(m.Params), "slow") {
			<-release
		}
		srv.respond(w, r, m)
	})
	pass(time.Minute)
	probe := make(chan error, 1)
	go func() { _, err := call(t, b, "s", "echo", `{"slow":true}`); probe <- err }()
	await.That(t, "the probe is on its way", func() bool { return status(t, b, "s").Circuit == breaker.HalfOpen })
	time.Sleep(3 * o.Probe)
	if _, err := call(t, b, "s", "echo", `{}`); !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("the control: while it answers nothing: %v", err)
	}
	deaf.Store(false)
	await.That(t, "others are let through", func() bool { _, err := call(t, b, "s", "echo", `{}`); return err == nil })
	select {
	case err := <-probe:
		t.Errorf("the probe ended: %v", err)
	default:
	}
	close(release)
	if err := <-probe; err != nil {
		t.Error(err)
	}
}
