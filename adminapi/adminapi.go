// Package adminapi is the operators' door: a JSON API under /api/v1 for the
// command line and for automation. It is served on a unix socket in the data
// folder, where the kernel says who calls, and on TCP after a login.
//
// Deciding a ticket always needs a human's login, on either.
package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"sallyport.dev/sallyport"
)

// MaxBody bounds a request's body.
const MaxBody = 8 << 20

// MaxRun bounds that of a command for a sandbox, with its module and its files.
const MaxRun = 64 << 20

// A Server is the door. All fields must be set.
type Server struct {
	Gateway      Caller
	Tokens       Tokens
	Logins       Logins
	Agents       Agents
	Admins       Admins
	Tickets      Tickets
	Audit        Audit
	Tools        Tools
	Servers      Servers
	ServerLogins ServerLogins
	Reservations Reservations
	Secrets      Secrets
	Sandbox      Sandbox
	Passkeys     Passkeys
	Webhooks     Webhooks
	Decides      func(secret string) bool // whether who knows a secret can decide tickets
	Sagas        Sagas
	Status       func(context.Context) any // what `doctor` shows of a running gateway
	Policies     func() error              // reloads them, all or nothing

	Mask func(json.RawMessage) json.RawMessage // hides secrets from the record

	Tenant string
	Local  func(uid int) bool // may this uid operate the gateway through the socket
	Log    *slog.Logger
}

// A call is one request to the API, with who makes it.
type call struct {
	*http.Request
	peer  Peer   // who is at the other end
	admin string // who is logged in, "" if nobody

	w    http.ResponseWriter // for an answer that is not JSON
	file io.Reader           // the body, for a route that takes it as it is, of whatever size
}

// need says what a route asks of its caller.
type need int

const (
	nobody    need = iota // the login itself
	operator              // a local uid that may operate the gateway, or a login
	human                 // a login
	confirmed             // a login, confirmed just now by a passkey of those who have one
)

