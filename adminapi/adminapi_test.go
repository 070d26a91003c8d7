package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// desk is every engine of this door, by hand.
type desk struct {
	mu       sync.Mutex
	logins   map[Peer]string
	requests []sallyport.Request
	decided  []sallyport.Decision
	notes    []string

	unconfirmed map[string]bool // admins who must use a passkey first
	answer      error
}

func (d *desk) Await(_ context.Context, req sallyport.Request, _ time.Duration, _ func(*sallyport.Error)) (sallyport.Result, error) {
	d.requests = append(d.requests, req)
	return sallyport.Result{CallID: "call_1", Content: json.RawMessage(`{"content":[]}`)}, d.answer
}
func (d *desk) Explain(_ context.Context, req sallyport.Request) (gateway.Explanation, error) {
	return gateway.Explanation{Principal: "a", Tool: req.Operation.Target}, d.answer
}
func (d *desk) Issue(_ context.Context, agent, _, actor string) (string, time.Time, error) {
	return "token of " + agent + " for " + actor, time.Unix(1, 0), nil
}
func (d *desk) Login(_ context.Context, p Peer, name, password string) (time.Time, error) {
	if password != "right" {
		return time.Time{}, &sallyport.Error{Code: sallyport.Unauthenticated, Message: "wrong"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logins[p] = name
	return time.Unix(600, 0), nil
}
func (d *desk) Check(_ context.Context, p Peer) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name, ok := d.logins[p]; ok {
		return name, nil
	}
	return "", errors.New("not logged in")
}
func (d *desk) Logout(p Peer) { d.mu.Lock(); defer d.mu.Unlock(); delete(d.logins, p) }
func (d *desk) ListTickets(context.Context, string, int) ([]sallyport.Ticket, []TicketGroup, error) {
	return nil, nil, nil
}
func (d *desk) ShowTicket(context.Context, string) (ShownTicket, error) {
	return ShownTicket{Text: "text"}, nil
}
func (d *desk) Decide(_ context.Context, w sallyport.Decision) (sallyport.Ticket, error) {
	d.decided = append(d.decided, w)
	return sallyport.Ticket{ID: w.Ticket, State: sallyport.TicketApproved}, nil
}

func newServer(local bool) (*Server, *desk) {
	d := &desk{logins: map[Peer]string{}}
	return &Server{
		Gateway: d, Tokens: d, Logins: d, Tickets: d, Passkeys: d, Secrets: d, Tenant: "t", Decides: func(secret string) bool { return secret == "chat-in" }, Log: slog.New(slog.DiscardHandler),
		Status: func(context.Context) any { return map[string]bool{"up": true} }, Policies: func() error { return nil },
		Local: func(uid int) bool { return local && uid == os.Getuid() },
	}, d
}

// onTCP and onSocket serve the door and return a client for it.
func onTCP(t *testing.T, s *Server) (string, *http.Client) {
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client()
}

func onSocket(t *testing.T, s *Server) (string, *http.Client) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return "http://gateway", &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

func ask(t *testing.T, c *http.Client, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// operations says what each route is: an operation that goes the path, or why
// it needs none.
var operations = map[string]string{
	"POST /api/v1/calls":                     "call_tool",
	"POST /api/v1/sandboxes":                 "an operator's own command: no agent, no tool; the sandbox bounds it",
	"POST /api/v1/login":                     "asks for nothing but a login",
	"POST /api/v1/logout":                    "ends a login",
	"GET /api/v1/status":                     "an operator looks at the gateway",
	"POST /api/v1/tokens":                    "an operator gets a token; its use goes the path",
	"GET /api/v1/agents":                     "operators' records",
	"POST /api/v1/agents":                    "operators' records",
	"GET /api/v1/approvals":                  "operators' records",
	"GET /api/v1/admins":                     "operators' records",
	"POST /api/v1/admins":                    "admins' records",
	"PUT /api/v1/admins/{name}/groups":       "admins' records",
	"DELETE /api/v1/admins/{name}":           "admins' records",
	"GET /api/v1/audit":                      "operators' records",
	"GET /api/v1/tools":                      "operators' records",
	"GET /api/v1/servers":                    "operators' records",
	"POST /api/v1/servers":                   "operators' records",
	"GET /api/v1/reservations":               "operators' records",
	"GET /api/v1/secrets":                    "operators' records",
	"GET /api/v1/sandboxes":                  "operators' records",
	"GET /api/v1/tiers":                      "what the host can run, proven: no agent, no tool",
	"GET /api/v1/tools/{name}":               "operators' records",
	"GET /api/v1/approvals/{id}":             "operators' records",
	"POST /api/v1/agents/{id}/{change}":      "operators' records",
	"POST /api/v1/approvals/{id}/{decision}": "a human's word on an operation that waits",
	"GET /api/v1/tools/{name}/diff":          "operators' records",
	"POST /api/v1/tools/{name}/approve":      "operators' records",
	"DELETE /api/v1/servers/{name}":          "operators' records",
	"POST /api/v1/servers/{name}/update":     "operators' records",
	"POST /api/v1/servers/{name}/login":      "operators' records",
	"POST /api/v1/servers/{name}/logout":     "operators' records",
	"POST /api/v1/reservations/resolve":      "an operator's word on a call that is over",
	"POST /api/v1/audit/retire":              "a human's word on the record of a gateway that is gone",
	"PUT /api/v1/secrets/{name}":             "operators' records",
	"DELETE /api/v1/secrets/{name}":          "operators' records",
	"GET /api/v1/sagas":                      "operators' records",
	"GET /api/v1/sagas/{id}":                 "operators' records",
	"POST /api/v1/sagas/lint":                "judges a plan, and makes no call",
	"POST /api/v1/sagas/{id}/{verb}":         "an operator's word on a saga; its steps go the path",
	"POST /api/v1/policies/reload":           "operators' records",
	"GET /api/v1/passkeys":                   "approvers' keys",
	"DELETE /api/v1/passkeys/{id}":           "approvers' keys",
	"POST /api/v1/passkeys/links":            "leads a human to the page; what is signed there is a word on an operation that waits",
	"GET /api/v1/passkeys/links/{id}":        "what became of a link",
	"GET /api/v1/webhooks":                   "operators' records",
	"POST /api/v1/webhooks/{name}/{change}":  "a message to a tool that the operator attached",
	"POST /api/v1/policies/explain":          "takes the path's steps up to the decision, and makes no call",
	"PUT /api/v1/sessions/{session}/file":    "move_file",
	"GET /api/v1/sessions/{session}/file":    "move_file",
}

// TO-28: there is one decision for one ticket, and no way to name several.
func TestTO28_NoBulkDecision(t *testing.T) {
	s, d := newServer(true)
	for _, r := range s.routes() {
		if strings.Contains(r.path, "approvals") && r.method != "GET" && r.path != "/api/v1/approvals/{id}/{decision}" {
			t.Errorf("%s %s decides, too", r.method, r.path)
		}
	}
	base, c := onSocket(t, s)
	if code, body := ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"right"}`); code != 200 {
		t.Fatalf("login: %d %s", code, body)
	}
	for path, body := range map[string]string{
		"/api/v1/approvals/approve":              `{}`,
		"/api/v1/approvals/tkt_1/approve":        `{"tickets":["tkt_1","tkt_2"]}`,
		"/api/v1/approvals/tkt_1/approve?also=x": `[{},{}]`,
		"/api/v1/approvals/tkt_1/tkt_2/approve":  `{}`,
		"/api/v1/approvals/tkt_1/approve-all":    `{}`,
		"/api/v1/approvals//approve":             `{}`,
	} {
		if code, out := ask(t, c, "POST", base+path, "", body); code == 200 || len(d.decided) != 0 {
			t.Errorf("%s %s: %d %s, decided %v", path, body, code, out, d.decided)
		}
	}
	code, out := ask(t, c, "POST", base+"/api/v1/approvals/tkt_1/approve", "", `{"hash":"0123456789","seen":"word"}`) // the control
	if code != 200 || len(d.decided) != 1 || d.decided[0].Hash != "0123456789" || d.decided[0].Seen != "word" || d.decided[0].Door != "admin" {
		t.Errorf("one decision: %d %s, %+v", code, out, d.decided)
	}
}

func TestEveryRouteIsAnOperationOrSaysWhy(t *testing.T) {
	s, _ := newServer(true)
	seen := map[string]bool{}
	for _, r := range s.routes() {
		key := r.method + " " + r.path
		seen[key] = true
		if operations[key] == "" {
			t.Errorf("%s: neither an operation nor a reason", key)
		}
	}
	for key := range operations {
		if !seen[key] {
			t.Errorf("%s is no route any more", key)
		}
	}
}

// Nobody gets in on TCP without a login, nor on the socket as a stranger;
// deciding needs a human's login everywhere.
func TestWhoMayAsk(t *testing.T) {
	for _, r := range func() []route { s, _ := newServer(true); return s.routes() }() {
		path := strings.NewReplacer("{session}", "x", "{id}", "x", "{name}", "x", "{change}", "rotate", "{decision}", "approve").Replace(r.path)
		s, _ := newServer(true)
		base, c := onTCP(t, s)
		if code, body := ask(t, c, r.method, base+path, "", "{}"); r.need != nobody && code != 401 {
			t.Errorf("TCP without a login: %s %s = %d %s", r.method, r.path, code, body)
		}
		if code, body := ask(t, c, r.method, base+path, "made up", "{}"); r.need != nobody && code != 401 {
			t.Errorf("TCP with a made-up token: %s %s = %d %s", r.method, r.path, code, body)
		}
		s, _ = newServer(false)
		base, c = onSocket(t, s)
		if code, body := ask(t, c, r.method, base+path, "", "{}"); code != 403 {
			t.Errorf("a stranger on the socket: %s %s = %d %s", r.method, r.path, code, body)
		}
		if r.need >= human {
			s, _ = newServer(true)
			base, c = onSocket(t, s)
			if code, body := ask(t, c, r.method, base+path, "", "{}"); code != 401 {
				t.Errorf("the operator without a login: %s %s = %d %s", r.method, r.path, code, body)
			}
		}
	}
}

func TestDecide(t *testing.T) {
	s, d := newServer(true)
	base, c := onSocket(t, s)
	if code, body := ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"wrong"}`); code != 401 {
		t.Fatalf("wrong password: %d %s", code, body)
	}
	if code, body := ask(t, c, "POST", base+"/api/v1/approvals/tkt_1/approve", "", `{}`); code != 401 || len(d.decided) != 0 {
		t.Fatalf("decided without a login: %d %s", code, body)
	}
	if code, body := ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"right"}`); code != 200 || strings.Contains(body, "token") {
		t.Fatalf("login on the socket: %d %s", code, body)
	}
	code, body := ask(t, c, "POST", base+"/api/v1/approvals/tkt_1/approve", "", `{"reason":"seen"}`)
	if code != 200 || len(d.decided) != 1 || d.decided[0].By != "ann" || !d.decided[0].Approve || d.decided[0].Reason != "seen" {
		t.Fatalf("%d %s, %+v", code, body, d.decided)
	}
	if code, _ := ask(t, c, "POST", base+"/api/v1/approvals/tkt_1/destroy", "", `{}`); code != 404 {
		t.Errorf("an unknown decision: %d", code)
	}
	ask(t, c, "POST", base+"/api/v1/logout", "", "")
	if code, _ := ask(t, c, "POST", base+"/api/v1/approvals/tkt_1/reject", "", `{}`); code != 401 {
		t.Errorf("after logout: %d", code)
	}
}

// On TCP the login's token is the only thing that counts.
func TestLoginOnTCP(t *testing.T) {
	s, _ := newServer(true)
	base, c := onTCP(t, s)
	_, body := ask(t, c, "POST", base+"/api/v1/login", "", `{"name":"ann","password":"right"}`)
	var in struct{ Token string }
	if err := json.Unmarshal([]byte(body), &in); err != nil || in.Token == "" {
		t.Fatalf("no token: %s", body)
	}
	if code, body := ask(t, c, "GET", base+"/api/v1/status", in.Token, ""); code != 200 {
		t.Errorf("with the token: %d %s", code, body)
	}
	if code, _ := ask(t, c, "GET", base+"/api/v1/status", in.Token+"x", ""); code != 401 {
		t.Errorf("with another token: %d", code)
	}
}

// The record says what an operator let in, without what must not be in it.
func TestLetIn(t *testing.T) {
	s, _ := newServer(true)
	s.Mask = func(v json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(v), "hunter2", "[masked]"))
	}
	b, err := json.Marshal(s.letIn(json.RawMessage(`{"command":"npx","args":["-y","x","postgres://u:hunter2@h/db"],"env":{"TOKEN":"sesame"},"headers":{"A":"sesame"}}`)))
	if err != nil || !strings.Contains(string(b), `"npx"`) || !strings.Contains(string(b), "[masked]") || strings.Contains(string(b), "hunter2") || strings.Contains(string(b), "sesame") {
		t.Errorf("%s, %v", b, err)
	}
}

func TestCalls(t *testing.T) {
	s, d := newServer(true)
	base, c := onSocket(t, s)
	code, body := ask(t, c, "POST", base+"/api/v1/calls", "", `{"agent":"a1","tool":"echo","args":{"n":9007199254740993},"key":"k"}`)
	if code != 200 || len(d.requests) != 1 {
		t.Fatalf("%d %s", code, body)
	}
	r := d.requests[0]
	if !strings.HasPrefix(r.Credential, "token of a1 for uid:") || r.Key != "k" || string(r.Operation.Args) != `{"n":9007199254740993}` {
		t.Errorf("the path got %+v", r)
	}
	for answer, want := range map[sallyport.Code]int{
		sallyport.Pending: 202, sallyport.Denied: 403, sallyport.Conflict: 422, sallyport.InFlight: 409,
		sallyport.Invalid: 400, sallyport.Unavailable: 503, sallyport.RateLimited: 429, sallyport.Internal: 500,
	} {
		d.answer = &sallyport.Error{Code: answer, Ticket: "tkt_1", Message: "m"}
		if code, body := ask(t, c, "POST", base+"/api/v1/calls", "", `{"agent":"a1","tool":"echo"}`); code != want {
			t.Errorf("%s = %d %s, want %d", answer, code, body, want)
		}
	}
	d.answer = errors.New("a secret detail")
	if code, body := ask(t, c, "POST", base+"/api/v1/calls", "", `{"agent":"a1","tool":"echo"}`); code != 500 || strings.Contains(body, "secret detail") {
		t.Errorf("an error that is not ours: %d %s", code, body)
	}
	for _, bad := range []string{`{`, `{"agnet":"x"}`, `{}{}`, `[]`} {
		if code, _ := ask(t, c, "POST", base+"/api/v1/calls", "", bad); code != 400 {
			t.Errorf("body %s = %d, want 400", bad, code)
		}
	}
}
