package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

// A shop is a gateway over a real store whose clock the test moves. Two of
// them can share a database.
type shop struct {
	gateway.World
	*sqlite.Store
	now func() time.Time
}

func newShop(t *testing.T, dir string, now func() time.Time) shop {
	t.Helper()
	key, err := audit.LoadKey(dir)
	if err != nil {
		key, err = audit.CreateKey(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	seal, err := audit.NewSealer(key, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(filepath.Join(dir, "db"), seal, relational.WithClock(now))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e, err := audit.AdminEntry("t1", sallyport.Change{Action: "admins add", By: "init", Target: "ada"})
	if err == nil {
		err = s.PutAdmin(t.Context(), sallyport.Admin{Tenant: "t1", Name: "ada"}, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := gateway.NewWorld(t)
	w.Ledger, w.Past, w.Now = s, s, now
	w.Judge(func(args json.RawMessage) (out []sallyport.Amount) {
		var in struct {
			Amount       json.Number
			Currency, To string
		}
		if json.Unmarshal(args, &in) == nil && in.Amount != "" {
			out = append(out, sallyport.Amount{Value: in.Amount.String(), Currency: in.Currency, Recipient: in.To})
		}
		return out
	})
	return shop{w, s, now}
}

func clock() (now func() time.Time, pass func(time.Duration)) {
	var mu sync.Mutex
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return func() time.Time { mu.Lock(); defer mu.Unlock(); return at },
		func(d time.Duration) { mu.Lock(); defer mu.Unlock(); at = at.Add(d) }
}

var thousand = []sallyport.Window{{Currency: "EUR", Limit: "1000", Per: time.Minute, By: sallyport.ByPrincipal}}

func pay(i int) sallyport.Request {
	return gateway.Call1(fmt.Sprintf(`{"amount":999,"currency":"EUR","to":"A%d"}`, i))
}

// TO-27: ten transfers of 999 in a minute, where more than 1,000 needs a human.
func TestTO27_ManySmallAmounts(t *testing.T) {
	now, pass := clock()
	s := newShop(t, t.TempDir(), now)
	for i := range 10 { // the control: without a window all of them run
		if _, err := s.Call(t.Context(), pay(i)); err != nil {
			t.Fatal(err)
		}
	}
	pass(time.Hour)
	s.Windows = thousand
	var tickets []string
	for i := range 10 {
		_, err := s.Call(t.Context(), pay(i))
		e, _ := errors.AsType[*sallyport.Error](err)
		switch {
		case i == 0 && err != nil:
			t.Fatal(err)
		case i > 0 && (e == nil || e.Code != sallyport.Pending):
			t.Fatalf("call %d: %v, want approval_pending", i, err)
		case i > 0:
			tickets = append(tickets, e.Ticket)
		}
	}
	tk, err := s.Ticket(t.Context(), "t1", tickets[0])
	if err != nil || len(tk.Risk.Reasons) == 0 || !strings.Contains(tk.Risk.Reasons[0], "1998 EUR") || !strings.Contains(strings.Join(tk.Policies, " "), "limits.windows") {
		t.Errorf("the ticket says %q by %q, %v", tk.Risk.Reasons, tk.Policies, err)
	}
	ran := s.Ran()
	if _, err := s.Decide(t.Context(), "t1", sallyport.Decision{Ticket: tickets[0], Approve: true, By: "ada"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	approved := pay(1)
	approved.Ticket = tickets[0]
	if _, err := s.Call(t.Context(), approved); err != nil || s.Ran() != ran+1 {
		t.Errorf("the approved one: %v, ran %d", err, s.Ran()-ran)
	}
	for _, value := range []string{`"1e400"`, "1e400", "0.0000000000000000000000000000000001e1"} {
		req := gateway.Call1(`{"amount":` + value + `,"currency":"EUR","to":"B"}`)
		if _, err := s.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Pending {
			t.Errorf("amount %s: %v, want approval_pending", value, err)
		}
	}
	pass(time.Minute)
	if _, err := s.Call(t.Context(), pay(0)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// TO-27: many parallel transfers, through two gateways over one database: one
// runs, and every other asks a human, however they raced.
func TestTO27_ParallelSmallAmounts(t *testing.T) {
	now, _ := clock()
	dir := t.TempDir()
	two := []shop{newShop(t, dir, now), newShop(t, dir, now)}
	var wg sync.WaitGroup
	codes := make([]sallyport.Code, 20)
	for i := range codes {
		s := two[i%2]
		s.Windows = thousand
		wg.Go(func() {
			_, err := s.Await(t.Context(), pay(i), 0, nil)
			if err != nil {
				codes[i] = sallyport.CodeOf(err)
			}
		})
	}
	wg.Wait()
	pending := 0
	for _, c := range codes {
		if c == sallyport.Pending {
			pending++
		}
	}
	if n := two[0].Ran() + two[1].Ran(); n != 1 || pending != 19 {
		t.Errorf("ran %d, %d wait for a human; want 1 and 19: %v", n, pending, codes)
	}
}

// Failed calls do not count; those of unknown outcome do.
func TestWindowCountsWhatMayHaveMoved(t *testing.T) {
	now, _ := clock()
	s := newShop(t, t.TempDir(), now)
	s.Windows = thousand
	failure := sallyport.ErrNotExecuted
	s.Runs(func(context.Context, sallyport.Job) (sallyport.Output, error) { return sallyport.Output{}, failure })
	for i := range 3 {
		if _, err := s.Call(t.Context(), pay(i)); err == nil || sallyport.CodeOf(err) == sallyport.Pending {
			t.Fatalf("a call that fails: %v", err)
		}
	}
	failure = errors.New("the line was cut")
	if _, err := s.Call(t.Context(), pay(4)); sallyport.CodeOf(err) != sallyport.OutcomeUnknown {
		t.Fatal(err)
	}
	if _, err := s.Call(t.Context(), pay(5)); sallyport.CodeOf(err) != sallyport.Pending {
		t.Errorf("after an unknown outcome: %v, want approval_pending", err)
	}
}

// A repetition moves nothing: it neither counts nor asks a human.
func TestReplayMovesNothing(t *testing.T) {
	now, _ := clock()
	s := newShop(t, t.TempDir(), now)
	s.Windows = thousand
	req := pay(0)
	req.Key = "k"
	for i := range 3 {
		if res, err := s.Call(t.Context(), req); err != nil || res.Replay != (i > 0) {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
	}
}

func TestQuota(t *testing.T) {
	now, pass := clock()
	s := newShop(t, t.TempDir(), now)
	s.Quotas = []sallyport.Quota{{Tool: "ec*", Calls: 3, Per: time.Minute}, {Tool: "other", Calls: 1, Per: time.Minute}, {Agent: "bob", Calls: 1, Per: time.Minute}}
	for i := range 5 {
		_, err := s.Call(t.Context(), gateway.Call1(fmt.Sprint(`{"i":`, i, `}`)))
		if e, _ := errors.AsType[*sallyport.Error](err); i < 3 && err != nil || i >= 3 && (e == nil || e.Code != sallyport.RateLimited || e.RetryAfter <= 0) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	pass(time.Minute)
	if _, err := s.Call(t.Context(), gateway.Call1(`{}`)); err != nil || s.Ran() != 4 {
		t.Errorf("a minute later: %v, ran %d", err, s.Ran())
	}
}

// Identical calls without a key count as one, where the operator wants that.
func TestTwins(t *testing.T) {
	now, pass := clock()
	s := newShop(t, t.TempDir(), now)
	call := func(who, args string) (sallyport.Result, error) {
		req := gateway.Call1(args)
		req.Credential = who
		return s.Call(t.Context(), req)
	}
	for range 2 {
		if res, err := call("token-of-ann", `{"n":1}`); err != nil || res.Replay {
			t.Errorf("off by default: %+v, %v", res, err)
		}
	}
	s.Manifest(func(m *sallyport.Manifest) { m.Dedupe = 30 * time.Second })
	ran := s.Ran()
	first, err := call("token-of-ann", `{"n":2}`)
	if err != nil || first.Replay || first.Twin != "" {
		t.Fatalf("the first: %+v, %v", first, err)
	}
	second, err := call("token-of-ann", `{"n":2}`)
	if err != nil || !second.Replay || second.Twin != first.CallID || string(second.Content) != string(first.Content) || second.CallID == first.CallID {
		t.Errorf("an identical one: %+v, %v; want a replay of %s", second, err, first.CallID)
	}
	for who, args := range map[string]string{"token-of-ann": `{"n":3}`, "token-of-bob": `{"n":2}`, "token-of-ann@t2": `{"n":2}`, "token-of-ann+carol": `{"n":2}`} {
		if res, err := call(who, args); err != nil || res.Replay {
			t.Errorf("%s %s: %+v, %v; want an execution of its own", who, args, res, err)
		}
	}
	keyed := gateway.Call1(`{"n":2}`)
	keyed.Key = "mine"
	if res, err := s.Call(t.Context(), keyed); err != nil || res.Replay {
		t.Errorf("with a key: %+v, %v", res, err)
	}
	if n := s.Ran() - ran; n != 6 {
		t.Errorf("ran %d times, want 6", n)
	}
	pass(31 * time.Second)
	if res, err := call("token-of-ann", `{"n":2}`); err != nil || res.Replay {
		t.Errorf("after the window: %+v, %v", res, err)
	}
	// Twenty at once: one runs, and all get its result.
	pass(time.Hour)
	ran = s.Ran()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Await(t.Context(), gateway.Call1(`{"n":2}`), 0, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.Ran() - ran; n != 1 {
		t.Errorf("of 20 at once %d ran, want 1", n)
	}
}

// FO-59: five identical calls that wait for a human are five questions, also
// where identical calls count as one.
func TestFO59_TwinsNeedTheirOwnDecisions(t *testing.T) {
	for _, dedupe := range []time.Duration{0, time.Hour} {
		now, _ := clock()
		s := newShop(t, t.TempDir(), now)
		s.Manifest(func(m *sallyport.Manifest) { m.Dedupe = dedupe })
		s.Demand(true)
		tickets := map[string]bool{}
		for range 5 {
			_, err := s.Call(t.Context(), gateway.Call1(`{"n":1}`))
			e, ok := errors.AsType[*sallyport.Error](err)
			if !ok || e.Code != sallyport.Pending {
				t.Fatal(err)
			}
			tickets[e.Ticket] = true
		}
		if len(tickets) != 5 {
			t.Fatalf("dedupe %s: five calls opened %d tickets", dedupe, len(tickets))
		}
		for id := range tickets {
			if _, err := s.Decide(t.Context(), "t1", sallyport.Decision{Ticket: id, Approve: true, By: "ada"}, time.Hour); err != nil {
				t.Fatal(err)
			}
			req := gateway.Call1(`{"n":1}`)
			req.Ticket = id
			if res, err := s.Call(t.Context(), req); err != nil || res.Replay {
				t.Errorf("dedupe %s: an approved call: %+v, %v", dedupe, res, err)
			}
			break // one decision
		}
		if n := s.Ran(); n != 1 {
			t.Errorf("dedupe %s: one decision, and %d calls ran", dedupe, n)
		}
		if _, err := s.Call(t.Context(), gateway.Call1(`{"n":1}`)); sallyport.CodeOf(err) != sallyport.Pending {
			t.Errorf("dedupe %s: a further call: %v, want a question of its own", dedupe, err)
		}
	}
}

// A call that needs a human today does not repeat one that needed none
// yesterday: it is a question.
func TestTwinOfAnEarlierPolicy(t *testing.T) {
	now, _ := clock()
	s := newShop(t, t.TempDir(), now)
	s.Manifest(func(m *sallyport.Manifest) { m.Dedupe = time.Hour })
	if _, err := s.Call(t.Context(), gateway.Call1(`{}`)); err != nil {
		t.Fatal(err)
	}
	s.Demand(true)
	if _, err := s.Call(t.Context(), gateway.Call1(`{}`)); sallyport.CodeOf(err) != sallyport.Pending {
		t.Errorf("%v, want approval_pending", err)
	}
	s.Demand(false)
	if res, err := s.Call(t.Context(), gateway.Call1(`{}`)); err != nil || !res.Replay || s.Ran() != 1 {
		t.Errorf("the control: %+v, %v", res, err)
	}
}