// routes lists every route. The OpenAPI document is made from it.
func (s *Server) routes() []route {
	return []route{
		{"POST", "/api/v1/login", nobody, "log a human in for 10 minutes", s.login},
		{"POST", "/api/v1/logout", nobody, "end the login", s.logout},
		{"GET", "/api/v1/status", operator, "what runs, and what is wrong", s.status},
		{"POST", callPath, operator, "call a tool as an agent", s.callTool},
		{"POST", "/api/v1/tokens", operator, "a short-lived token of an agent", s.token},
		{"GET", "/api/v1/agents", operator, "list the agents", s.listAgents},
		{"POST", "/api/v1/agents", operator, "add an agent", s.addAgent},
		{"POST", "/api/v1/agents/{id}/{change}", operator, "rotate, suspend, resume or revoke an agent", s.changeAgent},
		{"GET", "/api/v1/admins", operator, "list the admins and their groups", s.listAdmins},
		{"POST", "/api/v1/admins", confirmed, "add an admin", s.addAdmin},
		{"PUT", "/api/v1/admins/{name}/groups", confirmed, "set the groups of an admin", s.setAdminGroups},
		{"DELETE", "/api/v1/admins/{name}", confirmed, "remove an admin", s.removeAdmin},
		{"GET", "/api/v1/approvals", operator, "list tickets", s.listTickets},
		{"GET", "/api/v1/approvals/{id}", operator, "show a ticket", s.showTicket},
		{"POST", "/api/v1/approvals/{id}/{decision}", human, "approve or reject a ticket", s.decide},
		{"GET", "/api/v1/passkeys", operator, "list the approvers' passkeys", s.listPasskeys},
		{"DELETE", "/api/v1/passkeys/{id}", confirmed, "remove a passkey of another admin", s.removePasskey},
		{"POST", "/api/v1/passkeys/links", human, "a link to enrol a passkey, or to sign a ticket", s.linkPasskey},
		{"GET", "/api/v1/passkeys/links/{id}", operator, "what became of a link", s.passkeyLink},
		{"GET", "/api/v1/webhooks", operator, "list the webhooks and their outboxes", s.listWebhooks},
		{"POST", "/api/v1/webhooks/{name}/{change}", operator, "test a webhook, or retry what it gave up", s.changeWebhook},
		{"GET", "/api/v1/audit", operator, "search the audit log", s.search},
		{"POST", "/api/v1/audit/retire", human, "retire the log of a gateway that is gone for good", s.retireLog},
		{"GET", "/api/v1/tools", operator, "list the tools", s.listTools},
		{"GET", "/api/v1/tools/{name}", operator, "show a tool", s.showTool},
		{"GET", "/api/v1/tools/{name}/diff", operator, "what changed in a quarantined tool", s.diffTool},
		{"POST", "/api/v1/tools/{name}/approve", operator, "release a quarantined tool", s.approveTool},
		{"GET", "/api/v1/servers", operator, "list the upstream servers", s.listServers},
		{"POST", "/api/v1/servers", operator, "add an upstream server", s.addServer},
		{"DELETE", "/api/v1/servers/{name}", operator, "remove an upstream server", s.removeServer},
		{"POST", "/api/v1/servers/{name}/update", operator, "install a server's package afresh, and start it again", s.updateServer},
		{"POST", "/api/v1/servers/{name}/login", operator, "begin a login at a server's authorization server", s.loginServer},
		{"POST", "/api/v1/servers/{name}/logout", operator, "forget what such a login gave", s.logoutServer},
		{"GET", "/api/v1/reservations", operator, "list reservations", s.listReservations},
		{"POST", "/api/v1/reservations/resolve", operator, "say how a call of unknown outcome ended", s.resolve},
		{"GET", "/api/v1/sagas", operator, "list sagas", s.listSagas},
		{"POST", "/api/v1/sagas/lint", operator, "judge a plan, without starting it", s.lintPlan},
		{"GET", "/api/v1/sagas/{id}", operator, "show a saga with every step", s.showSaga},
		{"POST", "/api/v1/sagas/{id}/{verb}", operator, "pause, resume, cancel, retry, skip a step of, or resolve a step of a saga", s.changeSaga},
		{"GET", "/api/v1/secrets", operator, "list the names of secrets", s.listSecrets},
		{"PUT", "/api/v1/secrets/{name}", operator, "set a secret", s.setSecret},
		{"DELETE", "/api/v1/secrets/{name}", operator, "remove a secret", s.removeSecret},
		{"POST", "/api/v1/policies/explain", operator, "how a call would be decided, without making it", s.explain},
		{"POST", "/api/v1/policies/reload", operator, "read the policies again", s.reload},
		{"POST", runPath, operator, "run a command in a sandbox", s.sandboxRun},
		{"GET", "/api/v1/sandboxes", operator, "list running sandboxes", s.sandboxList},
		{"GET", "/api/v1/tiers", operator, "prove each tier, and say which can be had", s.tiers},
		{"PUT", "/api/v1/sessions/{session}/file", operator, "store the body as a file of an agent's session", s.putFile},
		{"GET", "/api/v1/sessions/{session}/file", operator, "the content of a file of an agent's session", s.getFile},
	}
}

type route struct {
	method, path string
	need         need
	summary      string
	do           func(call) (any, error)
}

// Handler serves the routes. The same one serves the socket and TCP.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	routes := s.routes()
	for _, r := range routes {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, r) })
	}
	mux.HandleFunc("GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, openAPI(routes)) })
	mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, req *http.Request) {
		fail(w, &sallyport.Error{Code: sallyport.NotFound, Message: "no such endpoint: " + req.Method + " " + req.URL.Path, Hint: "see /api/v1/openapi.json"})
	})
	return mux
}

func (s *Server) serve(w http.ResponseWriter, req *http.Request, r route) {
	c := call{Request: req, peer: peerOf(req), w: w, file: req.Body}
	limit := int64(MaxBody)
	if r.path == runPath {
		limit = MaxRun
	}
	req.Body = http.MaxBytesReader(w, req.Body, limit)
	if err := s.identify(&c, r.need); err != nil {
		fail(w, err)
		return
	}
	out, err := r.do(c)
	if err != nil {
		if sallyport.CodeOf(err) == sallyport.Internal {
			s.Log.Error("admin request failed", "path", req.URL.Path, "err", err)
		}
		if r.path != callPath {
			err = stepless(err)
		}
		fail(w, err)
		return
	}
	if _, done := out.(sent); !done {
		write(w, http.StatusOK, out)
	}
}

