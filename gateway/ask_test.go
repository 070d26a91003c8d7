package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/test/await"
)

// asking is a world whose tool asks one question, and a client that can be asked.
func asking(t *testing.T) (*world, *held.Calls) {
	w := newWorld(t)
	calls, err := held.New(held.Options{Key: []byte("0123456789abcdef0123456789abcdef"), Replica: "r", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = calls.Close() })
	w.Held = calls
	w.run = func(ctx context.Context, j sallyport.Job) (sallyport.Output, error) {
		if j.Ask == nil {
			return sallyport.Output{Content: json.RawMessage(`{"content":[]}`)}, nil
		}
		a, err := j.Ask(ctx, []sallyport.Question{{Key: "who", Method: sallyport.AskRoots}})
		if err != nil {
			return sallyport.Output{}, err
		}
		return sallyport.Output{Content: json.RawMessage(`{"content":[],"structuredContent":` + string(a[0].Result) + `}`)}, nil
	}
	return w, calls
}

func able(req sallyport.Request) sallyport.Request {
	req.Can = sallyport.Abilities{Roots: true}
	return req
}

func returns(req sallyport.Request, state string) sallyport.Request {
	req.State, req.Answers = state, map[string]json.RawMessage{"who": json.RawMessage(`{"roots":[{"uri":"file:///x"}]}`)}
	return req
}

// A client that comes back with answers is authenticated, judged and authorised again,
// and what it called is neither reserved nor approved nor run a second time.
func TestAContinuationIsNeitherReservedNorApprovedAgain(t *testing.T) {
	w, calls := asking(t)
	w.risk, w.verdict.Demands = sallyport.Risk{Level: sallyport.Critical}, []sallyport.Demand{{Policy: "test"}}
	req := able(call(`{"n":1}`))
	req.Key = "k"
	res, err := calls.Begin(t.Context(), req, w.Call)
	e := errAs(err)
	if e.Code != sallyport.Pending {
		t.Fatalf("%+v, %v", res, err)
	}
	w.ledger.decide(e.Ticket, sallyport.TicketApproved)
	if res, err = calls.Begin(t.Context(), req, w.Call); err != nil || len(res.Questions) != 1 || res.State == "" || len(w.ran) != 1 {
		t.Fatalf("%+v, %v, ran %d", res, err, len(w.ran))
	}
	if w.slots != 0 {
		t.Errorf("%d slots are held while nobody is there", w.slots)
	}
	if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.InFlight {
		t.Errorf("the same key meanwhile: %v", err)
	}
	got, err := w.Call(t.Context(), returns(req, res.State))
	if err != nil || !strings.Contains(string(got.Content), "file:///x") || got.CallID != res.CallID {
		t.Errorf("%+v, %v", got, err)
	}
	count := map[sallyport.EntryKind]int{}
	var continued, asked int
	for _, en := range w.entries {
		count[en.Kind]++
		var r sallyport.Record
		if en.Kind == sallyport.EntryOutcome && json.Unmarshal(en.Payload, &r) == nil {
			if r.Continues {
				continued++
				if r.Path[len(r.Path)-2] != sallyport.Authorize {
					t.Errorf("a continuation went %v", r.Path)
				}
			}
			asked += len(r.Asked)
		}
	}
	if len(w.ran) != 1 || len(w.ledger.opened) != 1 || count[sallyport.EntryIntent] != 1 || continued != 1 || asked != 1 {
		t.Errorf("ran %d, tickets %d, %v, %d continuations, %d questions", len(w.ran), len(w.ledger.opened), count, continued, asked)
	}
	if again, err := w.Call(t.Context(), req); err != nil || !again.Replay || string(again.Content) != string(got.Content) {
		t.Errorf("the key brings the result: %+v, %v", again, err)
	}
}

