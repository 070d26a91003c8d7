package passkey_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/approval/passkey/passkeytest"
)

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
