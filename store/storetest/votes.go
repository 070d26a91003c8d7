package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// demanding opens a ticket that asks for demands.
func (f *fixture) demanding(t *testing.T, k string, demands ...sallyport.Demand) sallyport.Ticket {
	t.Helper()
	tk := ticket(k, transfer)
	tk.Demands, tk.Unbound, tk.About = demands, []string{"/to"}, sallyport.ToolNote{Description: "pays"}
	tk.Binding.Witness = []sallyport.Observation{{Name: "rows", Value: "3", Hash: "h", Binds: "/to"}}
	tk.Hash = tk.Binding.Hash()
	tk, err := f.Open(t.Context(), tk, key(k), fingerprint(transfer), entry(sallyport.EntryTicket, "call-"+k))
	must(t, err)
	return tk
}

// vote is an approval by an admin in groups.
func (f *fixture) vote(id, by string, groups ...string) (sallyport.Ticket, error) {
	return f.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: true, By: by, Groups: groups, Door: "admin"}, 10*time.Minute)
}

func (f *fixture) putAdmin(t *testing.T, name string, groups ...string) {
	t.Helper()
	must(t, f.PutAdmin(t.Context(), sallyport.Admin{Tenant: "t", Name: name, Groups: groups}, f.admin(t)))
}

var (
	finance2 = sallyport.Demand{Policy: "pay", Groups: []string{"finance"}, Quorum: 2}
	security = sallyport.Demand{Policy: "sec", Groups: []string{"security"}}
)

func testQuorum(t *testing.T, f *fixture) {
	id := f.demanding(t, "k", finance2, security).ID
	for i, tt := range []struct {
		by     string
		groups []string
		want   sallyport.Code
		state  sallyport.TicketState
	}{
		{"ann", []string{"finance"}, "", sallyport.TicketPending},
		{"ann", []string{"finance"}, sallyport.Conflict, sallyport.TicketPending}, // twice is once
		{"zoe", nil, sallyport.Denied, sallyport.TicketPending},
		{"zoe", []string{"sales"}, sallyport.Denied, sallyport.TicketPending},
		{"bob", []string{"finance", "security"}, "", sallyport.TicketPending}, // one seat, not two
		{"cid", []string{"finance"}, "", sallyport.TicketApproved},            // bob moves over to security
		{"dan", []string{"finance"}, sallyport.Conflict, sallyport.TicketApproved},
	} {
		f.pass(time.Second)
		_, err := f.vote(id, tt.by, tt.groups...)
		wantCode(t, fmt.Sprintf("vote %d, %s", i, tt.by), err, tt.want)
		if tk, err := f.another(t).Ticket(t.Context(), "t", id); err != nil || tk.State != tt.state {
			t.Errorf("after vote %d the ticket is %s, %v; want %s", i, tk.State, err, tt.state)
		}
	}
	tk, err := f.Ticket(t.Context(), "t", id)
	must(t, err)
	same(t, "voters", []string{tk.Votes[0].By, tk.Votes[1].By, tk.Votes[2].By}, []string{"ann", "bob", "cid"})
	same(t, "what was demanded", tk.Demands, []sallyport.Demand{finance2, security})
	same(t, "kept", []any{tk.Unbound, tk.About.Description, tk.Binding.Witness[0].Value, tk.Votes[1].Groups, tk.Votes[0].Door},
		[]any{[]string{"/to"}, "pays", "3", []string{"finance", "security"}, "admin"})
	if want := f.now().Add(-time.Second + 10*time.Minute); !tk.RunBy.Equal(want) || len(tk.Votes) != 3 {
		t.Errorf("run by %s with %d votes, want %s: it counts from the vote that decides", tk.RunBy, len(tk.Votes), want)
	}
	if n := f.count(t, sallyport.EntryDecision); n != 3 {
		t.Errorf("%d votes on record, want 3", n)
	}
	rows, err := audit.Search(t.Context(), f.Store, audit.Filter{Kind: sallyport.EntryDecision, Text: "of security"}, 10)
	if err != nil || len(rows) != 2 {
		t.Errorf("%d entries say that security is still needed, %v; want 2", len(rows), err)
	}
}

