package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/sqlite"
	"sallyport.dev/sallyport/test/await"
)

func newStore(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "db"), audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e := sallyport.Entry{Tenant: "t", Kind: sallyport.EntryAdmin, Payload: []byte("{}")}
	if err := s.PutAdmin(t.Context(), ada, e); err != nil {
		t.Fatal(err)
	}
	if err := s.PutAgent(t.Context(), sallyport.Agent{Tenant: "t", ID: "agent", State: "active"}, e); err != nil {
		t.Fatal(err)
	}
	return s
}

var ada = sallyport.Admin{Tenant: "t", Name: "ada"}

func open(t *testing.T, s *sqlite.Store, key string, decideBy time.Time) string {
	t.Helper()
	b := sallyport.Binding{Tenant: "t", Principal: "agent", Tool: "pay", Args: json.RawMessage(`{}`)}
	tk, err := s.Open(t.Context(), sallyport.Ticket{CallID: key, Key: key, Binding: b, Hash: b.Hash(), DecideBy: decideBy},
		sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: key}, "f",
		sallyport.Entry{Tenant: "t", Kind: sallyport.EntryTicket, Payload: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	return tk.ID
}

func TestDecide(t *testing.T) {
	s := newStore(t)
	e := approval.New(s, s, approval.Options{RunWithin: time.Hour})
	id := open(t, s, "k", time.Time{})
	for name, tt := range map[string]struct {
		admin  sallyport.Admin
		ticket string
		reason string
		want   sallyport.Code
	}{
		"an agent's name":      {sallyport.Admin{Tenant: "t", Name: "agent"}, id, "", sallyport.Denied},
		"nobody":               {sallyport.Admin{}, id, "", sallyport.Denied},
		"another tenant's ada": {sallyport.Admin{Tenant: "u", Name: "ada"}, id, "", sallyport.Denied},
		"no ticket":            {ada, "none", "", sallyport.NotFound},
		"a long reason":        {ada, id, strings.Repeat("x", 3000), sallyport.Invalid},
	} {
		if _, err := e.Decide(t.Context(), tt.admin.Tenant, sallyport.Decision{By: tt.admin.Name, Ticket: tt.ticket, Approve: true, Reason: tt.reason}); err == nil || sallyport.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	tk, err := e.Decide(t.Context(), "t", sallyport.Decision{By: "ada", Ticket: id, Approve: true, Reason: " quarter's end "})
	if err != nil || tk.State != sallyport.TicketApproved || tk.Reason != "quarter's end" || tk.RunBy.Sub(tk.DecidedAt) != time.Hour {
		t.Errorf("Decide = %+v, %v", tk, err)
	}
	if _, err := e.Decide(t.Context(), "t", sallyport.Decision{By: "ada", Ticket: id}); sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "already approved") {
		t.Errorf("deciding twice: %v", err)
	}
	list, err := e.List(t.Context(), store.TicketFilter{Tenant: "t"})
	if err != nil || len(list) != 1 {
		t.Errorf("List = %v, %v", list, err)
	}
}

func TestWithdrawIsForItsOwner(t *testing.T) {
	s := newStore(t)
	e := approval.New(s, s, approval.Options{})
	id := open(t, s, "k", time.Time{})
	if _, err := e.Withdraw(t.Context(), sallyport.Principal{Tenant: "t", ID: "eve"}, id, ""); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("by another agent: %v", err)
	}
	tk, err := e.Withdraw(t.Context(), sallyport.Principal{Tenant: "t", ID: "agent"}, id, "done by hand")
	if err != nil || tk.State != sallyport.TicketWithdrawn {
		t.Errorf("by its owner: %+v, %v", tk, err)
	}
}

