package held_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/test/await"
)

const patience = await.Patience

var key = []byte("0123456789abcdef0123456789abcdef")

func open(t *testing.T, change func(*held.Options)) *held.Calls {
	t.Helper()
	o := held.Options{Key: key, Replica: "one", Now: time.Now}
	if change != nil {
		change(&o)
	}
	c, err := held.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// asks is a call that asks rounds times, each time one question, and ends with the
// answers. ended gets the cause of a call that was ended early.
func asks(rounds int, ended chan<- error) held.Run {
	return func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
		var all []string
		for i := range rounds {
			a, err := req.Ask(ctx, inquiry("ann", fmt.Sprint("q", i)))
			if err != nil {
				if ended != nil {
					ended <- context.Cause(ctx)
				}
				return sallyport.Result{CallID: "call_1"}, err
			}
			all = append(all, string(a[0].Result))
		}
		return sallyport.Result{CallID: "call_1", Content: json.RawMessage(`[` + strings.Join(all, ",") + `]`)}, nil
	}
}

func inquiry(who string, keys ...string) sallyport.Inquiry {
	in := sallyport.Inquiry{CallID: "call_1", Owner: who, Binding: "binding of " + who}
	for _, k := range keys {
		in.Questions = append(in.Questions, sallyport.Question{Key: k, Method: sallyport.AskUser})
	}
	return in
}

func back(state string, answers ...string) sallyport.Return {
	r := sallyport.Return{Owner: "ann", Binding: "binding of ann", State: state, Answers: map[string]json.RawMessage{}}
	for i := 0; i < len(answers); i += 2 {
		r.Answers[answers[i]] = json.RawMessage(answers[i+1])
	}
	return r
}

func begin(t *testing.T, c *held.Calls, run held.Run) sallyport.Result {
	t.Helper()
	res, err := c.Begin(t.Context(), sallyport.Request{}, run)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestACallGoesOnWithItsAnswers(t *testing.T) {
	c := open(t, nil)
	res := begin(t, c, asks(3, nil))
	for i := range 3 {
		if len(res.Questions) != 1 || res.Questions[0].Key != fmt.Sprint("q", i) || res.State == "" || res.CallID != "call_1" {
			t.Fatalf("round %d: %+v", i, res)
		}
		var err error
		if res, err = c.Resume(t.Context(), back(res.State, fmt.Sprint("q", i), fmt.Sprint(i), "other", `7`)); err != nil {
			t.Fatal(err)
		}
	}
	if string(res.Content) != `[0,1,2]` || res.State != "" || c.Waiting() != 0 {
		t.Errorf("%+v, %d wait", res, c.Waiting())
	}
	// A call that asks nothing is a call like any other.
	if res := begin(t, c, asks(0, nil)); string(res.Content) != `[]` || c.Waiting() != 0 {
		t.Errorf("%+v", res)
	}
}

// Answers that come without having been asked for are used once, for what is asked first.
func TestAnswersThatWereBrought(t *testing.T) {
	c := open(t, nil)
	res, err := c.Begin(t.Context(), sallyport.Request{Answers: map[string]json.RawMessage{"q0": json.RawMessage(`"a"`), "q1": json.RawMessage(`"b"`)}}, asks(2, nil))
	if err != nil || len(res.Questions) != 1 || res.Questions[0].Key != "q1" {
		t.Fatalf("%+v, %v", res, err)
	}
	other, err := c.Begin(t.Context(), sallyport.Request{Answers: map[string]json.RawMessage{"wrong": json.RawMessage(`1`)}}, asks(1, nil))
	if err != nil || len(other.Questions) != 1 {
		t.Errorf("%+v, %v", other, err)
	}
}

// A client that does not come back ends its call, and its state with it.
func TestAClientThatNeverReturns(t *testing.T) {
	c := open(t, func(o *held.Options) { o.Wait = 20 * time.Millisecond })
	ended := make(chan error, 1)
	state := begin(t, c, asks(1, ended)).State
	cause, ok := errors.AsType[*sallyport.Cancellation](<-ended)
	if !ok || cause.By != "unanswered" {
		t.Errorf("ended by %v", cause)
	}
	await.That(t, "nothing waits", func() bool { return c.Waiting() == 0 })
	refused(t, c, "too late", back(state, "q0", "0"))
	// By the clock of the gateway, too, whatever its timers do.
	var late atomic.Bool
	c = open(t, func(o *held.Options) {
		o.Now = func() time.Time {
			if late.Load() {
				return time.Now().Add(time.Hour)
			}
			return time.Now()
		}
	})
	state = begin(t, c, asks(1, nil)).State
	late.Store(true)
	refused(t, c, "an hour later", back(state, "q0", "0"))
}

// A client that hangs up ends its call, in its first request and in those after.
func TestHangingUpEndsTheCall(t *testing.T) {
	c := open(t, nil)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	blocks := func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
		if _, err := req.Ask(ctx, inquiry("ann", "q")); err != nil {
			return sallyport.Result{}, err
		}
		cancel()
		<-ctx.Done()
		ended <- ctx.Err()
		return sallyport.Result{}, ctx.Err()
	}
	state := begin(t, c, blocks).State
	if _, err := c.Resume(ctx, back(state, "q", "1")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) || c.Waiting() != 0 {
		t.Errorf("%v, %d wait", err, c.Waiting())
	}
}