// A continuation is its caller's, for the same call through the same profile, and by
// what policies say today.
func TestAContinuationIsJudgedAgain(t *testing.T) {
	w, calls := asking(t)
	res, err := calls.Begin(t.Context(), able(call(`{"n":1}`)), w.Call)
	if err != nil || len(res.Questions) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	_, unknown := w.Call(t.Context(), returns(call(`{"n":1}`), "nonsense"))
	for what, change := range map[string]func(*sallyport.Request){
		"another agent":      func(r *sallyport.Request) { r.Credential = "token-of-bob" },
		"another tenant":     func(r *sallyport.Request) { r.Credential = "token-of-ann@t2" },
		"for another user":   func(r *sallyport.Request) { r.Credential = "token-of-ann+cy" },
		"other arguments":    func(r *sallyport.Request) { r.Operation.Args = json.RawMessage(`{"n":2}`) },
		"another profile":    func(r *sallyport.Request) { r.Profile = "finance" },
		"a state with a bit": func(r *sallyport.Request) { r.State = "A" + r.State[1:] },
	} {
		r := returns(call(`{"n":1}`), res.State)
		if change(&r); r.State == res.State && what == "a state with a bit" {
			r.State = "B" + r.State[1:]
		}
		if _, err := w.Call(t.Context(), r); errAs(err).Code != sallyport.Invalid || errAs(err).Message != errAs(unknown).Message || errAs(err).Hint != errAs(unknown).Hint {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(){
		"no credential":              func() {},
		"a policy that refuses":      func() { w.verdict.Allow = false },
		"a tool that is not there":   func() { delete(w.tools, "echo") },
		"a tool that is quarantined": func() { tool := w.tools["echo"]; tool.Status = sallyport.ToolQuarantined; w.tools["echo"] = tool },
		"a policy that asks humans":  func() { w.verdict.Demands = []sallyport.Demand{{Policy: "p"}} },
	} {
		tool, verdict := w.tools["echo"], w.verdict
		change()
		r := returns(call(`{"n":1}`), res.State)
		if what == "no credential" {
			r.Credential = "x"
		}
		if got, err := w.Call(t.Context(), r); err == nil || sallyport.CodeOf(err) == sallyport.Internal {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		w.tools["echo"], w.verdict = tool, verdict
	}
	got, err := w.Call(t.Context(), returns(call(`{ "n" : 1 }`), res.State)) // the control: none of these was it, and this is the same call
	if err != nil || !strings.Contains(string(got.Content), "file:///x") || len(w.ran) != 1 {
		t.Errorf("%+v, %v, ran %d", got, err, len(w.ran))
	}
	if _, err := w.Call(t.Context(), returns(call(`{"n":1}`), res.State)); errAs(err).Message != errAs(unknown).Message {
		t.Errorf("a state that was used: %v", err)
	}
	w.Held = nil
	if _, err := w.Call(t.Context(), returns(call(`{"n":1}`), res.State)); errAs(err).Code != sallyport.Invalid {
		t.Errorf("a gateway that holds nothing: %v", err)
	}
}

// A call that may act and whose client does not come back has an unknown outcome.
func TestACallThatNobodyComesBackFor(t *testing.T) {
	w, _ := asking(t)
	calls, err := held.New(held.Options{Key: []byte("0123456789abcdef0123456789abcdef"), Replica: "r", Now: time.Now, Wait: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.Held, w.risk = calls, sallyport.Risk{Level: sallyport.High}
	req := able(call(`{"n":1}`))
	req.Key = "k"
	if _, err := calls.Begin(t.Context(), req, w.Call); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the call is given up", func() bool { return calls.Waiting() == 0 })
	if err := calls.Close(); err != nil { // waits for it
		t.Fatal(err)
	}
	if r := w.last(t); r.CancelledBy != "unanswered" || r.Code != sallyport.OutcomeUnknown {
		t.Errorf("%+v", r)
	}
	if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.OutcomeUnknown || len(w.ran) != 1 {
		t.Errorf("%v, ran %d", err, len(w.ran))
	}
}

func errAs(err error) *sallyport.Error {
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		return &sallyport.Error{}
	}
	return e
}

// What needs a human in an argument does not pass as an answer, which no human is
// shown: not even where the call itself was approved.
func TestFO34_AnswersAreJudged(t *testing.T) {
	for level, want := range map[sallyport.Level]string{sallyport.High: `{"action":"accept","content":{"a":"x"}}`, sallyport.Critical: `{"action":"decline"}`} {
		w, calls := asking(t)
		w.risk = sallyport.Risk{Level: level}
		w.run = func(ctx context.Context, j sallyport.Job) (sallyport.Output, error) {
			a, err := j.Ask(ctx, []sallyport.Question{{Key: "who", Method: sallyport.AskUser, Params: json.RawMessage(`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`)}})
			if err != nil {
				return sallyport.Output{}, err
			}
			return sallyport.Output{Content: json.RawMessage(`{"content":[],"structuredContent":` + string(a[0].Result) + `}`)}, nil
		}
		req := call(`{"n":1}`)
		req.Key, req.Can = "k", sallyport.Abilities{Form: true}
		res, err := calls.Begin(t.Context(), req, w.Call)
		if level == sallyport.Critical {
			w.ledger.decide(errAs(err).Ticket, sallyport.TicketApproved)
			res, err = calls.Begin(t.Context(), req, w.Call)
		}
		if err != nil || len(res.Questions) != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		back := req
		back.State, back.Answers = res.State, map[string]json.RawMessage{"who": json.RawMessage(`{"action":"accept","content":{"a":"x"}}`)}
		if res, err = w.Call(t.Context(), back); err != nil || !strings.Contains(string(res.Content), want) {
			t.Errorf("%v: %s, %v, want %s", level, res.Content, err, want)
		}
	}
}