// Votes that come at once, at two processes, are all counted, and none twice.
func testQuorumInParallel(t *testing.T, f *fixture) {
	id := f.demanding(t, "k", sallyport.Demand{Policy: "p", Quorum: 12}).ID
	stores := []Store{f.Store, f.another(t)}
	var counted, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			_, err := stores[i%2].Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: true, By: fmt.Sprint("admin", i/2)}, time.Minute)
			switch {
			case err == nil:
				counted.Add(1)
			case sallyport.CodeOf(err) == sallyport.Conflict:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tk, err := f.Ticket(t.Context(), "t", id)
	must(t, err)
	if counted.Load() != 12 || refused.Load() != 28 || tk.State != sallyport.TicketApproved || len(tk.Votes) != 12 {
		t.Errorf("%d counted, %d refused, %s with %d votes; want 12, 28, approved with 12", counted.Load(), refused.Load(), tk.State, len(tk.Votes))
	}
	by := map[string]bool{}
	for _, v := range tk.Votes {
		by[v.By] = true
	}
	if len(by) != 12 {
		t.Errorf("%d different voters", len(by))
	}
}

func testFirstRejection(t *testing.T, f *fixture) {
	id := f.demanding(t, "k", finance2).ID
	_, err := f.vote(id, "ann", "finance")
	must(t, err)
	tk, err := f.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, By: "zoe", Reason: "no"}, 0) // in no group: whoever may decide may stop
	if err != nil || tk.State != sallyport.TicketRejected || len(tk.Votes) != 2 || tk.Votes[1].Approve || tk.Reason != "no" {
		t.Errorf("rejected: %+v, %v", tk, err)
	}
	_, err = f.vote(id, "bob", "finance")
	wantCode(t, "an approval after it", err, sallyport.Conflict)
}

func testNoSelfApproval(t *testing.T, f *fixture) {
	for k, edit := range map[string]func(*sallyport.Ticket){
		"actor":        func(tk *sallyport.Ticket) { tk.Actor = "ann" },
		"on behalf of": func(tk *sallyport.Ticket) { tk.Binding.OnBehalfOf = "Ann " },
	} {
		tk := ticket(k, transfer)
		edit(&tk)
		tk.Hash = tk.Binding.Hash()
		tk, err := f.Open(t.Context(), tk, key(k), fingerprint(transfer), entry(sallyport.EntryTicket, k))
		must(t, err)
		_, err = f.vote(tk.ID, "ann")
		wantCode(t, k, err, sallyport.Denied)
		if err == nil || !strings.Contains(err.Error(), "somebody else must decide") {
			t.Errorf("%s: the error does not say why: %v", k, err)
		}
		_, err = f.Decide(t.Context(), "t", sallyport.Decision{Ticket: tk.ID, By: "ann"}, 0)
		wantCode(t, k+", rejecting", err, sallyport.Denied)
		_, err = f.Decide(t.Context(), "t", sallyport.Decision{Ticket: tk.ID, Approve: true, By: "bob", Hash: "0123456789"}, 0)
		wantCode(t, "a wrong hash", err, sallyport.Invalid)
		_, err = f.Decide(t.Context(), "t", sallyport.Decision{Ticket: tk.ID, Approve: true, By: "bob", Hash: tk.Hash[:3]}, 0)
		wantCode(t, "too little of the hash", err, sallyport.Invalid)
		_, err = f.Decide(t.Context(), "t", sallyport.Decision{Ticket: tk.ID, Approve: true, By: "bob", Hash: tk.Hash[:8]}, 0)
		wantCode(t, "somebody else", err, "")
	}
}

func testLateVotes(t *testing.T, f *fixture) {
	id := f.demanding(t, "k", finance2).ID
	_, err := f.vote(id, "ann", "finance")
	must(t, err)
	f.pass(2 * time.Hour)
	_, err = f.vote(id, "bob", "finance")
	wantCode(t, "a vote after its time", err, sallyport.Conflict)
	if tk, err := f.Ticket(t.Context(), "t", id); err != nil || tk.State != sallyport.TicketExpired || len(tk.Votes) != 1 {
		t.Errorf("the ticket is %s with %d votes, %v", tk.State, len(tk.Votes), err)
	}
}

