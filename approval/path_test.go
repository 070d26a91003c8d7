package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
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
	key, err := audit.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	seal, err := audit.NewSealer(key, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{who: sallyport.Principal{Tenant: "t", ID: "agent", Roles: []string{"payer"}}, tools: map[string]sallyport.Tool{}}
	if s.db, err = sqlite.Open(filepath.Join(t.TempDir(), "db"), seal); err != nil {
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
		Authenticator: s, Limiter: s, Catalog: tools{s}, Assessor: s, Authorizer: policies{s}, Ledger: s.db, Tickets: s.engine, Sanitiser: plain{},
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

type plain struct{}

func (plain) Result(_ string, _ sallyport.Tool, out sallyport.Output) (json.RawMessage, bool, []string, error) {
	return out.Content, out.IsError, nil, nil
}
func (plain) Stream(string) func([]byte) string                    { return func(b []byte) string { return string(b) } }
func (plain) Notice(_ string, n sallyport.Notice) sallyport.Notice { return n }
func (plain) JSON(v json.RawMessage) json.RawMessage               { return v }
func (plain) Text(s string) string                                 { return s }

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

// TO-23: whatever changes between the question and the execution, today
// decides: what is stricter makes the approval void, what is looser approves
// nothing. Once void it stays so, also when the change is taken back.
func TestTO23_ChangedWhilePending(t *testing.T) {
	finance := gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "pay", Groups: []string{"finance"}}}}
	give := func(v gateway.Verdict) func(gateway.Question) gateway.Verdict {
		return func(gateway.Question) gateway.Verdict { return v }
	}
	for name, tt := range map[string]struct {
		change func(*stand)
		code   sallyport.Code // "" where it runs
		why    string         // in the void ticket
	}{
		"nothing": {func(*stand) {}, "", ""},
		"a policy asks for two": {func(s *stand) {
			s.verdict = give(gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "pay", Groups: []string{"finance"}, Quorum: 2}}})
		}, sallyport.Conflict, "2 of finance"},
		"a policy asks others": {func(s *stand) {
			s.verdict = give(gateway.Verdict{Allow: true, Demands: append(finance.Demands, sallyport.Demand{Policy: "new", Groups: []string{"security"}})})
		}, sallyport.Conflict, "1 of security (new)"},
		"calls that cannot be undone need more": {func(s *stand) { s.Irreversible = sallyport.Demand{Groups: []string{"security"}} }, sallyport.Conflict, "1 of security"},
		"a policy denies":                       {func(s *stand) { s.verdict = give(gateway.Verdict{Reasons: []string{"closed"}}) }, sallyport.Denied, "closed"},
		"a role is lost":                        {func(s *stand) { s.who.Roles = nil }, sallyport.Denied, "not a payer"},
		"a policy asks for nobody":              {func(s *stand) { s.verdict = give(gateway.Verdict{Allow: true}) }, "", ""},
		"the tool's definition":                 {func(s *stand) { s.tool("pay", func(t *sallyport.Tool) { t.Digest = "d2" }) }, sallyport.Conflict, "tool_digest"},
		"the tool's version":                    {func(s *stand) { s.tool("pay", func(t *sallyport.Tool) { t.Version = "2" }) }, sallyport.Conflict, `tool_version: "2", was "1"`},
		"the tool is quarantined":               {func(s *stand) { s.tool("pay", func(t *sallyport.Tool) { t.Status = sallyport.ToolQuarantined }) }, sallyport.Quarantined, "quarantined"},
		"the tool is gone":                      {func(s *stand) { delete(s.tools, "pay") }, sallyport.NotFound, "unknown tool"},
		"an approver is removed":                {func(s *stand) { _ = s.db.DeleteAdmin(context.Background(), "t", "ann", s.entry()) }, sallyport.Conflict, "ann may no longer"},
		"an approver leaves the group": {func(s *stand) {
			_ = s.db.PutAdmin(context.Background(), sallyport.Admin{Tenant: "t", Name: "ann"}, s.entry())
		}, sallyport.Conflict, "ann may no longer"},
		"the agent was suspended": {func(s *stand) {
			for _, state := range []string{"suspended", "active"} {
				_ = s.db.SetAgentState(context.Background(), "t", "agent", state, time.Time{}, s.entry())
			}
		}, sallyport.Rejected, "suspended"},
	} {
		for _, how := range []string{"by ticket", "by key", "by key for a user"} {
			t.Run(name+", "+how, func(t *testing.T) {
				keyed := how != "by ticket"
				s := newStand(t, store.TicketRules{})
				if how == "by key for a user" {
					s.who.OnBehalfOf = "carol"
				}
				normal := func(q gateway.Question) gateway.Verdict {
					if !slices.Contains(q.Who.Roles, "payer") {
						return gateway.Verdict{Reasons: []string{"not a payer"}}
					}
					return finance
				}
				s.verdict = normal
				req := request("pay", `{"to":"A"}`)
				if keyed {
					req.Key = "k"
				}
				resume, id := s.pend(t, req)
				if keyed {
					resume.Ticket = ""
				}
				s.approve(t, id, "ann")
				tools, who := s.tools["pay"], s.who
				tt.change(s)
				_, err := s.Call(t.Context(), resume)
				if tt.code == "" {
					if err != nil || len(s.ran) != 1 {
						t.Fatalf("%v, ran %d", err, len(s.ran))
					}
					return
				}
				if sallyport.CodeOf(err) != tt.code || len(s.ran) != 0 {
					t.Fatalf("%v, ran %d; want %s", err, len(s.ran), tt.code)
				}
				tk := s.state(t, id)
				if tk.State != sallyport.TicketVoid || !strings.Contains(tk.VoidReason, tt.why) {
					t.Errorf("the ticket is %s: %q; want void: %q", tk.State, tk.VoidReason, tt.why)
				}
				if plain, _, _ := strings.Cut(tt.why, `"`); s.onRecord(t, strings.TrimSpace(plain)) == 0 {
					t.Error("the reason is not on record")
				}
				s.verdict, s.who, s.tools["pay"], s.Irreversible = normal, who, tools, sallyport.Demand{} // taken back
				s.admins(t, "ann", "finance")
				if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != sallyport.Rejected || len(s.ran) != 0 {
					t.Errorf("once the change is taken back: %v, ran %d", err, len(s.ran))
				}
			})
		}
	}
}

