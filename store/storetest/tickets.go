package storetest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

func testOpenTwice(t *testing.T, f *fixture) {
	one := f.open(t, "k", transfer)
	if one.State != sallyport.TicketPending || one.DecideBy.IsZero() || one.CreatedAt.IsZero() {
		t.Errorf("opened %+v", one)
	}
	again := ticket("k", transfer)
	again.ID = "tk-other"
	two, err := f.Open(t.Context(), again, key("k"), fingerprint(transfer), entry(sallyport.EntryTicket, "call-2"))
	must(t, err)
	same(t, "second Open", two, one)
	_, err = f.Open(t.Context(), ticket("k", `{}`), key("k"), fingerprint(`{}`), entry(sallyport.EntryTicket, "call-3"))
	wantCode(t, "Open with other arguments", err, sallyport.Conflict)
	moved := ticket("k", transfer)
	moved.Binding.Endpoint = "https://other.test/mcp"
	moved.Hash = moved.Binding.Hash()
	_, err = f.Open(t.Context(), moved, key("k"), fingerprint(transfer), entry(sallyport.EntryTicket, "call-4"))
	wantCode(t, "Open with another endpoint", err, sallyport.Conflict)
	forged := ticket("f", transfer)
	forged.Hash = moved.Hash
	_, err = f.Open(t.Context(), forged, key("f"), fingerprint(transfer), entry(sallyport.EntryTicket, "call-5"))
	wantCode(t, "Open with a hash that is not the binding's", err, sallyport.Internal)
	if n := f.count(t, sallyport.EntryTicket); n != 1 {
		t.Errorf("%d ticket entries, want 1", n)
	}
}

func testOpenAfter(t *testing.T, f *fixture) {
	reopen := func(k, id string) (sallyport.Ticket, error) {
		tk := ticket(k, transfer)
		tk.ID = id
		return f.Open(t.Context(), tk, key(k), fingerprint(transfer), entry(sallyport.EntryTicket, "again"))
	}
	f.decide(t, f.open(t, "rejected", transfer).ID, false)
	tk, err := reopen("rejected", "new")
	if err != nil || tk.State != sallyport.TicketRejected || tk.Reason != "because" {
		t.Errorf("Open after a rejection = %+v, %v; want the rejected ticket", tk, err)
	}
	ap := f.decide(t, f.open(t, "failed", transfer).ID, true)
	fence, err := f.run(t, ap, transfer)
	must(t, err)
	_, err = reopen("failed", "early")
	wantCode(t, "Open while executing", err, sallyport.InFlight)
	must(t, f.Finish(t.Context(), finish("failed", fence, sallyport.Failed)))
	tk, err = reopen("failed", "second")
	if err != nil || tk.State != sallyport.TicketPending || tk.ID != "second" {
		t.Errorf("Open after a failure = %+v, %v; want a new ticket", tk, err)
	}
	_, err = f.run(t, ap, transfer)
	wantCode(t, "the spent ticket after a failure", err, sallyport.Conflict)
	fence, err = f.run(t, f.decide(t, "second", true), transfer)
	must(t, err)
	must(t, f.Finish(t.Context(), finish("failed", fence, sallyport.Done)))
	_, err = reopen("failed", "third")
	wantCode(t, "Open after success", err, sallyport.InFlight)
	fence, err = f.Begin(t.Context(), begin("lost", transfer))
	must(t, err)
	must(t, f.Finish(t.Context(), finish("lost", fence, sallyport.Unknown)))
	_, err = reopen("lost", "fourth")
	wantCode(t, "Open after an unknown outcome", err, sallyport.OutcomeUnknown)
}

