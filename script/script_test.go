package script_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// five makes five calls, the third of which needs a human; the others at once.
func five(p *program) error {
	if _, err := p.call("do", `{"n":1}`); err != nil {
		return err
	}
	if _, err := p.call("look", `{"n":2}`); err != nil {
		return err
	}
	if _, err := p.call("ask", `{"n":3}`); err != nil {
		return err
	}
	p.send("do", `{"n":4}`)
	p.send("do", `{"n":5}`)
	for range 2 {
		if r, err := p.recv(); err != nil {
			return err
		} else if r.Error != nil {
			return errors.New(r.Error.Message)
		}
	}
	return nil
}

var allFive = []string{`ask {"n":3}`, `do {"n":1}`, `do {"n":4}`, `do {"n":5}`}

// toTheEnd runs a script until it has come to its end, with people who approve
// what is asked and settle what is unknown.
func (h *house) toTheEnd(key string) outcome {
	h.t.Helper()
	for range 20 {
		o := h.script(key, "*")
		switch {
		case o.err == nil && o.Stopped != nil && o.Stopped.Code == sallyport.Pending:
			h.approve(o.Stopped.Ticket)
		case o.err == nil && o.Stopped == nil && o.Failed == "<nil>":
			return o
		case h.settle() == 0 && sallyport.CodeOf(o.err) != sallyport.OutcomeUnknown && o.Stopped != nil:
			h.t.Fatal(o)
		}
	}
	h.t.Fatal("it comes to no end")
	return outcome{}
}

// A script that is killed at any write to the ledger, before it or after, and run
// again under its key, does everything once.
func TestKilledAnywhere(t *testing.T) {
	w := newWorld(t)
	w.program = five
	h := w.live(0, false)
	h.toTheEnd("k")
	writes := h.Writes()
	h.end()
	if got := w.done(); !slices.Equal(got, allFive) || writes < 10 {
		t.Fatalf("undisturbed: %q, %d writes", got, writes)
	}
	for n := 1; n <= writes; n++ {
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			w.program = five
			h := w.live(n, after)
			for range 3 { // a human approves while it lives
				if o := h.script("k", "*"); o.err == nil && o.Stopped != nil && o.Stopped.Code == sallyport.Pending {
					h.approve(o.Stopped.Ticket)
				}
			}
			h.end()
			h = w.live(0, false)
			o := h.toTheEnd("k")
			if got := w.done(); !slices.Equal(got, allFive) || len(o.Calls) != 5 && !o.res.Replay {
				t.Errorf("killed at write %d (after: %t): %q\n%s", n, after, got, o)
			}
			h.end()
		}
	}
}

// What is done comes from the record, as does the script's own result; a call that
// was not made is made.
func TestRunAgain(t *testing.T) {
	w := newWorld(t)
	w.program = five
	h := w.live(0, false)
	defer h.end()
	o := h.script("k", "*")
	if o.Stopped == nil || o.Stopped.Code != sallyport.Pending || !strings.Contains(o.Stopped.Hint, `"k"`) || len(o.Calls) != 3 || o.Calls[2].Ticket != o.Stopped.Ticket {
		t.Fatal(o)
	}
	if again := h.script("k", "*"); again.Stopped == nil || again.Stopped.Ticket != o.Stopped.Ticket {
		t.Fatalf("before it is decided: %s", again)
	}
	h.approve(o.Stopped.Ticket)
	o = h.script("k", "*")
	replays := []bool{}
	for _, c := range o.Calls {
		replays = append(replays, c.Replay)
	}
	if !slices.Equal(replays, []bool{true, true, false, false, false}) || !slices.Equal(w.done(), allFive) {
		t.Errorf("%s\n%q", o, w.done())
	}
	if o = h.script("k", "*"); !o.res.Replay || len(w.done()) != 4 {
		t.Errorf("once it is done: %s, %q", o, w.done())
	}
	if o = h.toTheEnd("other"); len(w.done()) != 8 {
		t.Errorf("under another key: %s, %q", o, w.done())
	}
}

// Without a key, the id of the first run is one.
func TestRunAgainWithoutAKey(t *testing.T) {
	w := newWorld(t)
	w.program = five
	h := w.live(0, false)
	defer h.end()
	o := h.script("", "*")
	if o.Stopped == nil || !strings.Contains(o.Stopped.Hint, o.res.CallID) {
		t.Fatal(o)
	}
	h.approve(o.Stopped.Ticket)
	if h.toTheEnd(o.res.CallID); !slices.Equal(w.done(), allFive) {
		t.Errorf("%q", w.done())
	}
}

