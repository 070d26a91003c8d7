package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/webhook"
)

// signed is the specification in three lines, apart from the code under test.
func signed(secret, id string, at int64, body string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// A call is a decision as another tool sends it.
type call struct {
	secret    string
	id        string
	at        int64
	body      string
	signature string // "" is the right one
	alter     func(r *http.Request)
}

func (w *world) inbox(hooks ...webhook.Hook) *webhook.Inbox {
	return webhook.NewInbox("t", hooks, w.db, w.engine, secrets, w.now, nil)
}

func (w *world) send(in *webhook.Inbox, c call) (int, string) {
	w.Helper()
	if c.signature == "" {
		c.signature = signed(secrets[c.secret], c.id, c.at, c.body)
	}
	r := httptest.NewRequestWithContext(w.Context(), http.MethodPost, webhook.DecisionsPath, strings.NewReader(c.body))
	r.Header.Set("webhook-id", c.id)
	r.Header.Set("webhook-timestamp", fmt.Sprint(c.at))
	r.Header.Set("webhook-signature", c.signature)
	if c.alter != nil {
		c.alter(r)
	}
	rec := httptest.NewRecorder()
	in.ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

func body(t sallyport.Ticket, decision, by string) string {
	b, _ := json.Marshal(map[string]string{"ticket": t.ID, "hash": t.Hash, "decision": decision, "by": by, "reason": "seen in chat"})
	return string(b)
}

func chat() webhook.Hook {
	return webhook.Hook{Name: "chat", Decisions: &webhook.Decisions{Secret: "in", Users: map[string]string{"U1": "alice", "U9": "nobody"},
		Approve: true, Reject: true, Risk: sallyport.Critical}}
}

// The first row is the control; each other one changes one thing about it and
// must be refused, with its status, on record, and without a decision.
func TestDecisions(t *testing.T) {
	irreversible := func(r *sallyport.Risk) { r.Irreversible = true }
	for _, tt := range []struct {
		name   string
		risk   func(r *sallyport.Risk)
		hook   func(h *webhook.Hook)
		change func(w *world, t sallyport.Ticket, c *call)
		want   int
		said   string
	}{
		{name: "control", want: 200},
		{name: "control: rejected", want: 200, change: func(_ *world, t sallyport.Ticket, c *call) { c.body = body(t, "reject", "U1") }},
		{name: "control: two signatures, one of them right", want: 200, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.signature = signed(secrets["stranger"], c.id, c.at, c.body) + " v1a,x " + signed(secrets["in"], c.id, c.at, c.body)
		}},
		{name: "control: irreversible, and allowed", want: 200, risk: irreversible, hook: func(h *webhook.Hook) { h.Decisions.Irreversible = true }},
		{name: "control: as old as it may be", want: 200, change: func(_ *world, _ sallyport.Ticket, c *call) { c.at -= 299 }},

		{name: "wrong secret", want: 401, said: "by no webhook", change: func(_ *world, _ sallyport.Ticket, c *call) { c.secret = "stranger" }},
		{name: "the secret of what goes out", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) { c.secret = "out" }},
		{name: "altered body", want: 401, change: func(_ *world, t sallyport.Ticket, c *call) {
			c.signature = signed(secrets["in"], c.id, c.at, c.body)
			c.body = strings.Replace(c.body, "seen", "been", 1)
		}},
		{name: "one more space", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.signature = signed(secrets["in"], c.id, c.at, c.body)
			c.body += " "
		}},
		{name: "another id than was signed", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.signature = signed(secrets["in"], c.id, c.at, c.body)
			c.id = "msg_fresh"
		}},
		{name: "another time than was signed", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.signature = signed(secrets["in"], c.id, c.at, c.body)
			c.at++
		}},
		{name: "old", want: 401, said: "5m0s old", change: func(_ *world, _ sallyport.Ticket, c *call) { c.at -= 302 }},
		{name: "from the future", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) { c.at += 302 }},
		{name: "no signature", want: 401, said: "webhook-signature is missing", change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.alter = func(r *http.Request) { r.Header.Del("webhook-signature") }
		}},
		{name: "no id", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.alter = func(r *http.Request) { r.Header.Del("webhook-id") }
		}},
		{name: "no time", want: 401, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.alter = func(r *http.Request) { r.Header.Del("webhook-timestamp") }
		}},
		{name: "two ids", want: 400, said: "twice", change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.alter = func(r *http.Request) { r.Header.Add("webhook-id", "msg_other") }
		}},
		{name: "a dot in the id", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.id = "msg.1" }},
		{name: "signature of another version only", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.signature = "v2,AAAA" }},
		{name: "signature cut", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.signature = "v1,AAAA" }},

		{name: "swapped hash", want: 409, said: "something else", change: func(w *world, t sallyport.Ticket, c *call) {
			c.body = strings.Replace(c.body, t.Hash, w.ticket("other", critical()).Hash, 1)
		}},
		{name: "beginning of the hash", want: 400, change: func(_ *world, t sallyport.Ticket, c *call) { c.body = strings.Replace(c.body, t.Hash, t.Hash[:12], 1) }},
		{name: "no hash", want: 400, change: func(_ *world, t sallyport.Ticket, c *call) { c.body = strings.Replace(c.body, t.Hash, "", 1) }},
		{name: "unmapped user", want: 403, said: "nobody for the user", change: func(_ *world, t sallyport.Ticket, c *call) { c.body = body(t, "approve", "U2") }},
		{name: "an admin's own name", want: 403, change: func(_ *world, t sallyport.Ticket, c *call) { c.body = body(t, "approve", "bob") }},
		{name: "mapped to nobody", want: 403, said: "only an admin decides", change: func(_ *world, t sallyport.Ticket, c *call) { c.body = body(t, "approve", "U9") }},
		{name: "irreversible", want: 403, said: "cannot be undone", risk: irreversible},
		{name: "too risky", want: 403, said: "up to high", hook: func(h *webhook.Hook) { h.Decisions.Risk = sallyport.High }},
		{name: "may only reject", want: 403, said: "may not approve", hook: func(h *webhook.Hook) { h.Decisions.Approve = false }},
		{name: "may only approve", want: 403, said: "may not reject", hook: func(h *webhook.Hook) { h.Decisions.Reject = false },
			change: func(_ *world, t sallyport.Ticket, c *call) { c.body = body(t, "reject", "U1") }},
		{name: "may decide nothing", want: 401, hook: func(h *webhook.Hook) { h.Decisions = nil }},
		{name: "no such ticket", want: 404, change: func(_ *world, t sallyport.Ticket, c *call) { c.body = strings.Replace(c.body, t.ID, "tkt_none", 1) }},
		{name: "decided before", want: 409, said: "already rejected", change: func(w *world, t sallyport.Ticket, _ *call) {
			_, err := w.engine.Decide(w.Context(), "t", sallyport.Decision{Ticket: t.ID, By: "bob"})
			w.must(err)
		}},
		{name: "too long for a card", want: 400, said: "too long to be shown", risk: func(r *sallyport.Risk) {
			for i := range 60 {
				r.Reasons = append(r.Reasons, fmt.Sprint("reason ", i))
			}
		}},
		{name: "not JSON", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body = "approve" }},
		{name: "several tickets", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body = "[" + c.body + "," + c.body + "]" }},
		{name: "two values", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body += c.body }},
		{name: "unknown name", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body = `{"tickets":["x"],` + c.body[1:] }},
		{name: "a name twice", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body = `{"by":"U2",` + c.body[1:] }},
		{name: "a name in other case", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body = strings.Replace(c.body, `"by"`, `"By"`, 1) }},
		{name: "neither approve nor reject", want: 400, change: func(_ *world, t sallyport.Ticket, c *call) { c.body = body(t, "Approve", "U1") }},
		{name: "not UTF-8", want: 400, change: func(_ *world, _ sallyport.Ticket, c *call) { c.body = strings.Replace(c.body, "seen", "s\xffn", 1) }},
		{name: "a long reason", want: 400, said: "at most 2000", change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.body = strings.Replace(c.body, "seen", strings.Repeat("x", 2500), 1)
		}},
		{name: "too large", want: 413, change: func(_ *world, _ sallyport.Ticket, c *call) {
			c.body = strings.Replace(c.body, "seen", strings.Repeat("x", 17<<10), 1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			risk, h := critical(), chat()
			if tt.risk != nil {
				tt.risk(&risk)
			}
			if tt.hook != nil {
				tt.hook(&h)
			}
			tk := w.ticket("k", risk)
			c := call{secret: "in", id: "msg_1", at: w.now().Unix(), body: body(tk, "approve", "U1")}
			if tt.change != nil {
				tt.change(w, tk, &c)
			}
			before := w.state(tk.ID)
			code, said := w.send(w.inbox(h), c)
			if code != tt.want || !strings.Contains(said, tt.said) {
				t.Fatalf("%d %s, want %d with %q", code, said, tt.want, tt.said)
			}
			refused := w.changes("webhooks refuse")
			if code == 200 {
				want := map[bool]sallyport.TicketState{true: sallyport.TicketApproved, false: sallyport.TicketRejected}[strings.Contains(c.body, `"approve"`)]
				got, err := w.db.Ticket(t.Context(), "t", tk.ID)
				w.must(err)
				if got.State != want || got.DecidedBy != "alice" || got.Reason != "seen in chat" || len(refused) != 0 {
					t.Errorf("%+v; refused %v", got, refused)
				}
				if taken := w.changes("webhooks decide"); len(taken) != 1 || !contains(taken[0], `"webhook:chat"`, `"U1"`, `"alice"`, `"msg_1"`) {
					t.Errorf("on record: %v", taken)
				}
				return
			}
			if got := w.state(tk.ID); got != before {
				t.Errorf("refused, and yet the ticket is %s", got)
			}
			if len(refused) != 1 || !contains(refused[0], `"code"`, `"remote":"192.0.2.1"`) {
				t.Errorf("on record: %v", refused)
			}
		})
	}
}

