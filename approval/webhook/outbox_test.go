package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval/webhook"
)

// mustSign is a gateway on which everybody signs.
type mustSign struct{}

func (mustSign) Check(context.Context, sallyport.Ticket, sallyport.Decision) error {
	return &sallyport.Error{Code: sallyport.Denied, Message: "sign it"}
}

func hook(name, url string, events ...string) webhook.Hook {
	return webhook.Hook{Name: name, URL: url, Secret: "out", Events: events}
}

// What happens is told: signed, masked, once, and with what a decision needs.
func TestTold(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, nil)
	r.Start()
	before := w.ticket("before", critical())
	w.pass(2 * time.Minute)
	w.run(webhook.Options{Clock: w.now}, hook("chat", r.URL+"/hook"))
	tk := w.ticket("k", critical())
	w.eventually("opened", func() bool { return len(r.all()) == 1 })
	_, err := w.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: tk.ID, By: "alice", Approve: true, Reason: "paid " + apiKey})
	w.must(err)
	w.eventually("decided", func() bool { return len(r.all()) == 2 })
	other := w.ticket("w", critical())
	_, err = w.engine.Withdraw(t.Context(), sallyport.Principal{Tenant: "t", ID: "agent"}, other.ID, "")
	w.must(err)
	w.eventually("opened and withdrawn", func() bool { return len(r.all()) == 4 })
	if got := r.ids(); !slices.Equal(got, []string{"msg_tkt_k_opened", "msg_tkt_k_decided", "msg_tkt_w_opened", "msg_tkt_w_withdrawn"}) {
		t.Errorf("told: %v", got)
	}
	for _, g := range r.all() {
		at, err := strconv.ParseInt(g.Get("Webhook-Timestamp"), 10, 64)
		if err != nil || g.Get("Webhook-Signature") != signed(secrets["out"], g.Get("Webhook-Id"), at, g.body) {
			t.Errorf("the signature of %s is wrong", g.body)
		}
		if contains(g.body, before.ID) {
			t.Errorf("what happened before the webhook was there is told: %s", g.body)
		}
		for _, secret := range []string{apiKey, "hunter2secret", "\u202e", "\\u001b", secrets["out"]} {
			if contains(g.body, secret) {
				t.Errorf("%q left the gateway in %s", secret, g.body)
			}
		}
	}
	if !contains(r.all()[0].body, `\\u202e`) { // the backslash is text
		t.Errorf("what does not show is not told either: %s", r.all()[0].body)
	}
	var m struct {
		Type      string
		ID        string
		DecideURL string `json:"decide_url"`
		Ticket    struct {
			ID, Hash, Tool, Agent, Text, State string
			OnBehalfOf                         string `json:"on_behalf_of"`
			Risk                               sallyport.Risk
			Parts                              []sallyport.Part
			Amounts                            []sallyport.Amount
			DecideBy                           time.Time `json:"decide_by"`
			Demands                            []any
			DecidedBy                          string `json:"decided_by"`
		}
	}
	w.must(json.Unmarshal([]byte(r.all()[0].body), &m))
	k := m.Ticket
	if m.Type != "opened" || m.ID != "msg_tkt_k_opened" || m.DecideURL != "http://localhost:7450/console/passkeys?ticket=tkt_k" || k.ID != tk.ID || k.Hash != tk.Hash ||
		k.State != "pending" || k.Tool != "pay__send" || k.Agent != "agent" || k.OnBehalfOf != "carol" || k.Risk.Level != sallyport.Critical || len(k.Risk.Reasons) != 1 ||
		len(k.Parts) != 1 || len(k.Amounts) != 1 || k.Amounts[0].Value != "82000.10" || k.Demands == nil || !k.DecideBy.Equal(tk.DecideBy) || !contains(k.Text, "tkt_k PENDING", "pay__send", tk.Hash) {
		t.Errorf("%+v", m)
	}
	w.must(json.Unmarshal([]byte(r.all()[1].body), &m))
	if m.Type != "decided" || m.Ticket.State != "approved" || m.Ticket.DecidedBy != "alice" {
		t.Errorf("%+v", m)
	}
}

// Nobody is told what nobody asked for.
// A new webhook is told nothing of tickets that were there before it, neither
// that they were opened a moment ago nor what becomes of them.
func TestNewWebhookIsToldOfNewTickets(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, nil)
	r.Start()
	old, older := w.ticket("old", critical()), w.ticket("older", critical())
	w.decide(older.ID)
	w.pass(30 * time.Second)
	w.run(webhook.Options{Clock: w.now}, hook("chat", r.URL+"/hook"))
	w.pass(time.Second)
	w.decide(old.ID)
	young := w.ticket("young", critical())
	w.decide(young.ID)
	w.eventually("the new ticket", func() bool { return len(r.all()) >= 2 })
	time.Sleep(50 * time.Millisecond) // ten looks
	got := r.ids()
	slices.Sort(got) // messages that are sent at once may overtake each other
	if !slices.Equal(got, []string{"msg_tkt_young_decided", "msg_tkt_young_opened"}) {
		t.Errorf("told: %v", got)
	}
}