// Wait returns at once on a decision here, soon on one elsewhere, on the
// clock, and with ctx.
func TestWait(t *testing.T) {
	s := newStore(t)
	slow := approval.New(s, s, approval.Options{Poll: time.Hour})
	quick := approval.New(s, s, approval.Options{Poll: 5 * time.Millisecond})
	for name, tt := range map[string]struct {
		wait *approval.Engine
		by   time.Time
		act  func(id string)
	}{
		"decided here": {slow, time.Time{}, func(id string) { slow.Decide(t.Context(), "t", sallyport.Decision{By: "ada", Ticket: id}) }},
		"decided elsewhere": {quick, time.Time{}, func(id string) {
			slow.Decide(t.Context(), "t", sallyport.Decision{By: "ada", Ticket: id, Approve: true})
		}},
		"withdrawn": {slow, time.Time{}, func(id string) { slow.Withdraw(t.Context(), sallyport.Principal{Tenant: "t", ID: "agent"}, id, "") }},
		"expired":   {slow, time.Now().Add(30 * time.Millisecond), func(string) {}},
	} {
		t.Run(name, func(t *testing.T) {
			id := open(t, s, name, tt.by)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if err := tt.wait.Wait(t.Context(), "t", id); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
			tt.act(id)
			wg.Wait()
			if tk, err := s.Ticket(t.Context(), "t", id); err != nil || tk.State == sallyport.TicketPending {
				t.Errorf("Wait returned with the ticket %s, %v", tk.State, err)
			}
		})
	}
	id := open(t, s, "never", time.Time{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := slow.Wait(ctx, "t", id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait for nothing: %v", err)
	}
	if err := slow.Wait(t.Context(), "u", id); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("Wait for another tenant's ticket: %v", err)
	}
}

func TestRunSweeps(t *testing.T) {
	s := newStore(t)
	e := approval.New(s, s, approval.Options{Sweep: 5 * time.Millisecond})
	id := open(t, s, "k", time.Now().Add(20*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx, func(err error) { t.Error(err) }) }()
	await.That(t, "the sweep comes", func() bool {
		tks, err := s.ListTickets(t.Context(), store.TicketFilter{States: []sallyport.TicketState{sallyport.TicketExpired}})
		return err == nil && len(tks) == 1 && tks[0].ID == id
	})
	cancel()
	<-done
}

// FO-27: the approver sees the digits that will be executed.
func TestFO27_DigitsInTheTicket(t *testing.T) {
	args := `{"n":[9007199254740993,9223372036854775807,-9223372036854775808,18446744073709551615,1e400,0.1,1.0,-0,12345678901234567890.123456789]}`
	out := approval.Render(sallyport.Ticket{Binding: sallyport.Binding{Args: json.RawMessage(args)}}, time.Now())
	for _, d := range []string{"9007199254740993", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e400", " 0.1", " 1.0",
		" -0,", "12345678901234567890.123456789"} {
		if !strings.Contains(out, d) {
			t.Errorf("%s is missing in\n%s", d, out)
		}
	}
}

// hostile is text that a terminal would obey, or not show.
var hostile = []string{
	"\x1b[2J", "\x1b]8;;http://evil.test\x07click\x1b]8;;\x07", "\x1b]52;c;AAAA\x07", "\x1bP1$r\x1b\\", "\u009b31m", "safe\rEVIL", "abc\b\b\bxyz",
	"a\x00b", "a\x7fb", "\u202egnp.exe", "zero\u200bwidth", "\ufeffbom", "tag\U000e0041", "hangul\u3164filler", "nbsp\u00a0x", "line\u2028sep", "vs\ufe0f", "soft\u00adhyphen",
}

func checkTerminal(t *testing.T, out string) {
	t.Helper()
	if !utf8.ValidString(out) {
		t.Errorf("not UTF-8: %q", out)
	}
	for _, r := range out {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0xa0 || strings.ContainsRune("\u202e\u200b\ufeff\U000e0041\u3164\u2028\ufe0f\u00ad", r) {
			t.Errorf("U+%04X reaches the terminal in %q", r, out)
		}
	}
}

func TestTO05_RenderedTicket(t *testing.T) {
	for _, h := range hostile {
		args, err := json.Marshal(map[string]string{"a" + h: h, "code": "one\n" + h + "\n\ttwo"})
		if err != nil {
			t.Fatal(err)
		}
		canon, err := sallyport.Canonical(args)
		if err != nil {
			t.Fatal(err)
		}
		b := sallyport.Binding{Tenant: h, Principal: h, OnBehalfOf: h, Profile: h, Tool: h, ToolVersion: h, Args: canon, Endpoint: h, Credential: h,
			Image: h, Tier: h, Egress: []string{h}}
		tk := sallyport.Ticket{ID: h, CallID: h, Binding: b, Hash: h, Risk: sallyport.Risk{Level: sallyport.Critical, Irreversible: true,
			Reasons: []string{h}, Objects: []string{h}}, Policies: []string{h}, State: sallyport.TicketState(h), DecidedBy: h, Reason: h, Trace: h}
		out := approval.Render(tk, time.Now())
		checkTerminal(t, out)
		if !strings.Contains(out, "CANNOT BE UNDONE") || strings.Index(out, "CRITICAL") > strings.Index(out, "ARGUMENTS") {
			t.Errorf("what is dangerous does not come first:\n%s", out)
		}
		tk.Binding.Args = json.RawMessage(h) // not even JSON
		checkTerminal(t, approval.Render(tk, time.Now()))
	}
	plain := "Grüße, 東京 — naïve; SELECT * FROM t WHERE a = 'b' \\ \"c\" 🙂"
	if got := approval.Visible(plain); got != plain {
		t.Errorf("plain text became %q", got)
	}
}

// What PrettyJSON shows is JSON with the same values.
func FuzzPrettyJSON(f *testing.F) {
	f.Add(`{"a":"x\u202ey","n":1e400}`)
	f.Add(`{"a":"\u001b[2J","b":["é",-0]}`)
	f.Fuzz(func(t *testing.T, in string) {
		canon, err := sallyport.Canonical(json.RawMessage(in))
		if err != nil {
			return
		}
		out := approval.PrettyJSON(canon)
		checkTerminal(t, out)
		back, err := sallyport.Canonical(json.RawMessage(out))
		if err != nil || string(back) != string(canon) {
			t.Errorf("%q is shown as %q, which is %q, %v", canon, out, back, err)
		}
	})
}
