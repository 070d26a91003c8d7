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

// ask opens a ticket of another tool, with a risk of its own.
func (f *fixture) ask(k, principal, tool string, risk sallyport.Risk) error {
	tk := ticket(k, transfer)
	tk.Binding.Tool, tk.Binding.Principal, tk.Risk = tool, principal, risk
	tk.Hash = tk.Binding.Hash()
	_, err := f.Open(context.Background(), tk, sallyport.ReservationKey{Tenant: "t", Principal: principal, Tool: tool, Key: k}, "f", entry(sallyport.EntryTicket, k))
	return err
}

func risk(objects []string, effects ...string) sallyport.Risk {
	return sallyport.Risk{Level: sallyport.Critical, Objects: objects, Effects: effects}
}

// TO-27: after a rejection, 20 variants of the same thing are refused, whatever
// door they take; what is something else is not.
func testCoolDown(t *testing.T, f *fixture) {
	f.SetTicketRules(store.TicketRules{Cooldown: 5 * time.Minute})
	rejected := risk([]string{"public.orders"}, sallyport.EffectDelete)
	must(t, f.ask("first", "agent", "db__run_sql", rejected))
	f.decide(t, "tk-first", false)
	orders := []string{"orders"}
	for i, v := range []struct {
		tool string
		risk sallyport.Risk
	}{
		{"db__run_sql", rejected}, {"db__run_sql", risk([]string{"customers"}, sallyport.EffectWrite)}, {"db__run_sql", sallyport.Risk{Level: sallyport.Critical}},
		{"db2__run_sql", rejected}, {"db2__run_sql", risk(orders, sallyport.EffectWrite)}, {"db2__run_sql", risk([]string{"ORDERS"})},
		{"db2__run_sql", risk([]string{`"public"."orders"`})}, {"db2__run_sql", risk([]string{"shop.public.orders"})}, {"db2__run_sql", risk([]string{"`orders`"})},
		{"db2__run_sql", risk([]string{"[orders]"})}, {"db2__run_sql", risk([]string{"customers", " orders "})},
		{"delete", risk([]string{"orders/"}, sallyport.EffectDestroy)}, {"delete", risk([]string{"elsewhere"}, sallyport.EffectDelete)},
		{"http__request", risk([]string{"public.orders/17"}, sallyport.EffectNetwork)}, {"http__request", risk([]string{"api.test"}, sallyport.EffectDelete, sallyport.EffectNetwork)},
		{"run_shell", risk(nil, sallyport.EffectExecute)}, {"run_shell", risk([]string{"psql"}, sallyport.EffectExecute, sallyport.EffectOpaque)},
		{"run_shell", risk([]string{"orders"}, sallyport.EffectExecute)}, {"run_python", sallyport.Risk{Level: sallyport.Critical, Irreversible: true}},
		{"run_python", risk([]string{"x"}, sallyport.EffectOpaque)},
	} {
		err := f.ask(fmt.Sprint("v", i), "agent", v.tool, v.risk)
		wantCode(t, fmt.Sprintf("variant %d: %s %+v", i, v.tool, v.risk), err, sallyport.Rejected)
		if e, ok := err.(*sallyport.Error); ok && (e.RetryAfter <= 0 || e.RetryAfter > 5*time.Minute) {
			t.Errorf("variant %d: retry after %s", i, e.RetryAfter)
		}
	}
	must(t, f.ask("other", "agent", "mail__archive", risk([]string{"inbox"}, sallyport.EffectWrite))) // the controls
	must(t, f.ask("eve", "eve", "db__run_sql", rejected))
	f.pass(5 * time.Minute)
	must(t, f.ask("later", "agent", "db__run_sql", rejected))
}