// A clock that was three days ahead is set back: tickets are told from then on,
// too, and what waits for its next try does not wait for days.
func TestClockIsSetBack(t *testing.T) {
	w := newWorld(t)
	var down atomic.Bool
	r := newReceiver(t, func(_ int, rw http.ResponseWriter) { rw.WriteHeader(map[bool]int{false: 204, true: 500}[down.Load()]) })
	r.Start()
	w.pass(72 * time.Hour)
	w.run(webhook.Options{Clock: w.now}, hook("chat", r.URL+"/hook"))
	w.ticket("ahead", critical())
	w.eventually("told by the clock that is ahead", func() bool { return len(r.all()) == 1 })
	down.Store(true)
	w.ticket("waiting", critical())
	w.eventually("tried once", func() bool { return contains(w.lastError("chat"), "500") })
	w.pass(-72 * time.Hour)
	down.Store(false)
	tk := w.ticket("back", critical())
	w.decide(tk.ID)
	w.eventually("told after the clock is set back", func() bool {
		got := r.ids()
		return slices.Contains(got, "msg_tkt_back_opened") && slices.Contains(got, "msg_tkt_back_decided") && len(r.all()) == 5 // waiting came twice
	})
}

func (w *world) decide(id string) {
	w.Helper()
	_, err := w.engine.Decide(w.Context(), "t", sallyport.Decision{Ticket: id, By: "alice", Approve: true})
	w.must(err)
}

func TestEventsAreChosen(t *testing.T) {
	w := newWorld(t)
	some, all := newReceiver(t, nil), newReceiver(t, nil)
	some.Start()
	all.Start()
	w.run(webhook.Options{}, hook("some", some.URL, "decided"), hook("all", all.URL))
	tk := w.ticket("k", critical())
	_, err := w.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: tk.ID, By: "alice"})
	w.must(err)
	w.eventually("all", func() bool { return len(all.ids()) == 2 })
	w.eventually("some", func() bool { return len(some.ids()) == 1 })
	if got := some.ids(); !slices.Equal(got, []string{"msg_tkt_k_decided"}) {
		t.Errorf("told: %v", got)
	}
}

// A receiver that fails gets the same message again, under the same id and a
// fresh signature; one that is down holds up no other.
func TestRetry(t *testing.T) {
	w := newWorld(t)
	flaky := newReceiver(t, func(n int, rw http.ResponseWriter) {
		if n <= 3 {
			rw.WriteHeader([]int{500, 429, 404}[n-1])
		}
	})
	flaky.Start()
	down := newReceiver(t, nil) // never started: nothing listens
	fine := newReceiver(t, nil)
	fine.Start()
	w.run(webhook.Options{}, hook("flaky", flaky.URL), hook("down", "http://"+down.Listener.Addr().String()), hook("fine", fine.URL))
	down.Listener.Close()
	w.ticket("k", critical())
	w.eventually("fine", func() bool { return len(fine.all()) == 1 })
	w.eventually("flaky", func() bool { return w.counts()["flaky sent"] == 1 })
	got := flaky.all()
	if len(got) != 4 || len(flaky.ids()) != 1 {
		t.Fatalf("%d tries of %v", len(got), flaky.ids())
	}
	for _, g := range got {
		if g.body != got[0].body {
			t.Errorf("another body: %s", g.body)
		}
	}
	if c := w.counts(); c["down waiting"] != 1 || c["fine sent"] != 1 || !contains(w.lastError("down"), "refused") {
		t.Errorf("%v, %s", c, w.lastError("down"))
	}
}