func testTicketStates(t *testing.T, f *fixture) {
	for k, tt := range map[string]struct {
		prepare func(id string)
		want    sallyport.Code
	}{
		"pending":   {func(string) {}, sallyport.Pending},
		"approved":  {func(id string) { f.decide(t, id, true) }, ""},
		"rejected":  {func(id string) { f.decide(t, id, false) }, sallyport.Rejected},
		"withdrawn": {func(id string) { _, err := f.Withdraw(t.Context(), "t", id, "agent", ""); must(t, err) }, sallyport.Rejected},
		"expired":   {func(string) { f.pass(2 * time.Hour) }, sallyport.Rejected},
		"void":      {func(id string) { f.decide(t, id, true); f.pass(10 * time.Minute) }, sallyport.Rejected},
		"consumed": {func(id string) {
			tk, err := f.Ticket(t.Context(), "t", id)
			must(t, err)
			f.decide(t, id, true)
			fence, err := f.run(t, tk, transfer)
			must(t, err)
			must(t, f.Finish(t.Context(), finish("consumed", fence, sallyport.Failed)))
		}, sallyport.Conflict},
	} {
		tk := f.open(t, k, transfer)
		tt.prepare(tk.ID)
		_, err := f.run(t, tk, transfer)
		wantCode(t, k, err, tt.want)
		if got, err := f.Ticket(t.Context(), "t", tk.ID); err != nil || k != "approved" && string(got.State) != k {
			t.Errorf("%s: the ticket is %s, %v", k, got.State, err)
		}
	}
	_, err := f.run(t, sallyport.Ticket{ID: "none", Key: "n"}, transfer)
	wantCode(t, "no such ticket", err, sallyport.NotFound)
}

// A policy that no longer asks for approval does not overrule a human, nor does
// it answer a question that a human has before them.
func testNoLongerNeeded(t *testing.T, f *fixture) {
	for k, tt := range map[string]struct {
		prepare func(id string)
		want    sallyport.Code
		state   sallyport.TicketState
	}{
		"pending":  {func(string) {}, sallyport.Pending, sallyport.TicketPending},
		"approved": {func(id string) { f.decide(t, id, true) }, sallyport.Conflict, sallyport.TicketApproved},
		"void":     {func(id string) { f.decide(t, id, true); f.pass(10 * time.Minute) }, "", sallyport.TicketVoid},
		"rejected": {func(id string) { f.decide(t, id, false) }, sallyport.Rejected, sallyport.TicketRejected},
		"expired":  {func(string) { f.pass(2 * time.Hour) }, sallyport.Rejected, sallyport.TicketExpired},
	} {
		tk := f.open(t, k, transfer)
		tt.prepare(tk.ID)
		_, err := f.Begin(t.Context(), begin(k, transfer))
		wantCode(t, k, err, tt.want)
		got, err := f.Ticket(t.Context(), "t", tk.ID)
		must(t, err)
		if got.State != tt.state {
			t.Errorf("%s: the ticket is %s, want %s", k, got.State, tt.state)
		}
	}
}