// What needs no human is held back, too, where it would touch what a human has
// just refused to have touched.
func testCoolDownWithoutTicket(t *testing.T, f *fixture) {
	f.SetTicketRules(store.TicketRules{Cooldown: 5 * time.Minute})
	must(t, f.ask("first", "agent", "db__run_sql", risk([]string{"orders"}, sallyport.EffectDelete)))
	f.decide(t, "tk-first", false)
	run := func(k string, r sallyport.Risk) error {
		b := begin(k, transfer)
		b.Risk = r
		_, err := f.Begin(t.Context(), b)
		return err
	}
	wantCode(t, "a write to it", run("write", sallyport.Risk{Level: sallyport.High, Objects: []string{"orders"}}), sallyport.Rejected)
	wantCode(t, "a read of it", run("read", sallyport.Risk{Level: sallyport.Medium, Objects: []string{"orders"}}), "")
	wantCode(t, "a write to something else", run("else", sallyport.Risk{Level: sallyport.High, Objects: []string{"customers"}}), "")
	f.pass(5 * time.Minute)
	wantCode(t, "later", run("later", sallyport.Risk{Level: sallyport.High, Objects: []string{"orders"}}), "")
}

// TO-28: only so many questions of one agent, and of all, wait at once; also
// when they come at once.
func testFlood(t *testing.T, f *fixture) {
	f.SetTicketRules(store.TicketRules{PerAgent: 20, PerTenant: 25})
	stores := []Store{f.Store, f.another(t)}
	stores[1].SetTicketRules(store.TicketRules{PerAgent: 20, PerTenant: 25})
	var opened, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range 201 {
		wg.Go(func() {
			k := fmt.Sprint("k", i)
			tk := ticket(k, transfer)
			_, err := stores[i%2].Open(context.Background(), tk, key(k), fingerprint(transfer), entry(sallyport.EntryTicket, k))
			switch e, _ := err.(*sallyport.Error); {
			case err == nil:
				opened.Add(1)
			case e != nil && e.Code == sallyport.RateLimited && e.RetryAfter > 0:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if opened.Load() != 20 || refused.Load() != 181 {
		t.Errorf("%d opened, %d refused; want 20 and 181", opened.Load(), refused.Load())
	}
	for i := range 6 {
		err := f.ask(fmt.Sprint("b", i), "bob", "pay", sallyport.Risk{Level: sallyport.Critical})
		want := sallyport.Code("")
		if i == 5 {
			want = sallyport.RateLimited
		}
		wantCode(t, fmt.Sprint("another agent's question ", i), err, want)
	}
	_, err := f.Withdraw(t.Context(), "t", firstPending(t, f), "agent", "")
	must(t, err)
	must(t, f.ask("room", "agent", "pay", sallyport.Risk{Level: sallyport.Critical}))
}

func firstPending(t *testing.T, f *fixture) string {
	t.Helper()
	tks, err := f.ListTickets(t.Context(), store.TicketFilter{Principal: "agent", States: []sallyport.TicketState{sallyport.TicketPending}, Limit: 1})
	must(t, err)
	return tks[0].ID
}

// TO-28: who asks and takes it back, over and over, is bounded as well.
func testAskedAndTakenBack(t *testing.T, f *fixture) {
	f.SetTicketRules(store.TicketRules{PerAgent: 5})
	loop := func(from, n int) (opened int) {
		for i := range n {
			k := fmt.Sprint("k", from+i)
			if err := f.ask(k, "agent", "pay", sallyport.Risk{Level: sallyport.Critical}); err != nil {
				wantCode(t, k, err, sallyport.RateLimited)
				continue
			}
			opened++
			_, err := f.Withdraw(t.Context(), "t", "tk-"+k, "agent", "")
			must(t, err)
		}
		return opened
	}
	if n := loop(0, 30); n != 5 {
		t.Errorf("%d questions were asked and taken back, want 5", n)
	}
	must(t, f.ask("bob", "bob", "pay", sallyport.Risk{Level: sallyport.Critical})) // the control
	f.pass(time.Minute)
	if n := loop(30, 3); n != 3 {
		t.Errorf("a minute later %d, want 3", n)
	}
}