// A tool whose server has not told its tools yet, as after a start, is not gone:
// the approval waits for it.
func TestTO23_ServerHasNotToldItsToolsYet(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		s := newStand(t, store.TicketRules{})
		req := request("pay", `{"to":"A"}`)
		if keyed {
			req.Key = "k"
		}
		resume, id := s.pend(t, req)
		if keyed {
			resume.Ticket = ""
		}
		s.approve(t, id, "ann")
		tool := s.tools["pay"]
		delete(s.tools, "pay")
		s.starting = true
		_, err := s.Call(t.Context(), resume)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || e.RetryAfter == 0 || len(s.ran) != 0 {
			t.Fatalf("keyed %t: %v, ran %d", keyed, err, len(s.ran))
		}
		tell := func() { s.tools["pay"], s.starting, s.gen = tool, false, s.gen+1 }
		s.telling = tell // in the middle of a call that did not find it
		_, err = s.Call(t.Context(), resume)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || s.starting || len(s.ran) != 0 {
			t.Fatalf("keyed %t, as it does: %v, starting %t, ran %d", keyed, err, s.starting, len(s.ran))
		}
		if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 {
			t.Errorf("keyed %t, once it has: %v, ran %d", keyed, err, len(s.ran))
		}
	}
}

// A looser policy answers no question that humans have before them; a new call
// is judged by it.
func TestTO23_LooserPolicyApprovesNothing(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.risk = func(sallyport.Tool, json.RawMessage) sallyport.Risk { return sallyport.Risk{Level: sallyport.High} }
	s.verdict = func(gateway.Question) gateway.Verdict {
		return gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "two", Quorum: 2}}}
	}
	req := request("pay", `{}`)
	req.Key = "k"
	resume, id := s.pend(t, req)
	s.approve(t, id, "ann")
	s.verdict = func(gateway.Question) gateway.Verdict { return gateway.Verdict{Allow: true} }
	for _, again := range []sallyport.Request{req, resume} {
		if _, got := s.pend(t, again); got != id {
			t.Errorf("asked again: %s, want %s", got, id)
		}
	}
	if tk := s.state(t, id); tk.State != sallyport.TicketPending || len(s.ran) != 0 {
		t.Errorf("the ticket is %s, ran %d", tk.State, len(s.ran))
	}
	if _, err := s.Call(t.Context(), request("pay", `{}`)); err != nil || len(s.ran) != 1 {
		t.Errorf("a new call: %v, ran %d", err, len(s.ran))
	}
	s.approve(t, id, "bob")
	if _, err := s.Call(t.Context(), req); err != nil || len(s.ran) != 2 {
		t.Errorf("once both have approved: %v, ran %d", err, len(s.ran))
	}
}