// What nobody takes is given up, seen, and can be sent again.
func TestDeadLetters(t *testing.T) {
	w := newWorld(t)
	fail := true
	r := newReceiver(t, func(_ int, rw http.ResponseWriter) {
		if fail {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	r.Start()
	b := w.run(webhook.Options{Clock: w.now}, hook("chat", r.URL))
	w.ticket("k", critical())
	w.eventually("tried", func() bool { return len(r.all()) > 0 })
	w.pass(25 * time.Hour)
	w.eventually("given up", func() bool { return w.counts()["chat dead"] == 1 })
	if e := w.lastError("chat"); e != "it answered 500" {
		t.Errorf("why: %s", e)
	}
	if err := b.Probe(t.Context(), "chat"); sallyport.CodeOf(err) != sallyport.Upstream {
		t.Errorf("probe: %v", err)
	}
	r.mu.Lock()
	fail = false
	r.mu.Unlock()
	if n, err := b.Retry(t.Context(), "chat", "uid:0"); n != 1 || err != nil {
		t.Errorf("retry: %d, %v", n, err)
	}
	w.eventually("sent", func() bool { return w.counts()["chat sent"] == 1 })
	if err := b.Probe(t.Context(), "chat"); err != nil {
		t.Errorf("probe: %v", err)
	}
	if last := r.all()[len(r.all())-1]; !contains(last.body, `"type":"test"`) {
		t.Errorf("the probe: %s", last.body)
	}
	if _, err := b.Retry(t.Context(), "none", ""); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("no such webhook: %v", err)
	}
	if got := w.changes("webhooks retry"); len(got) != 1 {
		t.Errorf("on record: %v", got)
	}
}

// A receiver that says "gone" is believed at once.
func TestGone(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, func(_ int, rw http.ResponseWriter) { rw.WriteHeader(http.StatusGone) })
	r.Start()
	w.run(webhook.Options{}, hook("chat", r.URL))
	w.ticket("k", critical())
	w.eventually("given up", func() bool { return w.counts()["chat dead"] == 1 })
	if n := len(r.all()); n != 1 {
		t.Errorf("%d tries", n)
	}
}

// A message goes where the operator said, and nowhere else.
func TestRedirectsAreNotFollowed(t *testing.T) {
	w := newWorld(t)
	elsewhere := newReceiver(t, nil)
	elsewhere.Start()
	r := newReceiver(t, func(_ int, rw http.ResponseWriter) {
		rw.Header().Set("Location", elsewhere.URL)
		rw.WriteHeader(http.StatusTemporaryRedirect)
	})
	r.Start()
	w.run(webhook.Options{}, hook("chat", r.URL))
	w.ticket("k", critical())
	w.eventually("tried twice", func() bool { return len(r.all()) > 1 })
	if len(elsewhere.all()) != 0 || !contains(w.lastError("chat"), "redirects are not followed") {
		t.Errorf("followed, or not said: %s", w.lastError("chat"))
	}
}

// Who cannot prove a name is told nothing; the control is the same server with
// its certificate trusted.
func TestCertificatesAreChecked(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		w := newWorld(t)
		r := newReceiver(t, nil)
		r.StartTLS()
		o := webhook.Options{}
		if trusted {
			pool := x509.NewCertPool()
			pool.AddCert(r.Certificate())
			o.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		}
		w.run(o, hook("chat", r.URL))
		w.ticket("k", critical())
		if trusted {
			w.eventually("sent", func() bool { return w.counts()["chat sent"] == 1 })
			continue
		}
		w.eventually("refused", func() bool { return contains(w.lastError("chat"), "certificate") })
		if len(r.all()) != 0 {
			t.Error("told to somebody without a certificate")
		}
	}
}

// A missing secret is waited for, not sent without.
func TestNoSecretNoMessage(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, nil)
	r.Start()
	h := hook("chat", r.URL)
	h.Secret = "none"
	w.run(webhook.Options{}, h)
	w.ticket("k", critical())
	w.eventually("said", func() bool { return contains(w.lastError("chat"), "no secret none") })
	if len(r.all()) != 0 {
		t.Error("sent unsigned")
	}
}

// An outbox is bounded; what finds no place is not lost silently.
func TestFullOutbox(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, func(_ int, rw http.ResponseWriter) { rw.WriteHeader(500) })
	r.Start()
	w.run(webhook.Options{Waiting: 3, First: time.Hour}, hook("chat", r.URL, "opened"))
	for i := range 5 {
		w.ticket(fmt.Sprint(i), critical())
	}
	w.eventually("all are there", func() bool { c := w.counts(); return c["chat waiting"]+c["chat dead"] == 5 })
	if c := w.counts(); c["chat waiting"] != 3 || c["chat dead"] != 2 {
		t.Errorf("%v", c)
	}
}

// A cut text says so, and is still UTF-8 and JSON.
func TestLongTickets(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, nil)
	r.Start()
	w.run(webhook.Options{}, hook("chat", r.URL))
	risk := critical()
	for range 200 {
		risk.Reasons = append(risk.Reasons, strings.Repeat("ü", 5000))
	}
	w.ticket("k", risk)
	w.eventually("told", func() bool { return len(r.all()) == 1 })
	var m struct {
		Ticket struct {
			Text string
			Cut  bool `json:"text_cut"`
			Risk struct{ Reasons []string }
		}
	}
	got := r.all()[0].body
	if err := json.Unmarshal([]byte(got), &m); err != nil || !m.Ticket.Cut || len(m.Ticket.Risk.Reasons) != 50 || len(got) > 100<<10 {
		t.Errorf("%d bytes, %v, %d reasons", len(got), err, len(m.Ticket.Risk.Reasons))
	}
}
