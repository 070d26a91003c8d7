package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// Who made the call, or whom it is made for, does not decide on it.
func TestNoSelfApproval(t *testing.T) {
	for name, who := range map[string]sallyport.Principal{
		"actor":        {Tenant: "t", ID: "agent", Actor: "ann"},
		"on behalf of": {Tenant: "t", ID: "agent", OnBehalfOf: "ann"},
	} {
		s := newStand(t, store.TicketRules{})
		s.who = who
		resume, id := s.pend(t, request("pay", `{}`))
		_, err := s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, Approve: true, By: "ann"})
		if sallyport.CodeOf(err) != sallyport.Denied || !strings.Contains(err.Error(), "ann stands behind this call") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != sallyport.Pending {
			t.Errorf("%s: %v", name, err)
		}
		s.approve(t, id, "bob")
		if _, err := s.Call(t.Context(), resume); err != nil {
			t.Errorf("%s, by another: %v", name, err)
		}
	}
}

func TestEvents(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.verdict = func(gateway.Question) gateway.Verdict {
		return gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "two", Groups: []string{"finance"}, Quorum: 2}}}
	}
	_, id := s.pend(t, request("pay", `{}`))
	s.approve(t, id, "ann", "bob")
	s.must(t, s.engine.Void(t.Context(), "t", id, "it rains"))
	req := request("pay", `{}`)
	req.Key = "k"
	_, id = s.pend(t, req)
	s.pend(t, req) // no news
	if _, err := s.engine.Withdraw(t.Context(), s.who, id, "no"); err != nil {
		t.Fatal(err)
	}
	_, id = s.pend(t, request("pay", `{}`))
	board := approval.New(s.db, s.db, approval.Options{Notifier: s, Escalate: approval.Escalation{After: time.Nanosecond, Groups: []string{"board"}}})
	if n, err := board.CallIn(t.Context()); n != 1 || err != nil {
		t.Errorf("CallIn = %d, %v", n, err)
	}
	if _, err := s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, By: "sec"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"opened pending", "voted pending", "decided approved", "voided void", "opened pending", "withdrawn withdrawn",
		"opened pending", "escalated pending", "decided rejected"}
	if !slices.Equal(s.events, want) {
		t.Errorf("events %q\nwant   %q", s.events, want)
	}
}

// TO-27: what a human has just rejected is refused through every other door,
// too, without asking again.
func TestTO27_AnotherDoor(t *testing.T) {
	s := newStand(t, store.TicketRules{Cooldown: time.Hour})
	s.tool("http")
	s.tool("notes")
	s.risk = func(tool sallyport.Tool, args json.RawMessage) sallyport.Risk {
		r := sallyport.Risk{Level: sallyport.Critical, Objects: []string{"orders"}}
		switch {
		case bytes.Contains(args, []byte("small")):
			r.Level = sallyport.High // needs no human
		case tool.Name == "notes":
			r.Objects = []string{"notebook"}
		}
		return r
	}
	_, id := s.pend(t, request("pay", `{}`))
	if _, err := s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, By: "ann", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	for _, req := range []sallyport.Request{request("pay", `{}`), request("pay", `{"x":1}`), request("http", `{}`), request("http", `{"small":1}`)} {
		_, err := s.Call(t.Context(), req)
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Rejected || e.RetryAfter <= 0 || !strings.Contains(e.Message, id) {
			t.Errorf("%s %s: %v", req.Operation.Target, req.Operation.Args, err)
		}
	}
	s.pend(t, request("notes", `{}`)) // the control
	if len(s.ran) != 0 {
		t.Errorf("ran %d", len(s.ran))
	}
}

// TO-28: 200 harmless calls do not hide one: no more than the agent's share
// waits, the rest is refused, and there is one alarm.
func TestTO28_Flood(t *testing.T) {
	s := newStand(t, store.TicketRules{PerAgent: 20})
	opened, limited := 0, 0
	for i := range 201 {
		args := fmt.Sprintf(`{"id":%d}`, i)
		if i == 7 {
			args = `{"all":true}`
		}
		_, err := s.Call(t.Context(), request("pay", args))
		switch e, _ := errors.AsType[*sallyport.Error](err); {
		case e != nil && e.Code == sallyport.Pending:
			opened++
		case e != nil && e.Code == sallyport.RateLimited && e.RetryAfter > 0:
			limited++
		default:
			t.Fatal(err)
		}
	}
	if opened != 20 || limited != 181 {
		t.Errorf("%d opened, %d limited", opened, limited)
	}
	if n := strings.Count(s.log.String(), "too many calls wait for a human"); n != 1 {
		t.Errorf("%d alarms in the log, want 1", n)
	}
	if n := s.onRecord(t, `"flood"`); n != 1 {
		t.Errorf("%d alarms on record, want 1", n)
	}
	tks, err := s.engine.List(t.Context(), store.TicketFilter{Tenant: "t"})
	s.must(t, err)
	groups := approval.Groups(tks)
	if len(groups) != 1 || len(groups[0].Tickets) != 20 || !strings.Contains(strings.Join(groups[0].Tickets[0].Differs, ";"), "/all true") {
		t.Errorf("the odd one is not first: %+v", groups)
	}
	for _, m := range groups[0].Tickets[1:] {
		if len(m.Differs) > 0 {
			t.Errorf("a harmless one stands out: %+v", m)
		}
	}
}

