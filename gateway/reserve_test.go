package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/gatewaytest"
)

// TO-36: a result never crosses tenants, agents, users, tools or arguments,
// and is shown again only as today's policy allows.
func TestTO36_KeyReuse(t *testing.T) {
	const canary = "canary-of-ann"
	w := newWorld(t)
	w.risk.Level = sallyport.High
	other := w.tools["echo"]
	other.Name = "other"
	w.tools["other"] = other
	w.run = func(_ context.Context, j sallyport.Job) (sallyport.Output, error) {
		text := "fresh for " + j.Who.ID
		if len(w.ran) == 1 {
			text = canary
		}
		return sallyport.Output{Content: json.RawMessage(`{"content":[{"type":"text","text":` + quote(text) + `}]}`)}, nil
	}
	first := call(`{"n":1}`)
	first.Key, first.Credential = "K", "token-of-ann+carol"
	if res, err := w.Call(t.Context(), first); err != nil || !strings.Contains(string(res.Content), canary) {
		t.Fatalf("%s, %v", res.Content, err)
	}
	for name, change := range map[string]func(*sallyport.Request){
		"another tenant":             func(r *sallyport.Request) { r.Credential = "token-of-ann@t2+carol" },
		"another agent":              func(r *sallyport.Request) { r.Credential = "token-of-bob+carol" },
		"another user":               func(r *sallyport.Request) { r.Credential = "token-of-ann+dave" },
		"no user":                    func(r *sallyport.Request) { r.Credential = "token-of-ann" },
		"another tool":               func(r *sallyport.Request) { r.Operation.Target = "other" },
		"the same key in small":      func(r *sallyport.Request) { r.Key = "k" },
		"a key that ends as another": func(r *sallyport.Request) { r.Key, r.Credential = "Kfor+carol", "token-of-ann" },
	} {
		req, before := first, len(w.ran)
		change(&req)
		res, err := w.Call(t.Context(), req)
		if err != nil || res.Replay || len(w.ran) != before+1 || strings.Contains(string(res.Content), canary) {
			t.Errorf("%s: %s, replay %v, %v, ran %d more; want a fresh execution", name, res.Content, res.Replay, err, len(w.ran)-before)
		}
	}
	keys := map[string]bool{}
	for _, j := range w.ran {
		keys[j.Key] = true
	}
	if len(keys) != len(w.ran) {
		t.Errorf("%d calls were forwarded under %d keys: the tool's server cannot tell them apart", len(w.ran), len(keys))
	}
	before := len(w.ran)
	altered := first
	altered.Operation.Args = json.RawMessage(`{"n":2}`)
	if res, err := w.Call(t.Context(), altered); sallyport.CodeOf(err) != sallyport.Conflict || res.Content != nil {
		t.Errorf("other arguments: %s, %v", res.Content, err)
	}
	for _, key := range []string{"K ", " ", "K → carol", "\u212a", "Ｋ", "K\u200b", "K\x00", strings.Repeat("K", 1<<20)} {
		bad := first
		bad.Key, bad.Credential = key, "token-of-ann"
		if res, err := w.Call(t.Context(), bad); sallyport.CodeOf(err) != sallyport.Invalid || res.Content != nil {
			t.Errorf("the key %.20q: %s, %v", key, res.Content, err)
		}
		if rec := w.last(t); len(rec.Key) > 300 {
			t.Errorf("the record keeps %d bytes of a key", len(rec.Key))
		}
	}
	// Today's policy decides about a replay, too.
	ok := w.verdict
	w.verdict = Verdict{}
	if res, err := w.Call(t.Context(), first); sallyport.CodeOf(err) != sallyport.Denied || res.Content != nil {
		t.Errorf("denied today: %s, %v", res.Content, err)
	}
	w.verdict = ok
	w.verdict.Demands = []sallyport.Demand{{Policy: "test"}}
	if res, err := w.Call(t.Context(), first); sallyport.CodeOf(err) != sallyport.Denied || res.Content != nil {
		t.Errorf("a human is asked today: %s, %v", res.Content, err)
	}
	w.verdict = ok
	w.Sanitiser = masking{}
	if res, err := w.Call(t.Context(), first); err != nil || !res.Replay || strings.Contains(string(res.Content), canary) {
		t.Errorf("sanitised today: %s, %v", res.Content, err)
	}
	w.Sanitiser = gatewaytest.Plain{}
	if res, err := w.Call(t.Context(), first); err != nil || !res.Replay || !strings.Contains(string(res.Content), canary) {
		t.Errorf("the control, a replay: %s, %v", res.Content, err)
	}
	if len(w.ran) != before {
		t.Errorf("ran %d times more", len(w.ran)-before)
	}
}

type masking struct{ gatewaytest.Plain }

func (masking) Result(string, sallyport.Tool, sallyport.Output) (json.RawMessage, bool, []string, error) {
	return json.RawMessage(`{"content":[]}`), false, []string{"masked"}, nil
}

