// Package mcpserver is the agents' door: MCP over HTTP, at POST /mcp and
// POST /mcp/PROFILE.
//
// It speaks the stateless revision (2026-07-28) and the earlier ones with
// sessions, turns each request into an operation for the Gateway, and turns
// what comes back into a reply. It decides nothing: a request that is well
// formed goes to the gateway, and methods (see the table) that need no
// operation say why.
//
// Nothing on the way of a call is decoded that need not be: arguments and
// results pass as the bytes they are.
package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
	"sallyport.dev/sallyport/mcpserver/hosts"
	"sallyport.dev/sallyport/mcpserver/mirror"
	"sallyport.dev/sallyport/mcpserver/proxied"
	"sallyport.dev/sallyport/mcpserver/strangers"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/mcpserver/task"
	"sallyport.dev/sallyport/wire"
)

// A Gateway runs operations. (gateway)
type Gateway interface {
	// Call runs one operation to its end, or returns *sallyport.Error.
	Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error)

	// Await is Call, and while the answer is "approval_pending" or "in_flight"
	// it waits (until ctx ends or wait has passed) and calls again under the
	// same call id. waiting is told once with the ticket when the wait starts.
	Await(ctx context.Context, req sallyport.Request, wait time.Duration, waiting func(*sallyport.Error)) (sallyport.Result, error)

	// List authenticates, admits and returns what of a list the caller may see:
	// of the tools (""), or of a shelf.
	List(ctx context.Context, credential, profile string, shelf sallyport.Shelf, size int) (sallyport.Sight, error)

	// Identify only authenticates (initialize, ping, server/discover, sessions).
	Identify(ctx context.Context, credential, profile string) (sallyport.Principal, error)

	// Withdraw takes back the caller's own ticket that req names: the question while it
	// waits, or an approval that was not used. Where the call that was approved runs by
	// now, it is cancelled. What is over stays as it is, without an error.
	Withdraw(ctx context.Context, req sallyport.Request) error
}

// Options say how to serve. Gateway and BaseURL are required; a zero in any
// other field means the default that its comment names.
type Options struct {
	Gateway Gateway
	BaseURL string // where clients reach the gateway, without a path: "http://127.0.0.1:7450"

	Held    Held            // keeps calls whose stateless clients are asked, or take tasks; without one they are not, and do not
	Later   Later           // tells how calls are that became tasks; needed with Held
	Hub     *stream.Hub     // tells what changes; without one there are no streams
	Reaches func() []string // this gateway and those behind it, told to gateways before it
	Down    func() []string // servers that take no calls just now; nil knows of none

	TaskCode  task.Code     // makes ids of tasks good only as they were given, if set
	TasksKept time.Duration // for so long after its end a task is told of; 0: nobody knows

	Resource             func(r *http.Request, profile string) string // URL of a profile's endpoint as the sender of a request knows it; below BaseURL
	AuthorizationServers []string                                     // issuers whose tokens are good here; BaseURL
	Hosts                hosts.Policy
	Profile              func(name string) bool // whether a profile exists beside the default; none does
	Log                  *slog.Logger           // nothing is logged
	Version              string                 // of the program, shown to clients; "dev"
	Instructions         string                 // for the model, shown to clients; none

	Strangers gcra.Rate // of requests without a good credential from one address; 20 a second, 400 at once

	MaxBody      int64         // bytes of one request; 4 MiB
	ApprovalWait time.Duration // how long a call waits for a human; 5 min
	StreamAfter  time.Duration // a call that takes longer is answered as a stream; 1 s
	KeepAlive    time.Duration // between signs of life on a stream; 15 s
	BodyTimeout  time.Duration // to receive a request's body; 30 s
	WriteTimeout time.Duration // to get one message off; 30 s
	PageSize     int           // items per page of a list; 500
	ListTTL      time.Duration // how long a client may keep a list; 30 s

	SessionIdle          time.Duration // an unused session ends; 30 min
	Sessions             int           // at once; 10,000
	SessionsPerPrincipal int           // at once; the oldest idle one makes room; 64
	CallsPerSession      int           // at once; 64
}