// Who made the call, or whom it is made for, does not decide on it.
func TestNoSelfApproval(t *testing.T) {
	for name, who := range map[string]sallyport.Principal{
		"actor":        {Tenant: "t", ID: "agent", Actor: "ann"},
		"on behalf of": {Tenant: "t", ID: "agent", OnBehalfOf: "ann"},
	} {
		s := newStand(t, store.TicketRules{})
		s.who = who
		resume, id := s.pend(t, request("pay", `{}`))
		_, err := s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, Approve: true, By: "ann"})
		if sallyport.CodeOf(err) != sallyport.Denied || !strings.Contains(err.Error(), "ann stands behind this call") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != sallyport.Pending {
			t.Errorf("%s: %v", name, err)
		}
		s.approve(t, id, "bob")
		if _, err := s.Call(t.Context(), resume); err != nil {
			t.Errorf("%s, by another: %v", name, err)
		}
	}
}

func TestEvents(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.verdict = func(gateway.Question) gateway.Verdict {
		return gateway.Verdict{Allow: true, Demands: []sallyport.Demand{{Policy: "two", Groups: []string{"finance"}, Quorum: 2}}}
	}
	_, id := s.pend(t, request("pay", `{}`))
	s.approve(t, id, "ann", "bob")
	s.must(t, s.engine.Void(t.Context(), "t", id, "it rains"))
	req := request("pay", `{}`)
	req.Key = "k"
	_, id = s.pend(t, req)
	s.pend(t, req) // no news
	if _, err := s.engine.Withdraw(t.Context(), s.who, id, "no"); err != nil {
		t.Fatal(err)
	}
	_, id = s.pend(t, request("pay", `{}`))
	board := approval.New(s.db, s.db, approval.Options{Notifier: s, Escalate: approval.Escalation{After: time.Nanosecond, Groups: []string{"board"}}})
	if n, err := board.CallIn(t.Context()); n != 1 || err != nil {
		t.Errorf("CallIn = %d, %v", n, err)
	}
	if _, err := s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, By: "sec"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"opened pending", "voted pending", "decided approved", "voided void", "opened pending", "withdrawn withdrawn",
		"opened pending", "escalated pending", "decided rejected"}
	if !slices.Equal(s.events, want) {
		t.Errorf("events %q\nwant   %q", s.events, want)
	}
}

// TO-27: what a human has just rejected is refused through every other door,
// too, without asking again.
func TestTO27_AnotherDoor(t *testing.T) {
	s := newStand(t, store.TicketRules{Cooldown: time.Hour})
	s.tool("http")
	s.tool("notes")
	s.risk = func(tool sallyport.Tool, args json.RawMessage) sallyport.Risk {
		r := sallyport.Risk{Level: sallyport.Critical, Objects: []string{"orders"}}
		switch {
		case bytes.Contains(args, []byte("small")):
			r.Level = sallyport.High // needs no human
		case tool.Name == "notes":
			r.Objects = []string{"notebook"}
		}
		return r
	}
	_, id := s.pend(t, request("pay", `{}`))
	if _, err := s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: id, By: "ann", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	for _, req := range []sallyport.Request{request("pay", `{}`), request("pay", `{"x":1}`), request("http", `{}`), request("http", `{"small":1}`)} {
		_, err := s.Call(t.Context(), req)
		e, ok := errors.AsType[*sallyport.Error](err)
		if !ok || e.Code != sallyport.Rejected || e.RetryAfter <= 0 || !strings.Contains(e.Message, id) {
			t.Errorf("%s %s: %v", req.Operation.Target, req.Operation.Args, err)
		}
	}
	s.pend(t, request("notes", `{}`)) // the control
	if len(s.ran) != 0 {
		t.Errorf("ran %d", len(s.ran))
	}
}

