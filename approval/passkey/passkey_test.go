package passkey_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/approval/passkey/passkeytest"
)

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
