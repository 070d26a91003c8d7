package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

func pays(k, value, currency, to string) gateway.Begin {
	b := begin(k, transfer)
	b.Amounts = []sallyport.Amount{{Value: value, Currency: currency, Recipient: to}}
	return b
}

func window(by string) sallyport.Window {
	return sallyport.Window{Currency: "EUR", Limit: "1000", Per: time.Minute, By: by}
}

// TO-27: many small amounts are one large one.
func testWindows(t *testing.T, f *fixture) {
	over := func(b gateway.Begin, w ...sallyport.Window) []sallyport.Overrun {
		t.Helper()
		out, err := f.Overruns(t.Context(), b.Key, b.Amounts, w)
		must(t, err)
		return out
	}
	all := []sallyport.Window{window(sallyport.ByPrincipal)}
	b := pays("a", "999", "EUR", "A")
	b.Windows = all
	if o := over(b, all...); o != nil {
		t.Errorf("the first 999: %v", o)
	}
	f.call(t, b, sallyport.Done)
	b = pays("b", "999", "EUR", "B")
	b.Windows = all
	if o := over(b, all...); len(o) != 1 || o[0].Sum != "1998" {
		t.Errorf("the second 999: %+v", o)
	}
	_, err := f.Begin(t.Context(), b)
	wantCode(t, "Begin of the second", err, sallyport.InFlight)
	if f.state(t, "b") != "" || f.count(t, sallyport.EntryIntent) != 1 {
		t.Error("a call that was turned back left a trace")
	}
	for name, tt := range map[string]struct {
		b    gateway.Begin
		w    sallyport.Window
		want string // sum, "" for none, "?" for one that cannot be told
	}{
		"exactly the limit":       {pays("c", "1.00", "EUR", "A"), window(sallyport.ByPrincipal), ""},
		"a hair more":             {pays("c", "1.000000000000000000000001", "EUR", "A"), window(sallyport.ByPrincipal), "1000.000000000000000000000001"},
		"another currency":        {pays("c", "999", "USD", "A"), window(sallyport.ByPrincipal), ""},
		"small letters":           {pays("c", "2", "eur", "A"), window(sallyport.ByPrincipal), "1001"},
		"no currency":             {pays("c", "2", "", "A"), window(sallyport.ByPrincipal), "1001"},
		"a negative amount":       {pays("c", "-2", "EUR", "A"), window(sallyport.ByPrincipal), "1001"},
		"a huge amount":           {pays("c", "1e400", "EUR", "A"), window(sallyport.ByPrincipal), "?"},
		"no amount":               {pays("c", "some", "EUR", "A"), window(sallyport.ByPrincipal), "?"},
		"another recipient":       {pays("c", "999", "EUR", "B"), window(sallyport.ByRecipient), ""},
		"the same recipient":      {pays("c", "999", "EUR", "A"), window(sallyport.ByRecipient), "1998"},
		"the same, written apart": {pays("c", "999", "EUR", " a "), window(sallyport.ByRecipient), "1998"},
		"among others":            {pays("c", "999", "EUR", "X1, A"), window(sallyport.ByRecipient), "1998"},
		"twice":                   {pays("c", "2", "EUR", "A,a"), window(sallyport.ByRecipient), "1001"},
		"others only":             {pays("c", "999", "EUR", "X1, X2"), window(sallyport.ByRecipient), ""},
		"no such currency":        {pays("c", "2", "€", "A"), window(sallyport.ByPrincipal), "1001"},
		"everybody":               {pays("c", "999", "EUR", "C"), window(sallyport.ByTenant), "1998"},
		"all currencies":          {pays("c", "999", "USD", "A"), sallyport.Window{Limit: "1000", Per: time.Minute, By: sallyport.ByPrincipal}, "1998"},
		"other tools":             {pays("c", "999", "EUR", "A"), sallyport.Window{Tool: "mail__*", Limit: "1000", Per: time.Minute, By: sallyport.ByPrincipal}, ""},
		"tools of the same kind":  {pays("c", "999", "EUR", "A"), sallyport.Window{Tool: "pay__*", Limit: "1000", Per: time.Minute, By: sallyport.ByPrincipal}, "1998"},
		"a limit that is nothing": {pays("c", "1", "EUR", "A"), sallyport.Window{Limit: "x", Per: time.Minute, By: sallyport.ByPrincipal}, "?"},
	} {
		got := ""
		if o := over(tt.b, tt.w); len(o) > 0 {
			if got = o[0].Sum; got == "" {
				got = "?"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	other := pays("c", "999", "EUR", "A")
	other.Key.Principal = "bob"
	if o := over(other, window(sallyport.ByPrincipal)); o != nil {
		t.Errorf("another agent: %v", o)
	}
	if o := over(other, window(sallyport.ByTenant)); len(o) != 1 {
		t.Errorf("another agent, for the tenant: %v", o)
	}
	other.Key.Tenant = "u"
	if o := over(other, window(sallyport.ByTenant)); o != nil {
		t.Errorf("another tenant: %v", o)
	}
	// Two amounts of one call count both; what needs no human is not asked about.
	two := pays("two", "600", "EUR", "X")
	two.Amounts = append(two.Amounts, two.Amounts[0])
	if o := over(two, sallyport.Window{Tool: "pay__*", Currency: "EUR", Limit: "1000", Per: time.Minute, By: sallyport.ByRecipient}); len(o) != 1 || o[0].Sum != "1200" {
		t.Errorf("two amounts in one call: %v", o)
	}
	f.pass(time.Minute)
	f.call(t, b, sallyport.Done) // the window has moved on
}

// What failed does not count, what is unknown does, and what a human approved
// runs and counts.
func testWindowRace(t *testing.T, f *fixture) {
	all := []sallyport.Window{window(sallyport.ByTenant)}
	try := func(s Store, k string) (int64, error) {
		b := pays(k, "999", "EUR", "A")
		b.Windows = all
		return s.Begin(t.Context(), b)
	}
	// Two parallel calls of 999, from two processes: one is turned back.
	other := f.another(t)
	var begun atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		s := []Store{f.Store, other}[i%2]
		wg.Go(func() {
			switch _, err := try(s, fmt.Sprint("race", i)); {
			case err == nil:
				begun.Add(1)
			case sallyport.CodeOf(err) != sallyport.InFlight:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if begun.Load() != 1 {
		t.Errorf("%d of 10 parallel calls began, want 1", begun.Load())
	}
	f.pass(time.Minute)
	fence, err := try(f, "a")
	must(t, err)
	_, err = try(f, "b")
	wantCode(t, "while another runs", err, sallyport.InFlight)
	must(t, f.Finish(t.Context(), finish("a", fence, sallyport.Failed)))
	fence, err = try(f, "b")
	wantCode(t, "after it failed", err, "")
	must(t, f.Finish(t.Context(), finish("b", fence, sallyport.Unknown)))
	_, err = try(f, "c")
	wantCode(t, "after an unknown outcome", err, sallyport.InFlight)
	must(t, f.Resolve(t.Context(), store.Resolution{Key: key("b"), State: sallyport.Failed, By: "ada", Reason: "never arrived"}))
	fence, err = try(f, "c")
	wantCode(t, "after it was resolved as failed", err, "")
	must(t, f.Finish(t.Context(), finish("c", fence, sallyport.Done)))
	tk := f.decide(t, f.open(t, "d", transfer).ID, true)
	b := pays("d", "999", "EUR", "A")
	b.Windows, b.Ticket, b.TicketHash = all, tk.ID, tk.Hash
	_, err = f.Begin(t.Context(), b)
	wantCode(t, "what a human approved", err, "")
	o, err := f.Overruns(t.Context(), key("e"), []sallyport.Amount{{Value: "0", Currency: "EUR"}}, all)
	if must(t, err); len(o) != 1 || o[0].Sum != "1998" {
		t.Errorf("the sum afterwards: %+v", o)
	}
	control := pays("control", "999", "EUR", "A") // without windows nothing holds it back
	_, err = f.Begin(t.Context(), control)
	wantCode(t, "the control, without a window", err, "")
}

func testQuotas(t *testing.T, f *fixture) {
	q := sallyport.Quota{Tool: "pay__*", Calls: 2, Per: time.Hour}
	try := func(who, k string) error {
		b := begin(k, transfer)
		b.Key.Principal, b.Quotas = who, []sallyport.Quota{q}
		_, err := f.Begin(t.Context(), b)
		return err
	}
	wantCode(t, "the first", try("agent", "a"), "")
	wantCode(t, "a repetition", try("agent", "a"), sallyport.InFlight) // does not count
	wantCode(t, "the second", try("agent", "b"), "")
	err := try("agent", "c")
	wantCode(t, "the third", err, sallyport.RateLimited)
	if e, ok := errors.AsType[*sallyport.Error](err); ok && (e.RetryAfter <= 0 || e.RetryAfter > time.Hour) {
		t.Errorf("RetryAfter %s", e.RetryAfter)
	}
	if f.state(t, "c") != "" {
		t.Error("a refused call left a reservation")
	}
	wantCode(t, "another agent", try("bob", "c"), "")
	f.pass(time.Hour)
	wantCode(t, "an hour later", try("agent", "c"), "")
	wantCode(t, "and one more", try("agent", "d"), "")
	f.pass(-time.Hour) // a clock that is set back, or another gateway's
	err = try("agent", "e")
	wantCode(t, "by a clock that is behind", err, sallyport.RateLimited)
	if e, ok := errors.AsType[*sallyport.Error](err); ok && (e.RetryAfter <= time.Hour || e.RetryAfter > 2*time.Hour) {
		t.Errorf("by a clock that is behind: RetryAfter %s", e.RetryAfter)
	}
	f.pass(time.Hour)
	wantCode(t, "and by the first again", try("agent", "e"), sallyport.RateLimited)
	f.pass(1000 * time.Hour) // a mistake
	wantCode(t, "much later", try("agent", "e"), "")
	f.pass(-1000 * time.Hour)
	wantCode(t, "the mistake is corrected", try("agent", "f"), "")
	both := []sallyport.Quota{{Tool: "pay__*", Calls: 9, Per: time.Minute}, {Tool: "pay__*", Agent: "eve", Calls: 2, Per: time.Minute}}
	for i, code := range []sallyport.Code{"", "", sallyport.RateLimited} {
		b := begin(fmt.Sprint("eve", i), transfer)
		b.Key.Principal, b.Quotas = "eve", both
		_, err := f.Begin(t.Context(), b)
		wantCode(t, fmt.Sprintf("call %d under a quota of its own beside each agent's", i+1), err, code)
	}
}

// Spans are those of UTC, wherever the gateway is: at midnight there, a day of 23
// or 25 hours is one like any other.
func testQuotaAtMidnight(t *testing.T, f *fixture) {
	zone, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	for name, day := range map[string]time.Time{
		"summer begins": time.Date(2026, 3, 29, 0, 0, 0, 0, zone), "summer ends": time.Date(2026, 10, 25, 0, 0, 0, 0, zone),
		"a leap day": time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC),
	} {
		n := 0
		try := func(at time.Time) error {
			f.pass(at.Sub(f.now()))
			b := begin(fmt.Sprint(name, n), transfer)
			n++
			b.Key.Principal, b.Quotas = name, []sallyport.Quota{{Calls: 1, Per: 24 * time.Hour}}
			_, err := f.Begin(t.Context(), b)
			return err
		}
		midnight := day.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		wantCode(t, name+": the last moment of a day", try(midnight.Add(-1).In(zone)), "")
		wantCode(t, name+": the first of the next", try(midnight.In(zone)), "")
		wantCode(t, name+": midnight where the gateway is", try(day.AddDate(0, 0, 1)), sallyport.RateLimited)
		wantCode(t, name+": the last of that day", try(midnight.Add(24*time.Hour-1)), sallyport.RateLimited)
		wantCode(t, name+": and the day after", try(midnight.Add(24*time.Hour)), "")
	}
}

// Identical calls without a key count as one, where that is wanted.
func testTwinCalls(t *testing.T, f *fixture) {
	twin := gateway.Twin{Fingerprint: fingerprint(transfer), Within: 30 * time.Second}
	of := func() string {
		t.Helper()
		k, err := f.TwinOf(t.Context(), key(""), twin)
		must(t, err)
		return k
	}
	try := func(k string) (int64, error) {
		b := begin(k, transfer)
		b.Twin = &twin
		return f.Begin(t.Context(), b)
	}
	if k := of(); k != "" {
		t.Errorf("a twin of nothing: %s", k)
	}
	fence, err := try("a")
	must(t, err)
	_, err = try("b")
	wantCode(t, "an identical call meanwhile", err, sallyport.InFlight)
	if of() != "a" || f.state(t, "b") != "" {
		t.Errorf("twin of %q; b is %q", of(), f.state(t, "b"))
	}
	f.pass(31 * time.Second)
	if of() != "a" {
		t.Error("a call that still runs has no twin any more")
	}
	must(t, f.Finish(t.Context(), finish("a", fence, sallyport.Done)))
	if k := of(); k != "" {
		t.Errorf("after the window the twin is %q", k)
	}
	fence, err = try("b")
	wantCode(t, "after the window", err, "")
	must(t, f.Finish(t.Context(), finish("b", fence, sallyport.Failed)))
	if k := of(); k != "" {
		t.Errorf("the twin of a call that had no effect is %q", k)
	}
	fence, err = try("c")
	wantCode(t, "after one that failed", err, "")
	must(t, f.Finish(t.Context(), finish("c", fence, sallyport.Unknown)))
	_, err = try("d")
	wantCode(t, "within the window of an unknown one", err, sallyport.InFlight)
	f.pass(30 * time.Second)
	if _, err = try("d"); err != nil || f.state(t, "c") != sallyport.Unknown {
		t.Errorf("after the window of an unknown one: %v; it is %s", err, f.state(t, "c"))
	}
	for what, other := range map[string]sallyport.ReservationKey{
		"another principal": {Tenant: "t", Principal: "bob", Tool: "pay__transfer"},
		"another tool":      {Tenant: "t", Principal: "agent", Tool: "pay__other"},
		"another tenant":    {Tenant: "u", Principal: "agent", Tool: "pay__transfer"},
	} {
		if k, err := f.TwinOf(t.Context(), other, twin); k != "" || err != nil {
			t.Errorf("%s has the twin %q, %v", what, k, err)
		}
	}
	// Ten at once, from two processes: one begins.
	f.pass(time.Minute)
	second := f.another(t)
	var begun atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		s := []Store{f.Store, second}[i%2]
		wg.Go(func() {
			b := begin(fmt.Sprint("race", i), transfer)
			b.Twin = &twin
			if _, err := s.Begin(t.Context(), b); err == nil {
				begun.Add(1)
			} else if sallyport.CodeOf(err) != sallyport.InFlight {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if begun.Load() != 1 {
		t.Errorf("%d of 10 identical calls began, want 1", begun.Load())
	}
}
