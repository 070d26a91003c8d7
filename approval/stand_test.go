package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/gatewaytest"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/sqlite"
)

// A stand is the whole path over the real engine and store. The other engines
// are fakes that a test changes; what executes is a function.
type stand struct {
	*gateway.Gateway
	db     *sqlite.Store
	engine *approval.Engine
	log    bytes.Buffer

	mu      sync.Mutex
	who     sallyport.Principal
	tools   map[string]sallyport.Tool
	risk    func(tool sallyport.Tool, args json.RawMessage) sallyport.Risk
	verdict func(q gateway.Question) gateway.Verdict
	run     func(ctx context.Context, j sallyport.Job) (sallyport.Output, error)
	gen     uint64
	ran     []sallyport.Job // of tools that are no witnesses
	events  []string
	expired bool // the token

	starting bool   // servers have not told their tools yet
	telling  func() // happens when the gateway asks whether they have
}

func newStand(t *testing.T, rules store.TicketRules) *stand {
	t.Helper()
	s := &stand{who: sallyport.Principal{Tenant: "t", ID: "agent", Roles: []string{"payer"}}, tools: map[string]sallyport.Tool{}}
	var err error
	if s.db, err = sqlite.Open(filepath.Join(t.TempDir(), "db"), audittest.Sealer(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	s.db.SetTicketRules(rules)
	journal := audit.NewLog(s.db, audit.LogOptions{Strict: true})
	t.Cleanup(func() { journal.Close() })
	s.admins(t, "ann", "finance")
	s.admins(t, "bob", "finance")
	s.admins(t, "sec", "security")
	s.must(t, s.db.PutAgent(t.Context(), sallyport.Agent{Tenant: "t", ID: "agent", State: "active"}, s.entry()))
	s.engine = approval.New(s.db, s.db, approval.Options{Poll: 5 * time.Millisecond, Notifier: s})
	s.tool("pay")
	s.risk = func(tool sallyport.Tool, _ json.RawMessage) sallyport.Risk {
		if tool.Manifest.ReadOnly {
			return sallyport.Risk{}
		}
		return sallyport.Risk{Level: sallyport.Critical, Irreversible: true, Reasons: []string{"moves money"}, Objects: []string{tool.Name}}
	}
	s.verdict = func(gateway.Question) gateway.Verdict { return gateway.Verdict{Allow: true, Policies: []string{"p"}} }
	s.run = func(_ context.Context, j sallyport.Job) (sallyport.Output, error) {
		return sallyport.Output{Content: json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`)}, nil
	}
	s.Gateway = &gateway.Gateway{
		Authenticator: s, Limiter: s, Catalog: tools{s}, Assessor: s, Authorizer: policies{s}, Ledger: s.db, Tickets: s.engine, Sanitiser: gatewaytest.Plain{},
		Journal: journal, Backends: map[string]sallyport.Backend{"fake": backend{s}}, Now: time.Now, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Image: "image",
	}
	return s
}

func (s *stand) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stand) entry() sallyport.Entry {
	return sallyport.Entry{Tenant: "t", Kind: sallyport.EntryAdmin, Payload: []byte("{}")}
}

func (s *stand) admins(t *testing.T, name string, groups ...string) {
	t.Helper()
	s.must(t, s.db.PutAdmin(t.Context(), sallyport.Admin{Tenant: "t", Name: name, Groups: groups}, s.entry()))
}

// tool adds or changes one.
func (s *stand) tool(name string, edit ...func(*sallyport.Tool)) {
	t, ok := s.tools[name]
	if !ok {
		t = sallyport.Tool{Name: name, Version: "1", Digest: "d-" + name, Status: sallyport.ToolActive,
			Origin: sallyport.Origin{Backend: "fake", Server: "s", Name: name, Endpoint: "https://s.test", Credential: "c"}}
	}
	for _, e := range edit {
		e(&t)
	}
	s.tools[name] = t
	s.gen++
}

func (s *stand) Ticket(_ context.Context, e approval.Event, t sallyport.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, string(e)+" "+string(t.State))
}

func (s *stand) Authenticate(_ context.Context, _, bearer string) (sallyport.Principal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bearer != "token" || s.expired {
		return sallyport.Principal{}, &sallyport.Error{Code: sallyport.Unauthenticated, Message: "no"}
	}
	return s.who, nil
}
func (*stand) Admit(sallyport.Principal, int) (func(), error) { return func() {}, nil }
func (s *stand) Assess(_ context.Context, t sallyport.Tool, args json.RawMessage) sallyport.Risk {
	return s.risk(t, args)
}

// harmless finds nothing in any call.
type harmless struct{}

func (harmless) Assess(context.Context, sallyport.Tool, json.RawMessage) sallyport.Risk {
	return sallyport.Risk{}
}

type tools struct{ *stand }

func (c tools) Resolve(_, name string) (sallyport.Tool, error) {
	t, ok := c.tools[name]
	if !ok {
		return t, &sallyport.Error{Code: sallyport.NotFound}
	}
	return t, nil
}
func (c tools) List(string) ([]sallyport.Tool, error) { return nil, nil }
func (c tools) Validate(_ sallyport.Tool, args json.RawMessage) error {
	if bytes.Contains(args, []byte("refused by schema")) {
		return errors.New("no")
	}
	return nil
}
func (c tools) Generation() uint64 { return c.gen }
func (c tools) Listed(string) bool {
	if tell := c.telling; tell != nil {
		c.telling = nil
		tell()
	}
	return !c.starting
}

type policies struct{ *stand }

func (p policies) Authorize(q gateway.Question) (gateway.Verdict, error) {
	if q.Action == gateway.ActionList {
		return gateway.Verdict{Allow: true}, nil
	}
	return p.verdict(q), nil
}
func (p policies) Generation() uint64 { return p.gen }

type backend struct{ *stand }

func (backend) Info() sallyport.Info        { return sallyport.Info{Name: "fake", Isolation: "none"} }
func (backend) Check(context.Context) error { return nil }
func (backend) Close() error                { return nil }
func (b backend) Run(ctx context.Context, j sallyport.Job) (sallyport.Output, error) {
	if !j.Tool.Manifest.ReadOnly {
		b.mu.Lock()
		b.ran = append(b.ran, j)
		b.mu.Unlock()
	}
	return b.run(ctx, j)
}

func request(tool, args string) sallyport.Request {
	return sallyport.Request{Credential: "token", Door: "test",
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: tool, Args: json.RawMessage(args)}}
}

// pend makes a call that waits for humans, and returns it as it is resumed.
func (s *stand) pend(t *testing.T, req sallyport.Request) (resume sallyport.Request, id string) {
	t.Helper()
	_, err := s.Call(t.Context(), req)
	e, ok := errors.AsType[*sallyport.Error](err)
	if !ok || e.Code != sallyport.Pending {
		t.Fatalf("%v, want approval_pending", err)
	}
	req.Ticket = e.Ticket
	return req, e.Ticket
}

func (s *stand) approve(t *testing.T, id string, by ...string) sallyport.Ticket {
	t.Helper()
	var tk sallyport.Ticket
	for _, a := range by {
		var err error
		tk, err = s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, Approve: true, By: a, Door: "admin"})
		s.must(t, err)
	}
	return tk
}

func (s *stand) state(t *testing.T, id string) sallyport.Ticket {
	t.Helper()
	tk, err := s.db.Ticket(t.Context(), "t", id)
	s.must(t, err)
	return tk
}

func (s *stand) onRecord(t *testing.T, text string) int {
	t.Helper()
	rows, err := audit.Search(t.Context(), s.db, audit.Filter{Text: text}, audit.MaxSearch)
	s.must(t, err)
	return len(rows)
}