// An approval holds only as long as those who gave it may give it, and only
// for what is asked today.
func testStanding(t *testing.T, f *fixture) {
	finance := sallyport.Demand{Policy: "pay", Groups: []string{"finance"}}
	for name, tt := range map[string]struct {
		demands []sallyport.Demand
		change  func()
		today   []sallyport.Demand
		why     string // "" where it still holds
	}{
		"nothing":                      {[]sallyport.Demand{finance2}, func() {}, []sallyport.Demand{finance2}, ""},
		"an approver removed":          {[]sallyport.Demand{finance2}, func() { must(t, f.DeleteAdmin(t.Context(), "t", "ann", f.admin(t))) }, []sallyport.Demand{finance2}, "ann may no longer approve it"},
		"an approver out of group":     {[]sallyport.Demand{finance2}, func() { f.putAdmin(t, "bob", "sales") }, []sallyport.Demand{finance2}, "bob may no longer approve it"},
		"removed, though less asked":   {[]sallyport.Demand{finance2}, func() { must(t, f.DeleteAdmin(t.Context(), "t", "ann", f.admin(t))) }, []sallyport.Demand{finance}, "ann may no longer"},
		"a larger quorum today":        {[]sallyport.Demand{finance}, func() {}, []sallyport.Demand{{Policy: "pay", Groups: []string{"finance"}, Quorum: 3}}, "ask for more"},
		"another group today":          {[]sallyport.Demand{finance2}, func() {}, []sallyport.Demand{finance2, security}, "1 of security"},
		"nothing asked today":          {[]sallyport.Demand{finance2}, func() {}, []sallyport.Demand{}, ""},
		"group gained since":           {[]sallyport.Demand{finance2}, func() { f.putAdmin(t, "bob", "finance", "security") }, []sallyport.Demand{security}, "1 of security"},
		"an admin who never had to":    {[]sallyport.Demand{{Policy: "any", Quorum: 2}}, func() { f.putAdmin(t, "bob") }, []sallyport.Demand{{Policy: "any"}}, ""},
		"an admin who is gone, though": {[]sallyport.Demand{{Policy: "any"}}, func() { must(t, f.DeleteAdmin(t.Context(), "t", "ann", f.admin(t))) }, []sallyport.Demand{}, "ann may no longer"},
	} {
		f.putAdmin(t, "ann", "finance")
		f.putAdmin(t, "bob", "finance")
		tk := f.demanding(t, name, tt.demands...)
		for _, by := range []string{"ann", "bob"} {
			if tk.State == sallyport.TicketPending || tk.State == "" {
				var err error
				tk, err = f.vote(tk.ID, by, "finance")
				must(t, err)
			}
		}
		tt.change()
		b := begin(name, transfer)
		b.Ticket, b.TicketHash, b.Demands = tk.ID, tk.Hash, tt.today
		_, err := f.Begin(t.Context(), b)
		got, gerr := f.Ticket(t.Context(), "t", tk.ID)
		must(t, gerr)
		if tt.why == "" {
			wantCode(t, name, err, "")
			continue
		}
		wantCode(t, name, err, sallyport.Conflict)
		if got.State != sallyport.TicketVoid || !strings.Contains(got.VoidReason, tt.why) {
			t.Errorf("%s: the ticket is %s, %q; want void, %q", name, got.State, got.VoidReason, tt.why)
		}
		rows, err := audit.Search(t.Context(), f.Store, audit.Filter{Kind: sallyport.EntryDecision, Text: tt.why}, 10)
		if err != nil || len(rows) == 0 {
			t.Errorf("%s: the reason is not on record: %v", name, err)
		}
	}
}