func (o *Options) fill() {
	o.Version = cmp.Or(o.Version, "dev")
	o.MaxBody = cmp.Or(o.MaxBody, 4<<20)
	o.ApprovalWait = cmp.Or(o.ApprovalWait, 5*time.Minute)
	o.StreamAfter = cmp.Or(o.StreamAfter, time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.PageSize = cmp.Or(o.PageSize, 500)
	o.ListTTL = cmp.Or(o.ListTTL, 30*time.Second)
	o.SessionIdle = cmp.Or(o.SessionIdle, 30*time.Minute)
	o.Sessions = cmp.Or(o.Sessions, 10_000)
	o.SessionsPerPrincipal = cmp.Or(o.SessionsPerPrincipal, 64)
	o.CallsPerSession = cmp.Or(o.CallsPerSession, 64)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Profile == nil {
		o.Profile = func(string) bool { return false }
	}
	o.BaseURL = strings.TrimRight(o.BaseURL, "/")
	if o.Resource == nil {
		o.Resource = func(_ *http.Request, profile string) string { return o.BaseURL + proxied.Path(profile) }
	}
	if len(o.AuthorizationServers) == 0 {
		o.AuthorizationServers = []string{o.BaseURL}
	}
}

// A Server is the door. It is an http.Handler for the paths in Patterns.
type Server struct {
	opts      Options
	gateway   Gateway
	entry     http.Handler // routes, guarded
	sessions  *sessionTable
	params    *mirror.Cache
	strangers *strangers.Count
	panics    atomic.Int64
	info      []byte // raw Implementation object
	caps      string // raw ServerCapabilities object
}

// New returns a server, or an error that says which option is wrong.
func New(opts Options) (*Server, error) {
	if opts.Gateway == nil {
		return nil, errors.New("mcpserver: Options.Gateway is missing")
	}
	if !strings.HasPrefix(opts.BaseURL, "http://") && !strings.HasPrefix(opts.BaseURL, "https://") {
		return nil, errors.New("mcpserver: Options.BaseURL must be an http or https URL")
	}
	opts.fill()
	s := &Server{opts: opts, gateway: opts.Gateway, params: mirror.New(), strangers: strangers.New(opts.Strangers)}
	s.sessions = newSessionTable(&s.opts)
	s.info = wire.AppendString([]byte(`{"name":"sallyport","title":"Sallyport","version":`), opts.Version)
	s.info = append(s.info, '}')
	s.caps = `{"completions":{},"logging":{},"prompts":{},"resources":{},"tools":{}}`
	if opts.Hub != nil {
		s.caps = `{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`
	}
	s.entry = Recover(opts.Log, &s.panics, opts.Hosts.Guard(http.HandlerFunc(s.route)))
	return s, nil
}

// Patterns returns what to mount a Server under, in http.ServeMux's syntax.
func Patterns() []string {
	return []string{"/mcp", "/mcp/", proxied.WellKnown, proxied.WellKnown + "/"}
}

// Panics returns how many requests ended in a panic since the start.
func (s *Server) Panics() int64 { return s.panics.Load() }

// Close ends every session and stream, and cancels calls of sessions. The
// listener is the caller's.
func (s *Server) Close() {
	if s.opts.Hub != nil {
		s.opts.Hub.Close()
	}
	s.sessions.close()
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.entry.ServeHTTP(w, r) }

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
	w.Header()["Cache-Control"] = []string{"no-store"}
	if rest, ok := strings.CutPrefix(r.URL.Path, proxied.WellKnown); ok {
		s.serveMetadata(w, r, rest)
		return
	}
	profile, ok := s.profileOf(r.URL.Path)
	if !ok {
		writeError(w, http.StatusNotFound, nil, invalidRequest("there is nothing here: MCP is at /mcp, or /mcp/PROFILE"))
		return
	}
	x := &exchange{s: s, w: w, r: r, profile: profile}
	switch r.Method {
	case http.MethodPost:
		x.post()
	case http.MethodDelete:
		x.endSession()
	case http.MethodGet:
		x.hear()
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		writeError(w, http.StatusMethodNotAllowed, nil, invalidRequest("use POST"))
	}
}

// profileOf reads the profile out of a path; "" is the default one.
func (s *Server) profileOf(path string) (string, bool) {
	if path == "/mcp" || path == "/mcp/" {
		return "", true
	}
	name, ok := strings.CutPrefix(path, "/mcp/")
	return name, ok && validProfile(name) && s.opts.Profile(name)
}

func validProfile(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