// A call that a human approved is shown again, although one must be asked.
func TestReplayOfAnApprovedCall(t *testing.T) {
	w := newWorld(t)
	w.risk.Irreversible = true
	req := call(`{}`)
	req.Key = "k"
	w.ledger.decide(pend(t, w, req), sallyport.TicketApproved)
	for i := range 2 {
		if res, err := w.Call(t.Context(), req); err != nil || res.Replay != (i == 1) {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
	}
}

// A result that had to make room is not shown, and the call is not made again.
func TestResultNoLongerKept(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	req := call(`{}`)
	req.Key = "k"
	if _, err := w.Call(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	for _, r := range w.ledger.res {
		r.Output = nil
	}
	res, err := w.Call(t.Context(), req)
	if err != nil || !res.Replay || !strings.Contains(string(res.Content), "no longer kept") || !json.Valid(res.Content) || len(w.ran) != 1 {
		t.Errorf("%s, %v; ran %d times", res.Content, err, len(w.ran))
	}
}

// TO-37: a process that was paused after it took its key, until its lease had
// run out, does not execute. The control was paused for less.
func TestTO37_PausedBeforeItExecutes(t *testing.T) {
	for _, tt := range []struct {
		pause time.Duration
		ran   int
	}{{time.Minute, 1}, {2 * time.Minute, 0}} { // a timeout of a minute, and a lease of one more
		w := newWorld(t)
		w.risk.Level = sallyport.High
		w.Ledger = pausing{w.ledger, func() { w.now = w.now.Add(tt.pause) }}
		req := call(`{}`)
		req.Key = "k"
		_, err := w.Call(t.Context(), req)
		if (err == nil) != (tt.ran == 1) || len(w.ran) != tt.ran {
			t.Errorf("paused for %s: %v, ran %d times; want %d", tt.pause, err, len(w.ran), tt.ran)
		}
	}
	// A caller that has gone meanwhile is the same.
	w := newWorld(t)
	w.risk.Level = sallyport.High
	ctx, cancel := context.WithCancel(t.Context())
	w.Ledger = pausing{w.ledger, cancel}
	if _, err := w.Call(ctx, call(`{}`)); err == nil || len(w.ran) != 0 {
		t.Errorf("canceled before it executes: %v, ran %d times", err, len(w.ran))
	}
	for _, r := range w.ledger.res {
		if r.State != sallyport.Failed {
			t.Errorf("its key is %s, and nothing was executed", r.State)
		}
	}
}

// pausing stops the process right after Begin has taken the key.
type pausing struct {
	*memory
	pause func()
}

func (p pausing) Begin(ctx context.Context, b Begin) (int64, error) {
	fence, err := p.memory.Begin(ctx, b)
	p.pause()
	return fence, err
}

// A lease that ran out refuses the outcome: the caller is told that nobody
// knows it.
func TestTO37_OutcomeRefused(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	w.ledger.refuse = &sallyport.Error{Code: sallyport.Conflict, Message: "the lease ran out"}
	res, err := w.Call(t.Context(), call(`{}`))
	if sallyport.CodeOf(err) != sallyport.OutcomeUnknown || res.Content != nil || errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("%s, %v", res.Content, err)
	}
}

// The keys of a saga's steps are the gateway's own: who sent one would have a
// step answered by a call of his.
func TestTO36_KeysOfSagas(t *testing.T) {
	w := newWorld(t)
	w.risk.Level = sallyport.High
	for _, door := range []string{"mcp", "admin", ""} {
		req := call(`{"n":1}`)
		req.Door, req.Key = door, sallyport.SagaKey("saga_x", "step", false, 1)
		if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Invalid || len(w.ran) != 0 {
			t.Errorf("door %q: %v, executed %d times", door, err, len(w.ran))
		}
	}
	req := call(`{"n":1}`)
	req.Door, req.Key = "saga", sallyport.SagaKey("saga_x", "step", false, 1)
	if _, err := w.Call(t.Context(), req); err != nil || len(w.ran) != 1 {
		t.Errorf("the saga's own: %v, executed %d times", err, len(w.ran))
	}
}

// An answer that cannot be used says nothing about whether the call acted: under
// a key that is unknown, and not made again.
func TestTO37_AnswerThatCannotBeUsed(t *testing.T) {
	broken := sallyport.Output{Content: json.RawMessage(`{"content":[],"isError":true}`), IsError: true, Unclear: true}
	honest := sallyport.Output{Content: broken.Content, IsError: true}
	for _, c := range []struct {
		name      string
		out       sallyport.Output
		sanitiser Sanitiser
		level     sallyport.Level
		want      sallyport.ReservationState
	}{
		{"the backend sees it", broken, gatewaytest.Plain{}, sallyport.High, sallyport.Unknown},
		{"the sanitiser sees it", sallyport.Output{Content: broken.Content}, breaking{}, sallyport.High, sallyport.Unknown},
		{"the tool says that it failed", honest, gatewaytest.Plain{}, sallyport.High, sallyport.Done},
		{"the tool changes nothing", broken, gatewaytest.Plain{}, sallyport.Low, sallyport.Done},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.risk.Level, w.Sanitiser = c.level, c.sanitiser
			w.run = func(context.Context, sallyport.Job) (sallyport.Output, error) { return c.out, nil }
			req := call(`{}`)
			req.Key = "k"
			if res, err := w.Call(t.Context(), req); err != nil || !res.IsError {
				t.Fatalf("its caller is shown a tool's error: %+v, %v", res, err)
			}
			said := w.last(t).Message
			_, err := w.Call(t.Context(), req)
			if again := c.want == sallyport.Unknown; again != (sallyport.CodeOf(err) == sallyport.OutcomeUnknown) || again != (said != "") || len(w.ran) != 1 {
				t.Errorf("asked again: %v; ran %d times; the record says %q", err, len(w.ran), said)
			}
			for _, r := range w.ledger.res {
				if r.State != c.want {
					t.Errorf("it is %s", r.State)
				}
			}
		})
	}
}

type breaking struct{ gatewaytest.Plain }

func (breaking) Result(_ string, _ sallyport.Tool, out sallyport.Output) (json.RawMessage, bool, []string, error) {
	return out.Content, true, []string{"malformed output"}, nil
}