// TO-28: what is unlike the others stands out although it is written like them, and
// wherever it stands in the arguments.
func TestTO28_OddValueOfTheSameForm(t *testing.T) {
	for name, tt := range map[string]struct{ usual, odd, want string }{
		"another word":    {`{"env":"staging","id":%d}`, `{"env":"production","id":%d}`, "/env \"production\""},
		"another number":  {`{"days":30,"id":%d}`, `{"id":%d,"days":90}`, "/days 90"},
		"deep":            {`{"a":{"b":[{"scope":"own"}]},"id":%d}`, `{"a":{"b":[{"scope":"all"}]},"id":%d}`, "/a/b/0/scope \"all\""},
		"one more":        {`{"id":%d,"x":"a"}`, `{"id":%d,"x":"a","force":true}`, "/force true"},
		"control: an id ": {`{"id":%d}`, `{"id":%d}`, ""},
	} {
		var tks []sallyport.Ticket
		for i := range 20 {
			args := tt.usual
			if i == 11 {
				args = tt.odd
			}
			tks = append(tks, sallyport.Ticket{ID: fmt.Sprint("tkt_", i), Binding: sallyport.Binding{Tool: "x", Args: json.RawMessage(fmt.Sprintf(args, 100+i))}})
		}
		g := approval.Groups(tks)[0]
		if first := g.Tickets[0]; tt.want == "" && len(first.Differs) > 0 || tt.want != "" && (first.Ticket != "tkt_11" || !slices.Contains(first.Differs, tt.want)) || len(g.Tickets[1].Differs) > 0 {
			t.Errorf("%s: the first is %+v, then %+v", name, first, g.Tickets[1])
		}
	}
}

// FO-59: of 20 approvals at once one counts for each admin, and one call runs;
// approve and reject have one winner; twins need a decision each.
func TestFO59_OneClickOneCall(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	resume, id := s.pend(t, request("pay", `{}`))
	count := func(n int, decide func(i int) error) (won int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				err := decide(i)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "already") {
					t.Errorf("a loser is told %v", err)
				}
			})
		}
		wg.Wait()
		return won
	}
	by := []string{"ann", "bob"}
	if won := count(20, func(i int) error {
		_, err := s.engine.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: true, By: by[i%2]})
		return err
	}); won != 1 {
		t.Errorf("%d approvals counted", won)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = s.Call(context.Background(), resume) })
	}
	wg.Wait()
	if len(s.ran) != 1 {
		t.Errorf("ran %d times", len(s.ran))
	}
	_, id = s.pend(t, request("pay", `{}`))
	if won := count(20, func(i int) error {
		_, err := s.engine.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: i%2 == 0, By: by[i%2]})
		return err
	}); won != 1 {
		t.Errorf("%d of approve and reject counted", won)
	}
	var twins []sallyport.Request
	for range 5 {
		r, _ := s.pend(t, request("pay", `{"twin":true}`))
		twins = append(twins, r)
	}
	for i, r := range twins {
		s.approve(t, r.Ticket, "ann")
		for _, other := range twins[i+1:] {
			if _, err := s.Call(t.Context(), other); sallyport.CodeOf(err) != sallyport.Pending {
				t.Errorf("decision %d released a twin: %v", i, err)
			}
		}
		if _, err := s.Call(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if len(s.ran) != 6 {
		t.Errorf("ran %d times in all, want 6", len(s.ran))
	}
}

// TO-24: 50 resumes of one approved ticket, half of them under other keys, are
// one execution.
func TestTO24_FiftyAtOnce(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	resume, id := s.pend(t, request("pay", `{}`))
	s.approve(t, id, "ann")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			r := resume
			if i%2 == 0 {
				r.Key = fmt.Sprint("other", i)
			}
			_, err := s.Call(context.Background(), r)
			if c := sallyport.CodeOf(err); err != nil && c != sallyport.InFlight && c != sallyport.Conflict {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if len(s.ran) != 1 {
		t.Errorf("ran %d times", len(s.ran))
	}
}

// FO-58: an approval is for one call, not for a tool.
func TestFO58_OneApprovalOneCall(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.tool("other__pay", func(t *sallyport.Tool) { t.Origin.Server = "other" })
	resume, id := s.pend(t, request("pay", `{"id":1,"note":"x"}`))
	s.approve(t, id, "ann")
	with := func(tool, args string) error {
		r := request(tool, args)
		r.Ticket = id
		_, err := s.Call(t.Context(), r)
		return err
	}
	for _, args := range []string{`{"id":2,"note":"x"}`, `{"id":1,"note":"x","cascade":true}`, `{"id":1}`, `{"id":1.0,"note":"x"}`} {
		if err := with("pay", args); sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("resumed as %s: %v", args, err)
		}
		s.pend(t, request("pay", args)) // a question of its own
	}
	if err := with("other__pay", `{"id":1,"note":"x"}`); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("through another alias: %v", err)
	}
	s.pend(t, request("other__pay", `{"id":1,"note":"x"}`))
	s.pend(t, request("pay", `{"id":1,"note":"x"}`)) // a twin
	elsewhere := resume
	elsewhere.Profile = "other"
	if _, err := s.Call(t.Context(), elsewhere); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("through another profile: %v", err)
	}
	s.who.OnBehalfOf = "dave"
	if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("on behalf of a user for whom nobody asked: %v", err)
	}
	s.who.OnBehalfOf = ""
	if len(s.ran) != 0 {
		t.Fatalf("ran %d", len(s.ran))
	}
	resume.Operation.Args = json.RawMessage("\n{ \"note\":\"\\u0078\", \"id\": 1 }")
	if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 || string(s.ran[0].Args) != `{"id":1,"note":"x"}` {
		t.Errorf("another order and white space: %v, ran %+v", err, s.ran)
	}
	if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 {
		t.Errorf("once more: %v, ran %d", err, len(s.ran))
	}
}
