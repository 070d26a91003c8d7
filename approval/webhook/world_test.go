package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/webhook"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/redact"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
	"sallyport.dev/sallyport/test/await"
)

// A world is a gateway as far as webhooks need one: real store, engine, masks.
type world struct {
	*testing.T
	dir    string
	db     *sqlite.Store
	engine *approval.Engine
	mu     sync.Mutex
	time   time.Time
}

// vault is secrets by name.
type vault map[string]string

func (v vault) Resolve(_ context.Context, _, name string) ([]byte, error) {
	if s, ok := v[name]; ok {
		return []byte(s), nil
	}
	return nil, &sallyport.Error{Code: sallyport.NotFound, Message: "there is no secret " + name}
}

var secrets = vault{
	"out": webhook.NewSecret(), "in": webhook.NewSecret(), "in2": webhook.NewSecret(), "stranger": webhook.NewSecret(), "bad": "hunter2",
}

var mask = redact.New(redact.Options{})

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

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), time: time.Now()}
	w.db = openStore(t, w.dir, w.now)
	e := sallyport.Entry{Tenant: "t", Kind: sallyport.EntryAdmin, Payload: []byte(`{}`)}
	for _, name := range []string{"alice", "bob"} {
		w.must(w.db.PutAdmin(t.Context(), sallyport.Admin{Tenant: "t", Name: name}, e))
	}
	w.engine = approval.New(w.db, w.db, approval.Options{Clock: w.now})
	return w
}

func openStore(t *testing.T, dir string, now func() time.Time) *sqlite.Store {
	t.Helper()
	key, err := audit.LoadKey(dir)
	if err != nil {
		if key, err = audit.CreateKey(dir); err != nil {
			t.Fatal(err)
		}
	}
	seal, err := audit.NewSealer(key, "")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(filepath.Join(dir, "db"), seal, relational.WithClock(now))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

const apiKey = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"

func (w *world) ticket(key string, risk sallyport.Risk) sallyport.Ticket {
	w.Helper()
	args := json.RawMessage(`{"note":"` + key + `\u202e","password":"hunter2secret","token":"` + apiKey + `"}`)
	b := sallyport.Binding{Tenant: "t", Principal: "agent", OnBehalfOf: "carol", Tool: "pay__send", ToolVersion: "1", Args: args}
	at := w.now()
	if real := time.Now(); real.After(at) { // an outbox may have that clock
		at = real
	}
	t := sallyport.Ticket{CreatedAt: at, ID: "tkt_" + key, CallID: key, Key: key, Binding: b, Hash: b.Hash(), Risk: risk, State: sallyport.TicketPending, DecideBy: w.now().Add(time.Hour)}
	t, err := w.db.Open(w.Context(), t, sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay__send", Key: key}, "f",
		sallyport.Entry{Tenant: "t", Kind: sallyport.EntryTicket, CallID: key, Payload: []byte(`{}`)})
	w.must(err)
	return t
}

func critical() sallyport.Risk {
	return sallyport.Risk{Level: sallyport.Critical, Reasons: []string{"sends money with " + apiKey}, Objects: []string{"account"},
		Parts: []sallyport.Part{{Path: "/token", Label: "token", Text: apiKey}}, Amounts: []sallyport.Amount{{Value: "82000.10", Currency: "EUR", Recipient: "ACME\x1b[2J"}}}
}

func (w *world) state(id string) sallyport.TicketState {
	w.Helper()
	t, err := w.db.Ticket(w.Context(), "t", id)
	w.must(err)
	return t.State
}

func (w *world) changes(action string) (out []string) {
	w.Helper()
	rows, err := audit.Search(w.Context(), w.db, audit.Filter{Kind: sallyport.EntryAdmin, Text: `"action":"` + action + `"`}, 1000)
	w.must(err)
	for _, r := range rows {
		out = append(out, string(r.Payload))
	}
	return out
}

// A receiver is another tool, at the end of a webhook.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	answer func(n int, w http.ResponseWriter) // for the nth request; nil is 204
}

type received struct {
	http.Header
	body string
	at   time.Time
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	r := &receiver{answer: answer}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = nil
	t.Cleanup(func() { r.Close() })
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	b, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.got = append(r.got, received{req.Header.Clone(), string(b), time.Now()})
	n := len(r.got)
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(n, w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received{}, r.got...)
}

// ids are the webhook-ids that came, each once, in the order of their first coming.
func (r *receiver) ids() (ids []string) {
	seen := map[string]bool{}
	for _, g := range r.all() {
		if id := g.Get("Webhook-Id"); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// run runs an outbox until the test ends, and quickly.
func (w *world) run(o webhook.Options, hooks ...webhook.Hook) *webhook.Outbox {
	w.Helper()
	if o.Poll == 0 {
		o.Poll = 5 * time.Millisecond
	}
	if o.First == 0 {
		o.First = time.Millisecond
	}
	b := webhook.NewOutbox("t", hooks, "http://localhost:7450/console/passkeys", w.db, w.db, secrets, mask, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	w.Cleanup(func() { cancel(); <-done })
	for _, h := range hooks { // it begins with what happens from now on
		w.eventually("the outbox of "+h.Name, func() bool {
			_, at, err := w.db.Swept(w.Context(), "t", h.Name)
			return err == nil && !at.IsZero()
		})
	}
	return b
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	await.That(w, what, ok)
}

func (w *world) counts() map[string]int {
	w.Helper()
	all, err := w.db.CountNotices(w.Context(), "t")
	w.must(err)
	out := map[string]int{}
	for _, c := range all {
		out[c.Hook+" "+c.State] = c.Count
	}
	return out
}

func (w *world) lastError(hook string) string {
	w.Helper()
	all, err := w.db.CountNotices(w.Context(), "t")
	w.must(err)
	for _, c := range all {
		if c.Hook == hook && c.State != store.NoticeSent {
			return c.Error
		}
	}
	return ""
}

func contains(s string, all ...string) bool {
	for _, a := range all {
		if !strings.Contains(s, a) {
			return false
		}
	}
	return true
}
