package passkey_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/approval/passkey/passkeytest"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
)

// A world is a gateway as far as passkeys need one: real store, engine, page.
type world struct {
	*testing.T
	db     *sqlite.Store
	keys   *passkey.Keys
	engine *approval.Engine
	desk   *passkey.Desk
	base   string // as browsers know it
	addr   string
	mu     sync.Mutex
	time   time.Time
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.time
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

func newWorld(t *testing.T, mode passkey.Mode) *world {
	t.Helper()
	w := &world{T: t, time: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	key, err := audit.NewKey()
	w.must(err)
	seal, err := audit.NewSealer(key, "")
	w.must(err)
	w.db, err = sqlite.Open(filepath.Join(t.TempDir(), "db"), seal, relational.WithClock(w.now))
	w.must(err)
	t.Cleanup(func() { w.db.Close() })
	for _, name := range []string{"ada", "bob"} {
		w.must(w.db.PutAdmin(t.Context(), sallyport.Admin{Tenant: "t", Name: name, PasswordHash: "hash of " + name}, entry()))
	}
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(server.Close)
	w.addr = server.Listener.Addr().String()
	w.base = "http://localhost" + w.addr[strings.LastIndex(w.addr, ":"):]
	w.keys, err = passkey.NewKeys(w.db, mode, w.base)
	w.must(err)
	w.engine = approval.New(w.db, w.db, approval.Options{Signatures: w.keys, Clock: w.now})
	w.desk = &passkey.Desk{Tenant: "t", Keys: w.keys, Links: w.db, Admins: w.db, Tickets: w.engine, Record: w.db, Clock: w.now}
	handler = w.desk.Handler()
	return w
}

func entry() sallyport.Entry {
	return sallyport.Entry{Tenant: "t", Kind: sallyport.EntryAdmin, Payload: []byte(`{}`)}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) browser(a *passkeytest.Authenticator) *passkeytest.Browser {
	return &passkeytest.Browser{Authenticator: a, Dial: w.addr}
}

// enrol gives an admin a passkey.
func (w *world) enrol(admin string) *passkeytest.Authenticator {
	w.Helper()
	a := passkeytest.New()
	link, err := w.desk.Invite(w.Context(), admin, "key of "+admin)
	w.must(err)
	_, err = w.browser(a).Open(w.Context(), link.URL)
	w.must(err)
	return a
}

func (w *world) ticket(key string, irreversible bool) sallyport.Ticket {
	w.Helper()
	b := sallyport.Binding{Tenant: "t", Principal: "agent", Tool: "pay", Args: json.RawMessage(`{"to":"<b>` + key + `</b>","sql":"DROP TABLE orders"}`)}
	risk := sallyport.Risk{Level: sallyport.Critical, Irreversible: irreversible, Reasons: []string{"drops table orders"}, Objects: []string{"orders"}}
	t := sallyport.Ticket{ID: "tkt_" + key, CallID: key, Key: key, Binding: b, Hash: b.Hash(), Risk: risk, State: sallyport.TicketPending, DecideBy: w.now().Add(time.Hour)}
	e, err := audit.NewEntry("t", sallyport.EntryTicket, key, t)
	w.must(err)
	t, err = w.db.Open(w.Context(), t, sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: key}, "f", e)
	w.must(err)
	return t
}

func (w *world) link(admin string, t sallyport.Ticket) string {
	w.Helper()
	link, needed, err := w.desk.AskToSign(w.Context(), admin, t.ID, "seen", "")
	w.must(err)
	if !needed {
		w.Fatal("no signature is needed")
	}
	return link.URL
}

func (w *world) state(t sallyport.Ticket) sallyport.TicketState {
	w.Helper()
	t, err := w.db.Ticket(w.Context(), "t", t.ID)
	w.must(err)
	return t.State
}

// changes are the admin entries of an action, newest first.
func (w *world) changes(action string) (out []json.RawMessage) {
	w.Helper()
	rows, err := audit.Search(w.Context(), w.db, audit.Filter{Kind: sallyport.EntryAdmin, Text: `"action":"` + action + `"`}, 100)
	w.must(err)
	for _, r := range rows {
		out = append(out, r.Payload)
	}
	return out
}

func (w *world) wantCode(what string, err error, want sallyport.Code) {
	w.Helper()
	if err == nil || sallyport.CodeOf(err) != want {
		w.Errorf("%s: %v, want %s", what, err, want)
	}
}

func unsigned(t sallyport.Ticket, by string, approve bool) sallyport.Decision {
	return sallyport.Decision{Ticket: t.ID, By: by, Approve: approve, Door: "admin"}
}

// From the link on the terminal to the record: ada enrols, signs, and nobody
// gets around it.
func TestSignedApproval(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	one := w.ticket("one", true)
	if _, needed, err := w.desk.AskToSign(t.Context(), "ada", one.ID, "", ""); needed || err != nil {
		t.Errorf("without a passkey: needed %v, %v", needed, err)
	}
	a := w.enrol("ada")
	_, err := w.engine.Decide(t.Context(), "t", unsigned(one, "ada", true))
	w.wantCode("a password alone, once a passkey is enrolled", err, sallyport.Denied)
	if e, _ := errors.AsType[*sallyport.Error](err); !strings.Contains(e.Hint, "approvals approve") {
		t.Errorf("no hint: %+v", e)
	}
	state, err := w.browser(a).Open(t.Context(), w.link("ada", one))
	if err != nil || state != "approved" || w.state(one) != sallyport.TicketApproved {
		t.Fatalf("signing: %s, %v", state, err)
	}
	done, err := w.db.Ticket(t.Context(), "t", one.ID)
	w.must(err)
	if len(done.Votes) != 1 || done.Votes[0].Door != "passkey" || !strings.HasPrefix(done.Votes[0].Passkey, "pk_") {
		t.Fatalf("the vote: %+v", done.Votes)
	}
	if v, err := passkey.ParseSigned(done.Votes[0].Signature); err != nil || v.Verify() != nil || v.Passkey != done.Votes[0].Passkey {
		t.Errorf("the vote's signature: %+v, %v", v, err)
	}
	kept := w.changes(passkey.ActionSign)
	if len(kept) != 1 {
		t.Fatalf("%d signatures on record", len(kept))
	}
	var c struct {
		By, Reason string
		Detail     json.RawMessage
	}
	w.must(json.Unmarshal(kept[0], &c))
	s, err := passkey.ParseSigned(c.Detail)
	if err != nil || s.Verify() != nil || s.Hash != one.Hash || s.Ticket != one.ID || s.Admin != "ada" || c.By != "ada" || c.Reason != "seen" {
		t.Errorf("on record: %+v, %v, %v", s, err, s.Verify())
	}
	if n, problems, err := passkey.CheckRecord(t.Context(), w.db); n != 1 || len(problems) > 0 || err != nil {
		t.Errorf("the auditor finds %d signatures, %v, %v", n, problems, err)
	}

	two := w.ticket("two", true)
	if _, err := w.engine.Decide(t.Context(), "t", unsigned(two, "ada", false)); err != nil || w.state(two) != sallyport.TicketRejected {
		t.Errorf("a rejection needs no passkey: %v", err)
	}
	three := w.ticket("three", true)
	if _, err := w.engine.Decide(t.Context(), "t", unsigned(three, "bob", true)); err != nil {
		t.Errorf("bob has no passkey: %v", err)
	}
	four := w.ticket("four", false)
	if _, err := w.engine.Decide(t.Context(), "t", unsigned(four, "ada", true)); err != nil {
		t.Errorf("what can be undone: %v", err)
	}
}

// The same decisions in each mode; with nobody to ask (the protection taken
// away) all of them pass.
func TestModes(t *testing.T) {
	for _, tt := range []struct {
		mode         passkey.Mode
		adaHas       bool
		irreversible bool
		unguarded    bool
		want         sallyport.Code
	}{
		{mode: passkey.Off, irreversible: true},
		{mode: passkey.Enrolled, irreversible: true},
		{mode: passkey.Enrolled, irreversible: true, adaHas: true, want: sallyport.Denied},
		{mode: passkey.Enrolled, irreversible: true, adaHas: true, unguarded: true},
		{mode: passkey.Enrolled, adaHas: true},
		{mode: passkey.Required, irreversible: true, want: sallyport.Denied},
		{mode: passkey.Required, irreversible: true, adaHas: true, want: sallyport.Denied},
		{mode: passkey.Required, irreversible: true, unguarded: true},
		{mode: passkey.Required},
	} {
		w := newWorld(t, tt.mode)
		if tt.adaHas {
			w.enrol("ada")
		}
		engine := w.engine
		if tt.unguarded {
			engine = approval.New(w.db, w.db, approval.Options{Clock: w.now})
		}
		for _, door := range []string{"admin", "webhook"} {
			d := unsigned(w.ticket(door, tt.irreversible), "ada", true)
			d.Door = door
			_, err := engine.Decide(t.Context(), "t", d)
			if err == nil && tt.want != "" || err != nil && sallyport.CodeOf(err) != tt.want {
				t.Errorf("%+v by %s: %v", tt, door, err)
			}
		}
	}
	w := newWorld(t, passkey.Required)
	_, needed, err := w.desk.AskToSign(t.Context(), "ada", w.ticket("x", true).ID, "", "")
	if !needed || sallyport.CodeOf(err) != sallyport.Denied || !strings.Contains(err.Error(), "has none") {
		t.Errorf("required, and none is enrolled: %v, %v", needed, err)
	}
	w = newWorld(t, passkey.Off)
	_, err = w.desk.Invite(t.Context(), "ada", "")
	w.wantCode("enrolling where passkeys are off", err, sallyport.Denied)
}

// Each lie is refused, told in the record, and decides nothing. The first row
// is the control.
func TestForgedAssertions(t *testing.T) {
	swap := func(answer map[string]json.RawMessage, field string, change func(b []byte) []byte) {
		var r map[string]any
		_ = json.Unmarshal(answer["sign"], &r)
		response := r["response"].(map[string]any)
		b, _ := base64.RawURLEncoding.DecodeString(response[field].(string))
		response[field] = passkeytest.B64(change(b))
		answer["sign"], _ = json.Marshal(r)
	}
	for name, tt := range map[string]struct {
		lie  func(w *world, a *passkeytest.Authenticator, b *passkeytest.Browser)
		fine bool
	}{
		"control": {func(*world, *passkeytest.Authenticator, *passkeytest.Browser) {}, true},
		"another origin": {func(_ *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Origin = "http://evil.localhost"
		}, false},
		"another port":          {func(_ *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) { b.Origin = "http://localhost:1" }, false},
		"another RP id":         {func(_ *world, a *passkeytest.Authenticator, _ *passkeytest.Browser) { a.RPID = "evil.test" }, false},
		"nobody present":        {func(_ *world, a *passkeytest.Authenticator, _ *passkeytest.Browser) { a.Flags = passkeytest.Verified }, false},
		"nobody verified":       {func(_ *world, a *passkeytest.Authenticator, _ *passkeytest.Browser) { a.Flags = passkeytest.Present }, false},
		"counter stands still":  {func(_ *world, a *passkeytest.Authenticator, _ *passkeytest.Browser) { a.Still, a.Counter = true, 7 }, false},
		"counter goes back":     {func(_ *world, a *passkeytest.Authenticator, _ *passkeytest.Browser) { a.Counter = 2 }, false},
		"counter falls to zero": {func(_ *world, a *passkeytest.Authenticator, _ *passkeytest.Browser) { a.Still, a.Counter = true, 0 }, false},
		"signature altered": {func(_ *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(m map[string]json.RawMessage) {
				swap(m, "signature", func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
			}
		}, false},
		"data altered": {func(_ *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(m map[string]json.RawMessage) {
				swap(m, "authenticatorData", func(b []byte) []byte { b[36]++; return b })
			}
		}, false},
		"client data altered": {func(_ *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(m map[string]json.RawMessage) {
				swap(m, "clientDataJSON", func(b []byte) []byte { return append(b, ' ') })
			}
		}, false},
		"no signature": {func(_ *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(m map[string]json.RawMessage) { delete(m, "sign") }
		}, false},
		"removed in mid-ceremony": {func(w *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(map[string]json.RawMessage) {
				all, err := w.desk.List(w.Context())
				w.must(err)
				w.must(w.desk.Remove(w.Context(), "bob", all[0].ID, "lost"))
			}
		}, false},
		"new password in mid-ceremony": {func(w *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(map[string]json.RawMessage) {
				w.must(w.db.PutAdmin(w.Context(), sallyport.Admin{Tenant: "t", Name: "ada", PasswordHash: "new"}, entry()))
			}
		}, false},
		"too late": {func(w *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(map[string]json.RawMessage) { w.pass(11 * time.Minute) }
		}, false},
		"decided in mid-ceremony": {func(w *world, _ *passkeytest.Authenticator, b *passkeytest.Browser) {
			b.Alter = func(map[string]json.RawMessage) {
				_, err := w.engine.Decide(w.Context(), "t", sallyport.Decision{Ticket: "tkt_x", By: "bob"})
				w.must(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, passkey.Enrolled)
			a := w.enrol("ada")
			a.Counter = 6
			_, err := w.browser(a).Open(t.Context(), w.link("ada", w.ticket("before", true))) // the gateway knows counter 7
			w.must(err)
			x := w.ticket("x", true)
			b := w.browser(a)
			tt.lie(w, a, b)
			state, err := b.Open(t.Context(), w.link("ada", x))
			if tt.fine {
				if err != nil || state != "approved" {
					t.Errorf("%s, %v", state, err)
				}
				return
			}
			if err == nil || w.state(x) == sallyport.TicketApproved {
				t.Fatalf("accepted: %s, %v", state, err)
			}
			if testing.Verbose() {
				t.Logf("%v; %s", err, w.changes("passkeys refuse"))
			}
			if name != "too late" && len(w.changes("passkeys refuse")) != 1 {
				t.Errorf("%v: not on record", err)
			}
		})
	}
}

// A signature for one ticket, admin or time stands for no other.
func TestSignatureStandsForOneThing(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	a, b := w.enrol("ada"), w.enrol("bob")
	x, y := w.ticket("x", true), w.ticket("y", true)
	lx, ly := w.link("ada", x), w.link("ada", y)

	// The answer to x's challenge, sent for y.
	ox, err := w.browser(a).Begin(t.Context(), lx)
	w.must(err)
	_, err = w.browser(a).Begin(t.Context(), ly)
	w.must(err)
	if _, err := w.browser(a).Finish(t.Context(), ly, ox); err == nil {
		t.Error("x's signature approved y")
	}
	// The same answer a second time, and a challenge that a later one replaced.
	var answer json.RawMessage
	keep := w.browser(a)
	keep.Alter = func(m map[string]json.RawMessage) { answer = m["sign"] }
	old, err := keep.Begin(t.Context(), lx)
	w.must(err)
	_, err = keep.Begin(t.Context(), lx)
	w.must(err)
	if _, err := keep.Finish(t.Context(), lx, old); err == nil {
		t.Error("a replaced challenge was accepted")
	}
	fresh, err := keep.Begin(t.Context(), lx)
	w.must(err)
	if _, err := keep.Finish(t.Context(), lx, fresh); err != nil {
		t.Errorf("the control: %v", err)
	}
	replay := w.browser(a)
	replay.Alter = func(m map[string]json.RawMessage) { m["sign"] = answer }
	if _, err := replay.Open(t.Context(), ly); err == nil {
		t.Error("an answer served twice")
	}
	if _, err := w.browser(a).Begin(t.Context(), lx); err == nil {
		t.Error("a used link opened again")
	}
	// Bob's passkey on ada's link.
	if _, err := w.browser(b).Open(t.Context(), w.link("ada", w.ticket("z", true))); err == nil {
		t.Error("bob signed for ada")
	}
	if w.state(y) != sallyport.TicketPending {
		t.Errorf("y is %s", w.state(y))
	}
	// A clone whose counter lags behind.
	clone := a.Clone()
	_, err = w.browser(a).Open(t.Context(), w.link("ada", y))
	w.must(err)
	_, err = w.browser(clone).Open(t.Context(), w.link("ada", w.ticket("c", true)))
	if r, ok := errors.AsType[*passkeytest.Refusal](err); !ok || !strings.Contains(r.Message, "counter went back") {
		t.Errorf("a clone: %v", err)
	}
}

// Whatever a door makes of a signature, the engine holds it against ticket,
// admin and key once more: each field of it counts.
func TestEachFieldOfASignatureCounts(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	a := w.enrol("ada")
	x := w.ticket("x", true)
	_, err := w.browser(a).Open(t.Context(), w.link("ada", x))
	w.must(err)
	var c struct{ Detail json.RawMessage }
	w.must(json.Unmarshal(w.changes(passkey.ActionSign)[0], &c))
	good, err := passkey.ParseSigned(c.Detail)
	w.must(err)
	check := func(s passkey.Signed, alter func(d *sallyport.Decision)) error {
		raw, err := json.Marshal(s)
		w.must(err)
		d := sallyport.Decision{Ticket: x.ID, By: "ada", Approve: true, Door: "passkey", Passkey: good.Passkey, Signature: raw}
		if alter != nil {
			alter(&d)
		}
		return w.keys.Check(t.Context(), x, d)
	}
	if err := check(good, nil); err != nil {
		t.Fatalf("the control: %v", err)
	}
	fields := reflect.TypeFor[passkey.Signed]()
	for i := range fields.NumField() {
		bad := good
		f := reflect.ValueOf(&bad).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Int:
			f.SetInt(f.Int() + 1)
		default:
			b := append([]byte{}, f.Bytes()...)
			b[len(b)-1] ^= 1
			f.SetBytes(b)
		}
		if check(bad, nil) == nil {
			t.Errorf("an altered %s was accepted by the engine", fields.Field(i).Name)
		}
		if bad.Verify() == nil && fields.Field(i).Name != "Version" {
			t.Errorf("an altered %s verifies", fields.Field(i).Name)
		}
	}
	for name, alter := range map[string]func(d *sallyport.Decision){
		"for a rejection": func(d *sallyport.Decision) { d.Approve = false }, "by bob": func(d *sallyport.Decision) { d.By = "bob" },
		"of another passkey": func(d *sallyport.Decision) { d.Passkey = "pk_other" }, "without the passkey's name": func(d *sallyport.Decision) { d.Passkey = "" },
		"not there": func(d *sallyport.Decision) { d.Signature = nil }, "no JSON": func(d *sallyport.Decision) { d.Signature = []byte("{") },
	} {
		if err := check(good, alter); sallyport.CodeOf(err) != sallyport.Denied || err == nil {
			t.Errorf("a signature %s: %v", name, err)
		}
	}
	other := x
	other.Binding.Args = json.RawMessage(`{}`)
	raw, err := json.Marshal(good)
	w.must(err)
	if w.keys.Check(t.Context(), other, sallyport.Decision{By: "ada", Approve: true, Passkey: good.Passkey, Signature: raw}) == nil {
		t.Error("it stands for other arguments")
	}
	if _, err := approval.New(w.db, w.db, approval.Options{Clock: w.now}).Decide(t.Context(), "t",
		sallyport.Decision{Ticket: w.ticket("n", true).ID, By: "ada", Approve: true, Passkey: "pk_made_up"}); err == nil {
		t.Error("a signature was stored that nobody could check")
	}
}

// A password alone neither adds a passkey beside an enrolled one nor takes it
// away; another admin can.
func TestEnrolmentIsGuarded(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	first := w.enrol("ada")
	w.pass(time.Second)
	thief := passkeytest.New()
	link, err := w.desk.Invite(t.Context(), "ada", "thief's")
	w.must(err)
	if _, err := w.browser(thief).Open(t.Context(), link.URL); err == nil {
		t.Error("a second passkey was enrolled without the first")
	}
	skip := w.browser(thief)
	skip.Confirming = first
	skip.Alter = func(m map[string]json.RawMessage) { delete(m, "confirm") }
	if _, err := skip.Open(t.Context(), link.URL); err == nil {
		t.Error("the confirmation could be left out")
	}
	// A link from before the first passkey, opened after it: begun without a
	// confirmation, it must not end without one.
	early := newWorld(t, passkey.Enrolled)
	l, err := early.desk.Invite(t.Context(), "ada", "early")
	early.must(err)
	o, err := early.browser(thief).Begin(t.Context(), l.URL)
	early.must(err)
	early.enrol("ada")
	if _, err := early.browser(thief).Finish(t.Context(), l.URL, o); err == nil {
		t.Error("a race enrolled a second passkey")
	}
	second := w.browser(passkeytest.New())
	second.Confirming = first
	link, err = w.desk.Invite(t.Context(), "ada", "backup")
	w.must(err)
	if _, err := second.Open(t.Context(), link.URL); err != nil {
		t.Errorf("a second passkey, confirmed by the first: %v", err)
	}
	if _, err := second.Open(t.Context(), link.URL); err == nil {
		t.Error("an enrolment link served twice")
	}
	all, err := w.desk.List(t.Context())
	if err != nil || len(all) != 2 || all[1].Label != "backup" {
		t.Fatalf("%+v, %v", all, err)
	}
	w.wantCode("removing one's own", w.desk.Remove(t.Context(), "ada", all[0].ID, ""), sallyport.Denied)
	w.wantCode("no such passkey", w.desk.Remove(t.Context(), "bob", "pk_none", ""), sallyport.NotFound)
	w.must(w.desk.Remove(t.Context(), "bob", all[0].ID, "lost"))
	if _, err := w.browser(first).Open(t.Context(), w.link("ada", w.ticket("x", true))); err == nil {
		t.Error("a removed passkey signed")
	}
	if got := w.changes("passkeys remove"); len(got) != 1 || !strings.Contains(string(got[0]), `"by":"bob"`) {
		t.Errorf("on record: %s", got)
	}
	for _, label := range []string{strings.Repeat("x", 61), "a\x1b[2J", "\u202e"} {
		_, err := w.desk.Invite(t.Context(), "ada", label)
		w.wantCode("label "+label, err, sallyport.Invalid)
	}
	if _, err := w.desk.Invite(t.Context(), "nobody", ""); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("a link for nobody: %v", err)
	}
}

// Who has a passkey uses it before changing who may decide: a password that
// leaked makes no other admin, and removes no passkey.
func TestConfirmed(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	if err := w.desk.Confirmed(t.Context(), "ada"); err != nil {
		t.Errorf("without a passkey: %v", err)
	}
	if _, needed, err := w.desk.AskToConfirm(t.Context(), "ada"); needed || err != nil {
		t.Errorf("without a passkey: %v, %v", needed, err)
	}
	a, b := w.enrol("ada"), w.enrol("bob")
	w.wantCode("with one", w.desk.Confirmed(t.Context(), "ada"), sallyport.Denied)
	link, needed, err := w.desk.AskToConfirm(t.Context(), "ada")
	if !needed || err != nil {
		t.Fatal(needed, err)
	}
	if _, err := w.browser(b).Open(t.Context(), link.URL); err == nil {
		t.Error("bob confirmed for ada")
	}
	skip := w.browser(a)
	skip.Alter = func(m map[string]json.RawMessage) { delete(m, "confirm") }
	if _, err := skip.Open(t.Context(), link.URL); err == nil {
		t.Error("confirmed without an assertion")
	}
	w.wantCode("after both", w.desk.Confirmed(t.Context(), "ada"), sallyport.Denied)
	if _, err := w.browser(a).Open(t.Context(), link.URL); err != nil {
		t.Fatal(err)
	}
	if err := w.desk.Confirmed(t.Context(), "ada"); err != nil {
		t.Errorf("confirmed: %v", err)
	}
	w.wantCode("bob is not", w.desk.Confirmed(t.Context(), "bob"), sallyport.Denied)
	w.pass(5 * time.Minute)
	w.wantCode("five minutes later", w.desk.Confirmed(t.Context(), "ada"), sallyport.Denied)

	// A confirmation is no signature, and no enrolment.
	x := w.ticket("x", true)
	sign := w.link("ada", x)
	confirm, _, err := w.desk.AskToConfirm(t.Context(), "ada")
	w.must(err)
	var answer json.RawMessage
	keep := w.browser(a)
	keep.Alter = func(m map[string]json.RawMessage) { answer = m["confirm"] }
	_, err = keep.Open(t.Context(), confirm.URL)
	w.must(err)
	swap := w.browser(a)
	swap.Alter = func(m map[string]json.RawMessage) { m["sign"] = answer }
	if _, err := swap.Open(t.Context(), sign); err == nil || w.state(x) != sallyport.TicketPending {
		t.Errorf("a confirmation approved a ticket: %v", err)
	}
}

func TestLinks(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	a := w.enrol("ada")
	x := w.ticket("x", true)
	link, _, err := w.desk.AskToSign(t.Context(), "ada", x.ID, "", "")
	w.must(err)
	if got, err := w.desk.LinkState(t.Context(), link.ID); err != nil || got.State != "open" || got.URL != "" {
		t.Errorf("open: %+v, %v", got, err)
	}
	_, err = w.browser(a).Begin(t.Context(), w.base+passkey.PagePath+"#made-up")
	if r, ok := errors.AsType[*passkeytest.Refusal](err); !ok || r.Status != 404 {
		t.Errorf("a made-up token: %v", err)
	}
	bad := w.browser(a)
	bad.Origin = "https://evil.test"
	_, err = bad.Open(t.Context(), link.URL)
	if err == nil {
		t.Fatal("accepted")
	}
	if got, err := w.desk.LinkState(t.Context(), link.ID); err != nil || !strings.Contains(got.Error, "not accepted") {
		t.Errorf("whoever waits is told why: %+v, %v", got, err)
	}
	for range 20 {
		_, err = w.browser(a).Begin(t.Context(), link.URL)
	}
	if r, ok := errors.AsType[*passkeytest.Refusal](err); !ok || r.Status != 429 {
		t.Errorf("the twentieth challenge: %v", err)
	}
	w.pass(10 * time.Minute)
	if got, err := w.desk.LinkState(t.Context(), link.ID); err != nil || got.State != "expired" {
		t.Errorf("expired: %+v, %v", got, err)
	}
	for _, name := range []string{"tkt_none"} {
		_, _, err := w.desk.AskToSign(t.Context(), "ada", name, "", "")
		w.wantCode("no such ticket", err, sallyport.NotFound)
	}
	if rows, err := audit.Search(t.Context(), w.db, audit.Filter{Text: strings.SplitN(link.URL, "#", 2)[1]}, 9); err != nil || len(rows) != 0 {
		t.Errorf("the token is on record: %v, %v", rows, err)
	}
}

// The auditor's check turns red for each thing that could be wrong.
func TestCheckRecord(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	a := w.enrol("ada")
	_, err := w.browser(a).Open(t.Context(), w.link("ada", w.ticket("x", true)))
	w.must(err)
	rows := map[string]*audit.Row{}
	var all []audit.Row
	w.must(w.db.Rows(t.Context(), logOf(w), 0, func(r audit.Row) error { all = append(all, r); return nil }))
	for i := range all {
		var c struct{ Action, Hash string }
		_ = json.Unmarshal(all[i].Payload, &c)
		switch {
		case c.Action == passkey.ActionSign:
			rows["sign"] = &all[i]
		case c.Action == "passkeys add" && strings.Contains(string(all[i].Payload), "public_key"):
			rows["add"] = &all[i]
		case all[i].Kind == sallyport.EntryTicket:
			rows["ticket"] = &all[i]
		}
	}
	if len(rows) != 3 {
		t.Fatalf("rows %v", rows)
	}
	if n, problems, err := passkey.CheckRecord(t.Context(), rowSource(all)); n != 1 || len(problems) != 0 || err != nil {
		t.Fatalf("the control: %d, %v, %v", n, problems, err)
	}
	decision := audit.Row{Kind: sallyport.EntryDecision, Payload: json.RawMessage(`{"ticket":"tkt_x","vote":{"by":"bob","approve":true,"passkey":"pk_none"}}`)}
	removed := audit.Row{Kind: sallyport.EntryAdmin, Time: rows["sign"].Time.Add(-time.Second), Payload: json.RawMessage(`{"action":"passkeys remove","target":"TARGET"}`)}
	var add struct{ Target string }
	w.must(json.Unmarshal(rows["add"].Payload, &add))
	removed.Payload = json.RawMessage(strings.Replace(string(removed.Payload), "TARGET", add.Target, 1))
	for name, tt := range map[string]struct {
		row      string
		old, new string
		more     []audit.Row
	}{
		"another hash":         {row: "sign", old: `"hash":"`, new: `"hash":"0`},
		"another admin":        {row: "sign", old: `"admin":"ada"`, new: `"admin":"bob"`},
		"no signature":         {row: "sign", old: `"signature":"`, new: `"signature":"AA`},
		"unreadable":           {row: "sign", old: `"v":1`, new: `"v":2`},
		"another ticket":       {row: "ticket", old: `"id":"tkt_x"`, new: `"id":"tkt_y"`},
		"another ticket hash":  {row: "ticket", old: `"hash":"`, new: `"hash":"0`},
		"somebody else's key":  {row: "add", old: `"admin":"ada"`, new: `"admin":"bob"`},
		"another key":          {row: "add", old: `"public_key":"p`, new: `"public_key":"o`},
		"removed before":       {more: []audit.Row{removed}},
		"a vote without proof": {more: []audit.Row{decision}},
	} {
		altered := append(append([]audit.Row{}, all...), tt.more...)
		if tt.row != "" {
			for i := range altered {
				if altered[i].Seq == rows[tt.row].Seq {
					before := string(altered[i].Payload)
					altered[i].Payload = json.RawMessage(strings.Replace(before, tt.old, tt.new, 1))
					if string(altered[i].Payload) == before {
						t.Fatalf("%s: nothing to alter in %s", name, before)
					}
				}
			}
		}
		if _, problems, err := passkey.CheckRecord(t.Context(), rowSource(altered)); len(problems) == 0 || err != nil {
			t.Errorf("%s: nobody noticed (%v)", name, err)
		}
	}
}

func logOf(w *world) string {
	logs, err := w.db.Logs(w.Context())
	w.must(err)
	return logs[0].Writer
}

// A rowSource is a record in memory.
type rowSource []audit.Row

func (s rowSource) Logs(context.Context) ([]audit.State, error) {
	return []audit.State{{Writer: "w"}}, nil
}
func (s rowSource) Rows(_ context.Context, _ string, _ int64, fn func(audit.Row) error) error {
	for _, r := range s {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// Where passkeys cannot work, that is said, and is an error if they must.
func TestWherePasskeysWork(t *testing.T) {
	for base, works := range map[string]bool{
		"http://localhost:7450": true, "https://gw.example.com": true, "https://gw.example.com:8443": true, "http://gw.localhost:1": true,
		"http://127.0.0.1:7450": false, "https://10.0.0.1": false, "https://[::1]:7450": false, "http://gw.example.com": false, "nonsense": false, "": false,
	} {
		k, err := passkey.NewKeys(nil, passkey.Enrolled, base)
		if err != nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		err = k.Usable()
		if (err == nil) != works {
			t.Errorf("%s: %v", base, err)
		}
		if e, _ := errors.AsType[*sallyport.Error](err); !works && !strings.Contains(e.Hint, "approvals.url") {
			t.Errorf("%s: no hint: %v", base, err)
		}
		if _, err := passkey.NewKeys(nil, passkey.Required, base); (err == nil) != works {
			t.Errorf("required at %s: %v", base, err)
		}
	}
}

// The page loads nothing from elsewhere, runs no inline code, is framed by
// nobody, and is not served under an address that has no passkeys.
func TestPage(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path, host string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.addr+path, nil)
		w.must(err)
		req.Host = host
		resp, err := client.Do(req)
		w.must(err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		w.must(err)
		return resp, string(b)
	}
	host := strings.TrimPrefix(w.base, "http://")
	for path, want := range map[string]string{"": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"} {
		resp, body := get(passkey.PagePath+path, host)
		h := resp.Header
		if resp.StatusCode != 200 || !strings.HasPrefix(h.Get("Content-Type"), want) || body == "" {
			t.Errorf("%s: %s %s", path, resp.Status, h.Get("Content-Type"))
		}
		csp := h.Get("Content-Security-Policy")
		for _, need := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(csp, need) {
				t.Errorf("%s: policy %q lacks %q", path, csp, need)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, h)
		}
		for _, evil := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=", "style=", "https://", "http://", "localStorage", "document.cookie"} {
			if strings.Contains(body, evil) {
				t.Errorf("%s holds %s", path, evil)
			}
		}
		if strings.Count(body, "<script") > 1 || strings.Contains(body, "<script>") {
			t.Errorf("%s has inline code", path)
		}
	}
	resp, _ := get(passkey.PagePath+"?ticket=tkt_1", w.addr)
	if resp.StatusCode != 307 || resp.Header.Get("Location") != w.base+passkey.PagePath+"?ticket=tkt_1" {
		t.Errorf("by its address: %s, %s", resp.Status, resp.Header.Get("Location"))
	}
	wrong := w.browser(w.enrol("ada"))
	if _, err := wrong.Begin(t.Context(), "http://"+w.addr+passkey.PagePath+"#x"); err == nil {
		t.Error("a ceremony under an address")
	}
	keys, err := passkey.NewKeys(w.db, passkey.Enrolled, "http://127.0.0.1:7450")
	w.must(err)
	rec := httptest.NewRecorder()
	(&passkey.Desk{Tenant: "t", Keys: keys}).Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, passkey.PagePath, nil))
	if rec.Code != 503 || !strings.Contains(rec.Body.String(), "a passkey belongs to a name") {
		t.Errorf("where passkeys cannot work: %d %s", rec.Code, rec.Body)
	}
}