// TO-28: 200 harmless calls do not hide one: no more than the agent's share
// waits, the rest is refused, and there is one alarm.
func TestTO28_Flood(t *testing.T) {
	s := newStand(t, store.TicketRules{PerAgent: 20})
	opened, limited := 0, 0
	for i := range 201 {
		args := fmt.Sprintf(`{"id":%d}`, i)
		if i == 7 {
			args = `{"all":true}`
		}
		_, err := s.Call(t.Context(), request("pay", args))
		switch e, _ := errors.AsType[*sallyport.Error](err); {
		case e != nil && e.Code == sallyport.Pending:
			opened++
		case e != nil && e.Code == sallyport.RateLimited && e.RetryAfter > 0:
			limited++
		default:
			t.Fatal(err)
		}
	}
	if opened != 20 || limited != 181 {
		t.Errorf("%d opened, %d limited", opened, limited)
	}
	if n := strings.Count(s.log.String(), "too many calls wait for a human"); n != 1 {
		t.Errorf("%d alarms in the log, want 1", n)
	}
	if n := s.onRecord(t, `"flood"`); n != 1 {
		t.Errorf("%d alarms on record, want 1", n)
	}
	tks, err := s.engine.List(t.Context(), store.TicketFilter{Tenant: "t"})
	s.must(t, err)
	groups := approval.Groups(tks)
	if len(groups) != 1 || len(groups[0].Tickets) != 20 || !strings.Contains(strings.Join(groups[0].Tickets[0].Differs, ";"), "/all true") {
		t.Errorf("the odd one is not first: %+v", groups)
	}
	for _, m := range groups[0].Tickets[1:] {
		if len(m.Differs) > 0 {
			t.Errorf("a harmless one stands out: %+v", m)
		}
	}
}

// TO-28: what is unlike the others stands out although it is written like them, and
// wherever it stands in the arguments.
func TestTO28_OddValueOfTheSameForm(t *testing.T) {
	for name, tt := range map[string]struct{ usual, odd, want string }{
		"another word":    {`{"env":"staging","id":%d}`, `{"env":"production","id":%d}`, "/env \"production\""},
		"another number":  {`{"days":30,"id":%d}`, `{"id":%d,"days":90}`, "/days 90"},
		"deep":            {`{"a":{"b":[{"scope":"own"}]},"id":%d}`, `{"a":{"b":[{"scope":"all"}]},"id":%d}`, "/a/b/0/scope \"all\""},
		"one more":        {`{"id":%d,"x":"a"}`, `{"id":%d,"x":"a","force":true}`, "/force true"},
		"control: an id ": {`{"id":%d}`, `{"id":%d}`, ""},
	} {
		var tks []sallyport.Ticket
		for i := range 20 {
			args := tt.usual
			if i == 11 {
				args = tt.odd
			}
			tks = append(tks, sallyport.Ticket{ID: fmt.Sprint("tkt_", i), Binding: sallyport.Binding{Tool: "x", Args: json.RawMessage(fmt.Sprintf(args, 100+i))}})
		}
		g := approval.Groups(tks)[0]
		if first := g.Tickets[0]; tt.want == "" && len(first.Differs) > 0 || tt.want != "" && (first.Ticket != "tkt_11" || !slices.Contains(first.Differs, tt.want)) || len(g.Tickets[1].Differs) > 0 {
			t.Errorf("%s: the first is %+v, then %+v", name, first, g.Tickets[1])
		}
	}
}