func testAgentStopped(t *testing.T, f *fixture) {
	must(t, f.PutAgent(t.Context(), sallyport.Agent{Tenant: "t", ID: "agent", State: "active"}, f.admin(t)))
	open, approved := f.open(t, "open", transfer), f.decide(t, f.open(t, "approved", transfer).ID, true)
	must(t, f.SetAgentState(t.Context(), "t", "agent", "active", time.Time{}, f.admin(t)))
	if tk, err := f.Ticket(t.Context(), "t", open.ID); err != nil || tk.State != sallyport.TicketPending {
		t.Errorf("an agent that goes on: %s, %v", tk.State, err)
	}
	must(t, f.SetAgentState(t.Context(), "t", "agent", "suspended", f.now(), f.admin(t)))
	must(t, f.SetAgentState(t.Context(), "t", "agent", "active", f.now(), f.admin(t)))
	for id, want := range map[string]sallyport.TicketState{open.ID: sallyport.TicketWithdrawn, approved.ID: sallyport.TicketVoid} {
		if tk, err := f.Ticket(t.Context(), "t", id); err != nil || tk.State != want {
			t.Errorf("%s: %s, %v; want %s", id, tk.State, err, want)
		}
	}
	_, err := f.run(t, approved, transfer)
	wantCode(t, "the approval, once the agent is back", err, sallyport.Rejected)
	for _, state := range []string{"active", "suspended", "revoked"} { // let in by a gateway that has not noticed
		must(t, f.SetAgentState(t.Context(), "t", "agent", state, f.now(), f.admin(t)))
		_, err := f.Begin(t.Context(), begin(state, transfer))
		wantCode(t, "a call of an agent that is "+state, err, map[bool]sallyport.Code{false: sallyport.Unauthenticated}[state == "active"])
		if r, err := f.Find(t.Context(), key(state)); err != nil || (r != nil) != (state == "active") {
			t.Errorf("%s: %+v, %v", state, r, err)
		}
	}
}

func testVoid(t *testing.T, f *fixture) {
	id := f.open(t, "k", transfer).ID
	_, err := f.Void(t.Context(), "t", id, "gateway", "the tool changed")
	wantCode(t, "Void of a pending ticket", err, sallyport.Conflict)
	f.decide(t, id, true)
	tk, err := f.Void(t.Context(), "t", id, "gateway", "the tool changed")
	if err != nil || tk.State != sallyport.TicketVoid || tk.VoidReason != "the tool changed" || tk.Reason != "because" || tk.DecidedBy != "ada" {
		t.Errorf("Void = %+v, %v", tk, err)
	}
	_, err = f.run(t, tk, transfer)
	wantCode(t, "a void ticket", err, sallyport.Rejected)
	_, err = f.Void(t.Context(), "u", id, "gateway", "")
	wantCode(t, "Void in another tenant", err, sallyport.NotFound)
}

func testEscalate(t *testing.T, f *fixture) {
	id := f.demanding(t, "k", finance2).ID
	f.pass(10 * time.Minute)
	young := f.demanding(t, "young", finance2).ID
	_, err := f.vote(id, "chief", "board")
	wantCode(t, "the board before it is called", err, sallyport.Denied)
	tks, err := f.Escalate(t.Context(), f.now().Add(-5*time.Minute), []string{"board"})
	if err != nil || len(tks) != 1 || tks[0].ID != id || !tks[0].EscalatedAt.Equal(f.now()) {
		t.Fatalf("Escalate = %+v, %v", tks, err)
	}
	if tks, err := f.another(t).Escalate(t.Context(), f.now().Add(-5*time.Minute), []string{"board"}); err != nil || len(tks) != 0 {
		t.Errorf("a second time: %+v, %v", tks, err)
	}
	_, err = f.vote(id, "chief", "board")
	wantCode(t, "the board", err, "")
	tk, err := f.vote(id, "ann", "finance")
	if err != nil || tk.State != sallyport.TicketApproved {
		t.Errorf("chief and ann: %s, %v", tk.State, err)
	}
	f.putAdmin(t, "chief", "board")
	f.putAdmin(t, "ann", "finance")
	b := begin("k", transfer)
	b.Ticket, b.TicketHash, b.Demands = id, tk.Hash, []sallyport.Demand{finance2}
	_, err = f.Begin(t.Context(), b)
	wantCode(t, "what the board approved runs", err, "")
	_, err = f.vote(young, "chief", "board")
	wantCode(t, "a ticket that is not escalated", err, sallyport.Denied)
	if rows, err := audit.Search(t.Context(), f.Store, audit.Filter{Text: "escalated_to"}, 10); err != nil || len(rows) != 1 {
		t.Errorf("%d entries tell of it, %v", len(rows), err)
	}
}