func TestPageRefusesWhatItDoesNotSend(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	for name, tt := range map[string]struct {
		path, kind, body string
		want             int
	}{
		"form":      {"/begin", "application/x-www-form-urlencoded", `{"token":"x"}`, 400},
		"not JSON":  {"/begin", "application/json", `token`, 400},
		"two":       {"/begin", "application/json", `{"token":"x"}{}`, 400},
		"unknown":   {"/begin", "application/json", `{"token":"x","admin":"bob"}`, 400},
		"too large": {"/finish", "application/json", `{"token":"` + strings.Repeat("x", 70_000) + `"}`, 413},
		"no token":  {"/finish", "application/json", `{}`, 404},
	} {
		req := httptest.NewRequest(http.MethodPost, passkey.PagePath+tt.path, strings.NewReader(tt.body))
		req.Host = strings.TrimPrefix(w.base, "http://")
		req.Header.Set("Content-Type", tt.kind)
		rec := httptest.NewRecorder()
		w.desk.Handler().ServeHTTP(rec, req)
		if rec.Code != tt.want {
			t.Errorf("%s: %d %s, want %d", name, rec.Code, rec.Body, tt.want)
		}
	}
}

// Passkeys of another name are of no use here, and do not let a password through.
func TestAnotherName(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	w.must(w.db.PutPasskey(t.Context(), store.Passkey{Tenant: "t", ID: "pk_old", Admin: "ada", RPID: "old.example.com", Credential: json.RawMessage(`{}`)}, "", entry()))
	x := w.ticket("x", true)
	_, err := w.engine.Decide(t.Context(), "t", unsigned(x, "ada", true))
	w.wantCode("with a passkey of another name enrolled", err, sallyport.Denied)
	_, _, err = w.desk.AskToSign(t.Context(), "ada", x.ID, "", "")
	if err == nil || !strings.Contains(err.Error(), "old.example.com") {
		t.Errorf("signing: %v", err)
	}
}

// What cannot be a signature is refused, and nothing panics over it.
func FuzzSigned(f *testing.F) {
	f.Add([]byte(`{"v":1,"nonce":"AA","credential_id":"AA","client_data":"e30","authenticator_data":"AA","signature":"AA"}`))
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := passkey.ParseSigned(raw)
		if err == nil && s.Verify() == nil {
			t.Errorf("%s verifies", raw)
		}
	})
}