// FO-59: of 20 approvals at once one counts for each admin, and one call runs;
// approve and reject have one winner; twins need a decision each.
func TestFO59_OneClickOneCall(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	resume, id := s.pend(t, request("pay", `{}`))
	count := func(n int, decide func(i int) error) (won int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				err := decide(i)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "already") {
					t.Errorf("a loser is told %v", err)
				}
			})
		}
		wg.Wait()
		return won
	}
	by := []string{"ann", "bob"}
	if won := count(20, func(i int) error {
		_, err := s.engine.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: true, By: by[i%2]})
		return err
	}); won != 1 {
		t.Errorf("%d approvals counted", won)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = s.Call(context.Background(), resume) })
	}
	wg.Wait()
	if len(s.ran) != 1 {
		t.Errorf("ran %d times", len(s.ran))
	}
	_, id = s.pend(t, request("pay", `{}`))
	if won := count(20, func(i int) error {
		_, err := s.engine.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: i%2 == 0, By: by[i%2]})
		return err
	}); won != 1 {
		t.Errorf("%d of approve and reject counted", won)
	}
	var twins []sallyport.Request
	for range 5 {
		r, _ := s.pend(t, request("pay", `{"twin":true}`))
		twins = append(twins, r)
	}
	for i, r := range twins {
		s.approve(t, r.Ticket, "ann")
		for _, other := range twins[i+1:] {
			if _, err := s.Call(t.Context(), other); sallyport.CodeOf(err) != sallyport.Pending {
				t.Errorf("decision %d released a twin: %v", i, err)
			}
		}
		if _, err := s.Call(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if len(s.ran) != 6 {
		t.Errorf("ran %d times in all, want 6", len(s.ran))
	}
}

// TO-24: 50 resumes of one approved ticket, half of them under other keys, are
// one execution.
func TestTO24_FiftyAtOnce(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	resume, id := s.pend(t, request("pay", `{}`))
	s.approve(t, id, "ann")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			r := resume
			if i%2 == 0 {
				r.Key = fmt.Sprint("other", i)
			}
			_, err := s.Call(context.Background(), r)
			if c := sallyport.CodeOf(err); err != nil && c != sallyport.InFlight && c != sallyport.Conflict {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if len(s.ran) != 1 {
		t.Errorf("ran %d times", len(s.ran))
	}
}

// FO-58: an approval is for one call, not for a tool.
func TestFO58_OneApprovalOneCall(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.tool("other__pay", func(t *sallyport.Tool) { t.Origin.Server = "other" })
	resume, id := s.pend(t, request("pay", `{"id":1,"note":"x"}`))
	s.approve(t, id, "ann")
	with := func(tool, args string) error {
		r := request(tool, args)
		r.Ticket = id
		_, err := s.Call(t.Context(), r)
		return err
	}
	for _, args := range []string{`{"id":2,"note":"x"}`, `{"id":1,"note":"x","cascade":true}`, `{"id":1}`, `{"id":1.0,"note":"x"}`} {
		if err := with("pay", args); sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("resumed as %s: %v", args, err)
		}
		s.pend(t, request("pay", args)) // a question of its own
	}
	if err := with("other__pay", `{"id":1,"note":"x"}`); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("through another alias: %v", err)
	}
	s.pend(t, request("other__pay", `{"id":1,"note":"x"}`))
	s.pend(t, request("pay", `{"id":1,"note":"x"}`)) // a twin
	elsewhere := resume
	elsewhere.Profile = "other"
	if _, err := s.Call(t.Context(), elsewhere); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("through another profile: %v", err)
	}
	s.who.OnBehalfOf = "dave"
	if _, err := s.Call(t.Context(), resume); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("on behalf of a user for whom nobody asked: %v", err)
	}
	s.who.OnBehalfOf = ""
	if len(s.ran) != 0 {
		t.Fatalf("ran %d", len(s.ran))
	}
	resume.Operation.Args = json.RawMessage("\n{ \"note\":\"\\u0078\", \"id\": 1 }")
	if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 || string(s.ran[0].Args) != `{"id":1,"note":"x"}` {
		t.Errorf("another order and white space: %v, ran %+v", err, s.ran)
	}
	if _, err := s.Call(t.Context(), resume); err != nil || len(s.ran) != 1 {
		t.Errorf("once more: %v, ran %d", err, len(s.ran))
	}
}