// A message serves once, also where two come at once and after a restart; the
// same message to another hook's inbox is nobody's.
func TestReplay(t *testing.T) {
	w := newWorld(t)
	one, two := w.ticket("one", critical()), w.ticket("two", critical())
	in := w.inbox(chat())
	c := call{secret: "in", id: "msg_1", at: w.now().Unix(), body: body(one, "approve", "U1")}
	if code, said := w.send(in, c); code != 200 {
		t.Fatal(code, said)
	}
	if code, said := w.send(in, c); code != 409 || !strings.Contains(said, "came before") {
		t.Errorf("again: %d %s", code, said)
	}
	if code, _ := w.send(w.inbox(chat()), c); code != 409 {
		t.Errorf("again, after a restart: %d", code)
	}
	c.body = body(two, "approve", "U1") // the same id for something else
	if code, _ := w.send(in, c); code != 409 || w.state(two.ID) != sallyport.TicketPending {
		t.Errorf("the id again, for another ticket: %d, %s", code, w.state(two.ID))
	}
	var won atomic.Int64
	var wg sync.WaitGroup
	c.id = "msg_2"
	for range 8 {
		wg.Go(func() {
			if code, _ := w.send(in, c); code == 200 {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("eight at once: %d were taken", won.Load())
	}
	// Without the memory of ids the second one would pass: that it is the
	// memory, and not the ticket's state, which stops it.
	three := w.ticket("three", critical())
	c = call{secret: "in", id: "msg_3", at: w.now().Unix(), body: strings.Replace(body(three, "approve", "U1"), "U1", "U2", 1)}
	if code, _ := w.send(in, c); code != 403 {
		t.Fatal(code)
	}
	if code, _ := w.send(in, c); code != 409 {
		t.Errorf("a refused message, again: %d", code)
	}
	w.must(w.db.ForgetMessage(t.Context(), "t", "chat", "msg_3"))
	if code, _ := w.send(in, c); code != 403 {
		t.Errorf("forgotten, and again: %d", code)
	}
}

// Whose word it is, the secret says.
func TestHooksAreApart(t *testing.T) {
	w := newWorld(t)
	other := webhook.Hook{Name: "mail", Decisions: &webhook.Decisions{Secret: "in2", Users: map[string]string{"U1": "bob"}, Reject: true, Risk: sallyport.Critical}}
	in := w.inbox(chat(), other)
	tk := w.ticket("k", critical())
	c := call{secret: "in2", id: "msg_1", at: w.now().Unix(), body: body(tk, "approve", "U1")}
	if code, said := w.send(in, c); code != 403 || !strings.Contains(said, "mail may not approve") {
		t.Errorf("mail may only reject: %d %s", code, said)
	}
	c.secret = "in" // its own ids
	if code, said := w.send(in, c); code != 200 {
		t.Errorf("chat: %d %s", code, said)
	}
	if got, _ := w.db.Ticket(t.Context(), "t", tk.ID); got.DecidedBy != "alice" {
		t.Errorf("decided by %s", got.DecidedBy)
	}
	other.Decisions.Secret = "in"
	if code, said := w.send(w.inbox(chat(), other), call{secret: "in", id: "msg_2", at: w.now().Unix(), body: c.body}); code != 401 || !strings.Contains(said, "share") {
		t.Errorf("one secret for two hooks: %d %s", code, said)
	}
	for _, missing := range []string{"bad", "none"} {
		h := chat()
		h.Decisions.Secret = missing
		if code, _ := w.send(w.inbox(h), call{secret: missing, id: "msg_3", at: w.now().Unix(), body: c.body}); code != 401 {
			t.Errorf("with the secret %s: %d", missing, code)
		}
		if h.Missing(t.Context(), "t", secrets) == nil {
			t.Errorf("nobody says that the secret %s cannot be used", missing)
		}
	}
	if h := chat(); h.Missing(t.Context(), "t", secrets) != nil {
		t.Error("the control: a secret that can be used")
	}
}

// The engine's own rules hold for a webhook, too: an approver who must sign is
// not replaced by one.
func TestWebhookIsNoSignature(t *testing.T) {
	w := newWorld(t)
	risk := critical()
	risk.Irreversible = true
	h := chat()
	h.Decisions.Irreversible = true
	send := func(engine *approval.Engine, id string) (int, string) {
		tk := w.ticket(id, risk)
		return w.send(webhook.NewInbox("t", []webhook.Hook{h}, w.db, engine, secrets, w.now, nil),
			call{secret: "in", id: id, at: w.now().Unix(), body: body(tk, "approve", "U1")})
	}
	if code, said := send(approval.New(w.db, w.db, approval.Options{Clock: w.now, Signatures: mustSign{}}), "signed"); code != 403 || !strings.Contains(said, "sign it") {
		t.Errorf("%d %s", code, said)
	}
	if code, said := send(w.engine, "unsigned"); code != 200 {
		t.Errorf("the control: %d %s", code, said)
	}
}

// A flood is slowed down, and told as a number instead of filling the record.
func TestFlood(t *testing.T) {
	w := newWorld(t)
	in := w.inbox(chat())
	tk := w.ticket("k", critical())
	c := call{secret: "stranger", id: "msg_1", at: w.now().Unix(), body: body(tk, "approve", "U1")}
	codes := map[int]int{}
	for range 200 {
		code, _ := w.send(in, c)
		codes[code]++
	}
	if codes[401] == 0 || codes[429] < 100 || codes[401]+codes[429] != 200 {
		t.Errorf("%v", codes)
	}
	if n := len(w.changes("webhooks refuse")); n != codes[401] {
		t.Errorf("%d on record for %d refusals that were answered", n, codes[401])
	}
	w.pass(time.Minute)
	w.send(in, c)
	if last := w.changes("webhooks refuse")[0]; !strings.Contains(last, fmt.Sprintf(`"unrecorded":%d`, codes[429])) {
		t.Errorf("the flood is not told: %s", last)
	}
	c.secret = "in"
	if code, said := w.send(in, c); code != 200 {
		t.Errorf("afterwards: %d %s", code, said)
	}
}