// What waits is bounded, for each principal and in all; one that has its fill
// keeps nobody else out.
func TestWhatWaitsIsBounded(t *testing.T) {
	c := open(t, func(o *held.Options) { o.PerOwner, o.Most = 2, 6 })
	by := func(who string) error {
		_, err := c.Begin(t.Context(), sallyport.Request{}, func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
			_, err := req.Ask(ctx, inquiry(who, "q"))
			return sallyport.Result{}, err
		})
		return err
	}
	for i, tt := range []struct {
		who string
		ok  bool
	}{{"ann", true}, {"ann", true}, {"ann", false}, {"bob", true}, {"cy", true}, {"dee", true}, {"eve", true}, {"fay", false}} {
		if err := by(tt.who); (err == nil) != tt.ok || err != nil && sallyport.CodeOf(err) != sallyport.RateLimited {
			t.Errorf("call %d of %s: %v", i, tt.who, err)
		}
	}
	if c.Waiting() != 6 {
		t.Errorf("%d wait", c.Waiting())
	}
}

// However many agents a tenant has, the others can have their calls wait, and so can
// its own agents beside one of them. What ends is room again.
func TestATenantTakesNobodysRoom(t *testing.T) {
	c := open(t, func(o *held.Options) { o.PerOwner, o.Most = 100, 100 })
	states := map[string][]string{}
	fill := func(who string) (n int) {
		for ; ; n++ {
			res, err := c.Begin(t.Context(), sallyport.Request{}, func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
				_, err := req.Ask(ctx, inquiry(who, "q"))
				return sallyport.Result{}, err
			})
			if err != nil {
				if sallyport.CodeOf(err) != sallyport.RateLimited {
					t.Fatal(err)
				}
				return n
			}
			states[who] = append(states[who], res.State)
		}
	}
	var greedy int
	first := fill("t1\x00a")
	for i := range 50 {
		greedy += fill(fmt.Sprint("t1\x00agent-", i))
	}
	if first < 20 || first > 50 || greedy == 0 || first+greedy > 50 {
		t.Errorf("one agent has %d calls that wait, all others of its tenant %d", first, greedy)
	}
	if n := fill("t2\x00a"); n < 10 {
		t.Errorf("an agent of another tenant has %d", n)
	}
	if n := fill("t3\x00a"); n < 3 {
		t.Errorf("one of a third tenant has %d", n)
	}
	for _, state := range states["t1\x00a"] {
		r := back(state, "q", "1")
		r.Owner, r.Binding = "t1\x00a", "binding of t1\x00a"
		if _, err := c.Resume(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if n := fill("t2\x00b"); n < 5 {
		t.Errorf("when they ended, there was room for %d", n)
	}
}

// Several questions at once: those without an answer are asked again, and those that
// come while the client is away are told when it is back.
func TestSeveralQuestionsAtOnce(t *testing.T) {
	c := open(t, nil)
	more := make(chan struct{})
	run := func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
		second := make(chan string)
		go func() {
			<-more
			a, err := req.Ask(ctx, inquiry("ann", "a"))
			second <- fmt.Sprint(string(a[0].Result), err)
		}()
		a, err := req.Ask(ctx, inquiry("ann", "a", "b"))
		if err != nil {
			return sallyport.Result{}, err
		}
		return sallyport.Result{Content: json.RawMessage(fmt.Sprintf("%s,%s,%s", a[0].Result, a[1].Result, <-second))}, nil
	}
	res := begin(t, c, run)
	if len(res.Questions) != 2 {
		t.Fatalf("%+v", res)
	}
	close(more)
	var err error
	for len(res.Questions) < 3 { // nothing of what is asked: asked again
		if res, err = c.Resume(t.Context(), back(res.State, "x", "1")); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for _, q := range res.Questions {
		keys = append(keys, q.Key)
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"a", "a (2)", "b"}) {
		t.Errorf("keys %q", keys)
	}
	if res, err = c.Resume(t.Context(), back(res.State, "a", "1", "b", "2")); err != nil || len(res.Questions) != 1 || res.Questions[0].Key != "a (2)" {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err = c.Resume(t.Context(), back(res.State, "a (2)", "3")); err != nil || string(res.Content) != "1,2,3<nil>" {
		t.Errorf("%s, %v", res.Content, err)
	}
}

// What became of a call while its client was away is told when it is back: a server
// that takes its question back goes on.
func TestACallThatEndsMeanwhile(t *testing.T) {
	c := open(t, nil)
	over := make(chan struct{})
	mine, takeBack := context.WithCancel(t.Context())
	res := begin(t, c, func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
		_, err := req.Ask(mine, inquiry("ann", "q"))
		defer close(over)
		return sallyport.Result{CallID: "call_1", Content: json.RawMessage(`"without"`)}, errors.Join(ctx.Err(), map[bool]error{true: errors.New("answered")}[err == nil])
	})
	takeBack()
	<-over
	if got, err := c.Resume(t.Context(), back(res.State, "q", "1")); err != nil || string(got.Content) != `"without"` {
		t.Errorf("%+v, %v", got, err)
	}
	if c.Waiting() != 0 {
		t.Errorf("%d wait", c.Waiting())
	}
}