// A witness is taken for who approves, though the script did not name its tool.
func TestWitness(t *testing.T) {
	w := newWorld(t)
	w.program = func(p *program) error { _, err := p.call("seen", `{}`); return err }
	h := w.live(0, false)
	defer h.end()
	o := h.script("k", "seen")
	if o.Stopped == nil || o.Stopped.Code != sallyport.Pending {
		t.Fatal(o)
	}
	h.approve(o.Stopped.Ticket)
	if o = h.script("k", "seen"); o.Failed != "<nil>" || len(w.done()) != 1 {
		t.Errorf("%s, %q", o, w.done())
	}
}

// A rejection is an error that the program sees.
func TestRejected(t *testing.T) {
	w := newWorld(t)
	w.program = five
	h := w.live(0, false)
	defer h.end()
	o := h.script("k", "*")
	if _, err := h.tickets.Decide(t.Context(), "t", sallyport.Decision{Ticket: o.Stopped.Ticket, By: "ada", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	if o = h.script("k", "*"); o.Stopped != nil || !strings.Contains(o.Failed, string(sallyport.Rejected)) || len(w.done()) != 1 {
		t.Errorf("%s, %q", o, w.done())
	}
}

// A script that makes other calls than before under its key is stopped at the first
// of them, before it is made.
func TestChangedScript(t *testing.T) {
	for name, changed := range map[string]string{"arguments": `do {"n":1,"x":1}`, "tool": `look {"n":1}`} {
		w := newWorld(t)
		w.program = five
		h := w.live(0, false)
		first := h.script("", "*") // a key of its own, so that not the script's own arguments are compared
		tool, args, _ := strings.Cut(changed, " ")
		w.program = func(p *program) error { _, err := p.call(tool, args); return err }
		o := h.script(first.res.CallID, "*")
		if o.Stopped == nil || o.Stopped.Code != sallyport.Conflict || !strings.Contains(o.Stopped.Message, "call 1") || len(w.done()) != 1 || len(w.recorded()) != 3 {
			t.Errorf("other %s: %s, %q", name, o, w.done())
		}
		h.end()
	}
}

// Each inner call is on record as one of its own, by who called the script.
func TestRecords(t *testing.T) {
	w := newWorld(t)
	w.program = five
	h := w.live(0, false)
	defer h.end()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	o := h.scriptIn(t.Context(), sallyport.Request{Key: "k", Trace: "00-" + trace + "-b7ad6b7169203331-01"}, "*")
	all := w.recorded()
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	for i, r := range all {
		if r.Parent != o.res.CallID || r.CallID == o.res.CallID || r.Principal != "ann" || r.Tenant != "t" || !strings.Contains(r.Trace, trace) || r.Risk == nil ||
			r.CallID != o.Calls[i].CallID || !strings.HasPrefix(r.Key, sallyport.ScriptKeyPrefix) {
			t.Errorf("%+v", r)
		}
	}
	for _, token := range w.tokens {
		if strings.Contains(string(o.res.Content), token) || strings.Contains(fmt.Sprintf("%+v", all), token) {
			t.Error("the credential of inner calls gets out")
		}
		if _, err := h.front.Authenticator.Authenticate(t.Context(), "", token); err == nil {
			t.Error("the door takes the credential of inner calls")
		}
		if _, err := h.inner.Authenticator.Authenticate(t.Context(), "", token); err == nil {
			t.Error("the credential outlives the script")
		}
	}
	if _, err := h.inner.Authenticator.Authenticate(t.Context(), "", "token-of-ann"); err == nil {
		t.Error("inner calls take an agent's token")
	}
}

// An agent that is suspended or rotated, or that policies do not let run the script
// any more, makes no inner call any more.
func TestRevokedWhileItRuns(t *testing.T) {
	for name, revoke := range map[string]func(w *world){
		"nothing":   func(*world) {},
		"suspended": func(w *world) { w.agent.State = "suspended" },
		"rotated":   func(w *world) { w.agent.NotBefore = time.Now().Add(time.Second) },
		"gone":      func(w *world) { w.agent.ID = "bob" },
		"policy":    func(w *world) { w.forbid["run"] = true },
		"approval":  func(w *world) { w.demand["run"] = true },
		"the tool":  func(w *world) { w.forbid["do"] = true },
	} {
		w := newWorld(t)
		var said error
		w.program = func(p *program) error {
			if _, err := p.call("do", `{"n":1}`); err != nil {
				return err
			}
			w.set(func() { revoke(w) })
			_, said = p.call("do", `{"n":2}`)
			return nil
		}
		h := w.live(0, false)
		o := h.script("k", "*")
		if want := map[bool]int{true: 2, false: 1}[name == "nothing"]; len(w.done()) != want || (said == nil) != (name == "nothing") {
			t.Errorf("%s: %v, %q, %s", name, said, w.done(), o)
		}
		h.end()
	}
}

// The end of the script's call ends what it called; what was called and is still
// running when the program ends is waited for.
func TestInnerCallsEndWithTheScript(t *testing.T) {
	w := newWorld(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	w.act = func(ctx context.Context, _ sallyport.Job) error {
		close(begun)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}
	w.program = func(p *program) error { _, err := p.call("do", `{}`); return err }
	h := w.live(0, false)
	defer h.end()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(&sallyport.Cancellation{By: "client"}) }()
	if o := h.scriptIn(ctx, sallyport.Request{Key: "k"}, "*"); o.err == nil {
		t.Error(o)
	}
	if err := <-ended; err == nil {
		t.Error("the inner call was not cancelled")
	}
	if all := w.recorded(); len(all) != 1 || all[0].CancelledBy != "client" || all[0].Code != sallyport.OutcomeUnknown {
		t.Errorf("%+v", all)
	}
	w.act = func(context.Context, sallyport.Job) error { time.Sleep(20 * time.Millisecond); return nil }
	w.program = func(p *program) error { p.send("do", `{}`); return nil }
	if o := h.script("left", "*"); len(o.Calls) != 1 || o.Calls[0].CallID == "" || len(w.done()) != 1 {
		t.Errorf("%s, %q", o, w.done())
	}
}

// What a script reads of strangers taints who called it, and its own result; that a
// human would be asked by now does not keep it from what it has done before.
func TestTaint(t *testing.T) {
	w := newWorld(t)
	w.program = func(p *program) error {
		for _, c := range [][2]string{{"do", `{"n":1}`}, {"wild", `{"n":2}`}, {"do", `{"n":3}`}} {
			if _, err := p.call(c[0], c[1]); err != nil {
				return err
			}
		}
		return nil
	}
	h := w.live(0, false)
	defer h.end()
	o := h.script("k", "*")
	if o.Stopped == nil || o.Stopped.Code != sallyport.Pending || !o.res.Untrusted {
		t.Fatal(o)
	}
	h.approve(o.Stopped.Ticket)
	if o = h.script("k", "*"); o.Stopped != nil || o.Failed != "<nil>" || !o.res.Untrusted || len(w.done()) != 2 {
		t.Errorf("%s, %q", o, w.done())
	}
	if o = h.script("k", "*"); !o.res.Replay || !o.res.Untrusted {
		t.Errorf("its result, once more: %s, untrusted %t", o, o.res.Untrusted)
	}
	w.program = func(p *program) error { _, err := p.call("look", `{}`); return err }
	if o = h.script("clean", "*"); o.res.Untrusted {
		t.Error("a script that read nothing of strangers is not trusted")
	}
}

// For another user, a key is another one.
func TestKeysOfUsers(t *testing.T) {
	k := sallyport.ReservationKey{Tenant: "t", Principal: "p", Tool: "run", Key: "k"}
	roots := map[string]bool{}
	for _, user := range []string{"", "carol", "dave"} {
		scoped := k
		if user != "" {
			scoped.Key += sallyport.Scope + user
		}
		if sallyport.ScriptRoot(k, user) != sallyport.ScriptRoot(scoped, user) {
			t.Error("the call id of a first run is no key for the next")
		}
		roots[sallyport.ScriptRoot(scoped, user)] = true
	}
	if len(roots) != 3 {
		t.Errorf("%v", roots)
	}
	key := sallyport.ScriptKey(sallyport.ScriptRoot(k, ""), 7, "do", []byte(`{}`))
	if root, n, ok := sallyport.ParseScriptKey(key); !ok || n != 7 || root != sallyport.ScriptRoot(k, "") || len(root) != 39 || len(key) > sallyport.MaxKey {
		t.Errorf("%s: %s, %d, %t", key, root, n, ok)
	}
}
