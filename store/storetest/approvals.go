package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

func testDecideOnce(t *testing.T, f *fixture) {
	for round := range 5 {
		id := f.open(t, fmt.Sprint("k", round), transfer).ID
		stores := []Store{f.Store, f.another(t)}
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				tk, err := stores[i%2].Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: i%3 == 0, By: fmt.Sprint("admin", i)}, time.Minute)
				switch {
				case err == nil:
					won.Add(1)
				case sallyport.CodeOf(err) != sallyport.Conflict:
					t.Errorf("Decide: %v", err)
				case tk.State != sallyport.TicketApproved && tk.State != sallyport.TicketRejected:
					t.Errorf("a late decision was shown the state %s", tk.State)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d decisions took effect, want 1", won.Load())
		}
	}
	if n := f.count(t, sallyport.EntryDecision); n != 5 {
		t.Errorf("%d decisions in the log, want 5", n)
	}
}

// Five calls that look the same are five questions.
func testTwins(t *testing.T, f *fixture) {
	ids := map[string]bool{}
	for i := range 5 {
		tk := ticket(fmt.Sprint("call", i), transfer)
		tk.ID = ""
		tk, err := f.Open(t.Context(), tk, key(tk.Key), fingerprint(transfer), entry(sallyport.EntryTicket, tk.CallID))
		must(t, err)
		ids[tk.ID] = true
	}
	if len(ids) != 5 {
		t.Fatalf("%d tickets, want 5", len(ids))
	}
	pending := func() int {
		tks, err := f.ListTickets(t.Context(), store.TicketFilter{Tenant: "t", States: []sallyport.TicketState{sallyport.TicketPending}})
		must(t, err)
		return len(tks)
	}
	for id := range ids {
		f.decide(t, id, true)
		break
	}
	if n := pending(); n != 4 {
		t.Errorf("one decision left %d pending, want 4", n)
	}
}

func testBothClocks(t *testing.T, f *fixture) {
	f.open(t, "late", transfer)
	f.pass(30 * time.Minute)
	idle := f.decide(t, f.open(t, "idle", transfer).ID, true)
	if !idle.RunBy.Equal(f.now().Add(10*time.Minute)) || idle.DecidedBy != "ada" || !idle.DecidedAt.Equal(f.now()) || idle.Reason != "because" {
		t.Errorf("approved: %+v", idle)
	}
	f.open(t, "young", transfer)
	if tks, err := f.Expire(t.Context(), f.now()); err != nil || len(tks) != 0 {
		t.Errorf("Expire = %v, %v; nothing is due", tks, err)
	}
	f.pass(31 * time.Minute)
	tks, err := f.Expire(t.Context(), f.now())
	must(t, err)
	got := map[string]sallyport.TicketState{}
	for _, tk := range tks {
		got[tk.Key] = tk.State
	}
	same(t, "Expire", got, map[string]sallyport.TicketState{"late": sallyport.TicketExpired, "idle": sallyport.TicketVoid})
	if n := f.count(t, sallyport.EntryDecision); n != 3 { // one by ada, two by the clock
		t.Errorf("%d decisions in the log, want 3", n)
	}
	f.pass(time.Hour)
	tk, err := f.Ticket(t.Context(), "t", "tk-young") // nobody swept
	if err != nil || tk.State != sallyport.TicketExpired || tk.DecidedBy != "clock" {
		t.Errorf("Ticket after its time = %+v, %v", tk, err)
	}
	_, err = f.Decide(t.Context(), "t", sallyport.Decision{Ticket: "tk-young", Approve: true, By: "ada"}, 0)
	wantCode(t, "Decide after the clock", err, sallyport.Conflict)
}

func testWithdraw(t *testing.T, f *fixture) {
	id := f.open(t, "k", transfer).ID
	tk, err := f.Withdraw(t.Context(), "t", id, "agent", "changed my mind")
	if err != nil || tk.State != sallyport.TicketWithdrawn || tk.DecidedBy != "agent" {
		t.Errorf("Withdraw = %+v, %v", tk, err)
	}
	_, err = f.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, Approve: true, By: "ada"}, 0)
	wantCode(t, "Decide after Withdraw", err, sallyport.Conflict)
	_, err = f.Withdraw(t.Context(), "t", f.decide(t, f.open(t, "l", transfer).ID, true).ID, "agent", "")
	wantCode(t, "Withdraw of an approved ticket", err, sallyport.Conflict)
	_, err = f.Withdraw(t.Context(), "t", "none", "agent", "")
	wantCode(t, "Withdraw of no ticket", err, sallyport.NotFound)
}

func testListTickets(t *testing.T, f *fixture) {
	for i := range 3 {
		f.open(t, fmt.Sprint("k", i), transfer)
		f.pass(time.Second)
	}
	f.decide(t, "tk-k1", false)
	for _, tt := range []struct {
		f    store.TicketFilter
		want []string
	}{
		{store.TicketFilter{}, []string{"tk-k2", "tk-k1", "tk-k0"}},
		{store.TicketFilter{Tenant: "u"}, []string{}},
		{store.TicketFilter{Tenant: "t", Principal: "agent", Tool: "pay__transfer", Limit: 1}, []string{"tk-k2"}},
		{store.TicketFilter{Principal: "agent' OR '1'='1"}, []string{}},
		{store.TicketFilter{States: []sallyport.TicketState{sallyport.TicketRejected, sallyport.TicketVoid}}, []string{"tk-k1"}},
	} {
		tks, err := f.ListTickets(t.Context(), tt.f)
		must(t, err)
		got := []string{}
		for _, tk := range tks {
			got = append(got, tk.ID)
		}
		same(t, fmt.Sprintf("ListTickets(%+v)", tt.f), got, tt.want)
	}
}