// By today's policies a human must approve: a call that began without that stops
// here, and one that was approved goes on.
func TestPoliciesOfTodayCount(t *testing.T) {
	c := open(t, nil)
	for _, approved := range []bool{false, true} {
		res := begin(t, c, func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
			in := inquiry("ann", "q")
			in.Approved = approved
			_, err := req.Ask(ctx, in)
			return sallyport.Result{Content: json.RawMessage("1")}, err
		})
		r := back(res.State, "q", "1")
		r.NeedsHuman = true
		got, err := c.Resume(t.Context(), r)
		if approved && err != nil || !approved && sallyport.CodeOf(err) != sallyport.Denied {
			t.Errorf("approved %t: %+v, %v", approved, got, err)
		}
	}
}

// A gateway that stops ends what waits, and waits for it.
func TestStoppingEndsWhatWaits(t *testing.T) {
	c := open(t, nil)
	ended := make(chan error, 1)
	state := begin(t, c, asks(1, ended)).State
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if cause, _ := errors.AsType[*sallyport.Cancellation](<-ended); cause == nil || cause.By != "shutdown" {
		t.Errorf("ended by %v", cause)
	}
	if _, err := c.Begin(t.Context(), sallyport.Request{}, asks(0, nil)); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("a stopped gateway takes calls: %v", err)
	}
	if _, err := c.Resume(t.Context(), back(state, "q0", "0")); err == nil {
		t.Error("a stopped gateway goes on with calls")
	}
}
