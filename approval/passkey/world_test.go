package passkey_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/approval/passkey/passkeytest"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/audit/audittest"
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
	var err error
	w.db, err = sqlite.Open(filepath.Join(t.TempDir(), "db"), audittest.Sealer(t), relational.WithClock(w.now))
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