func testAltered(t *testing.T, f *fixture) {
	tk := f.decide(t, f.open(t, "k", transfer).ID, true)
	for _, args := range []string{
		`{"amount":820000,"to":"A"}`, `{"amount":82000.0,"to":"A"}`, `{"amount":"82000","to":"A"}`, `{"amount":8.2e4,"to":"A"}`,
		`{"amount":82000,"to":"A "}`, `{"amount":82000,"to":"A","x":1}`, `{"to":"A"}`, `{"amount":82000,"to":{"x":"A"}}`,
		`{"amount":82000,"currency":"USD","to":"A"}`,
	} {
		_, err := f.run(t, tk, args)
		wantCode(t, args, err, sallyport.Conflict)
		b := begin("other", args) // the same ticket under another key
		b.Ticket, b.TicketHash = tk.ID, ticket("other", args).Hash
		_, err = f.Begin(t.Context(), b)
		wantCode(t, args+" under another key", err, sallyport.Conflict)
		b = begin("k", transfer) // a lying fingerprint does not help
		b.Ticket, b.TicketHash = tk.ID, ticket("k", args).Hash
		_, err = f.Begin(t.Context(), b)
		wantCode(t, args+" with the right fingerprint", err, sallyport.Conflict)
	}
	for name, edit := range map[string]func(*sallyport.Binding){
		"endpoint": func(b *sallyport.Binding) { b.Endpoint = "https://evil.test" }, "version": func(b *sallyport.Binding) { b.ToolVersion = "2" },
		"digest": func(b *sallyport.Binding) { b.ToolDigest = "e" }, "user": func(b *sallyport.Binding) { b.OnBehalfOf = "eve" },
		"profile": func(b *sallyport.Binding) { b.Profile = "q" }, "credential": func(b *sallyport.Binding) { b.Credential = "root" },
		"image": func(b *sallyport.Binding) { b.Image = "i" }, "tier": func(b *sallyport.Binding) { b.Tier = "none" },
		"egress": func(b *sallyport.Binding) { b.Egress = []string{"pay.test:443", "evil.test:443"} },
	} {
		b := begin("k", transfer)
		now := ticket("k", transfer).Binding
		edit(&now)
		b.Ticket, b.TicketHash = tk.ID, now.Hash()
		_, err := f.Begin(t.Context(), b)
		wantCode(t, "another "+name, err, sallyport.Conflict)
	}
	thief := begin("k", transfer)
	thief.Key.Principal, thief.Ticket, thief.TicketHash = "thief", tk.ID, tk.Hash
	_, err := f.Begin(t.Context(), thief)
	wantCode(t, "another agent", err, sallyport.NotFound)
	thief.Key = key("k")
	thief.Key.Tool = "pay__other"
	_, err = f.Begin(t.Context(), thief)
	wantCode(t, "another tool", err, sallyport.Conflict)
	if n := f.count(t, sallyport.EntryIntent); n != 0 {
		t.Fatalf("%d executions began", n)
	}
	_, err = f.run(t, tk, transfer) // the control: the approved bytes do run
	wantCode(t, "unaltered", err, "")
}

func testParallel(t *testing.T, f *fixture) {
	tk := f.decide(t, f.open(t, "k", transfer).ID, true)
	stores := []Store{f.Store, f.another(t)}
	var ran, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			k := "k"
			if i%2 == 1 {
				k = "other" + string(rune('a'+i))
			}
			b := begin(k, transfer)
			b.Ticket, b.TicketHash = tk.ID, tk.Hash
			_, err := stores[i/25].Begin(context.Background(), b)
			switch sallyport.CodeOf(err) {
			case sallyport.Conflict, sallyport.InFlight:
				refused.Add(1)
			default:
				if err != nil {
					t.Errorf("Begin: %v", err)
					return
				}
				ran.Add(1)
			}
		})
	}
	wg.Wait()
	if ran.Load() != 1 || refused.Load() != 49 || f.count(t, sallyport.EntryIntent) != 1 {
		t.Errorf("%d executions began, %d were refused, want 1 and 49", ran.Load(), refused.Load())
	}
}

// FO-27: the digits that the caller wrote are the digits that are kept.
func testDigits(t *testing.T, f *fixture) {
	in := `{"n":[9007199254740993,9223372036854775807,-9223372036854775808,18446744073709551615,1e400,0.1,1.0,-0,12345678901234567890.123456789],"s":"<é\u2028>"}`
	canon, err := sallyport.Canonical(json.RawMessage(in))
	must(t, err)
	args := string(canon)
	tk := f.open(t, "k", args)
	stored, err := f.another(t).Ticket(t.Context(), "t", tk.ID)
	must(t, err)
	same(t, "arguments in the ticket", string(stored.Binding.Args), args)
	same(t, "hash of what was stored", stored.Binding.Hash(), tk.Hash)
	f.decide(t, tk.ID, true)
	rounded := strings.Replace(args, "9007199254740993", "9007199254740992", 1)
	_, err = f.run(t, tk, rounded)
	wantCode(t, "one digit less", err, sallyport.Conflict)
	fence, err := f.run(t, tk, args)
	must(t, err)
	fin := finish("k", fence, sallyport.Done)
	fin.Output = json.RawMessage(`{"structuredContent":` + args + `}`)
	must(t, f.Finish(t.Context(), fin))
	r, err := f.Find(t.Context(), key("k"))
	must(t, err)
	same(t, "output", string(r.Output), string(fin.Output))
	same(t, "fingerprint", r.Fingerprint, fingerprint(args))
}