// callPath is the route of what takes the steps of a call.
const callPath = "/api/v1/calls"

// runPath is the route of a command for a sandbox.
const runPath = "/api/v1/sandboxes"

// stepless takes the step out of an error: what an operator does takes none.
func stepless(err error) error {
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		return err
	}
	own := *e
	own.Step = ""
	return &own
}

// identify fills in who calls, and refuses who may not.
func (s *Server) identify(c *call, n need) error {
	if name, err := s.Logins.Check(c.Context(), c.peer); err == nil {
		c.admin = name
	}
	local := c.peer.Local && s.Local(c.peer.UID)
	switch {
	case c.peer.Local && !local:
		return &sallyport.Error{Code: sallyport.Denied, Message: "this user may not operate the gateway",
			Hint: "use the account that ran `sallyport init`, or root"}
	case n == confirmed && c.admin != "":
		return s.Passkeys.Confirmed(c.Context(), c.admin)
	case n == nobody, n == operator && local, c.admin != "":
		return nil
	}
	return &sallyport.Error{Code: sallyport.Unauthenticated, Message: "this needs a human's login",
		Hint: "run `sallyport login` in this terminal session first (it lasts 10 minutes)"}
}

// actor names who did it, for the record.
func (c call) actor() string {
	if c.admin != "" {
		return c.admin
	}
	return c.peer.String()
}

// body reads the request's JSON into v. Unknown fields are refused.
func (c call) body(v any) error {
	d := json.NewDecoder(c.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	if err != nil {
		return &sallyport.Error{Code: sallyport.Invalid, Message: "the request's body: " + err.Error(), Hint: "see /api/v1/openapi.json"}
	}
	return nil
}

// statuses maps codes to HTTP.
var statuses = map[sallyport.Code]int{
	sallyport.Unauthenticated: 401, sallyport.NotFound: 404, sallyport.Invalid: 400, sallyport.Denied: 403,
	sallyport.Rejected: 403, sallyport.Pending: 202, sallyport.Conflict: 422, sallyport.InFlight: 409,
	sallyport.OutcomeUnknown: 502, sallyport.RateLimited: 429, sallyport.TooLarge: 413, sallyport.Quarantined: 403,
	sallyport.Timeout: 504, sallyport.Canceled: 499, sallyport.Unavailable: 503, sallyport.Upstream: 502,
	sallyport.AuthorizationRequired: 424,
}

// A Failure is the body of every answer that is not a success.
type Failure struct {
	Code       sallyport.Code `json:"code"`
	Step       sallyport.Step `json:"step,omitempty"`
	Message    string         `json:"message"`
	Hint       string         `json:"hint,omitempty"`
	Ticket     string         `json:"ticket,omitempty"`
	RetryAfter float64        `json:"retry_after,omitempty"` // seconds
	CallID     string         `json:"call_id,omitempty"`
}

func fail(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok {
		e = &sallyport.Error{Code: sallyport.Internal, Message: "internal error", Hint: "the gateway's log says more"}
	}
	status, ok := statuses[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	write(w, status, Failure{e.Code, e.Step, e.Message, e.Hint, e.Ticket, e.RetryAfter.Seconds(), e.CallID})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the peer has gone: nobody is left to tell
}

// audited makes the entry of an operator's change.
func (s *Server) audited(c call, action, target string, detail any) sallyport.Entry {
	change := sallyport.Change{Action: action, By: c.actor(), Target: target, Detail: detail}
	b, err := json.Marshal(change)
	if err != nil { // the detail is a value of ours that JSON holds
		change.Detail = nil
		b, _ = json.Marshal(change)
	}
	return sallyport.Entry{Tenant: s.Tenant, Time: time.Now(), Kind: sallyport.EntryAdmin, Payload: b}
}
