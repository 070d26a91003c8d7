package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/gatewaytest"
	"sallyport.dev/sallyport/pause"
)

// world is a gateway whose engines are hand-written fakes; tests change what
// they need to.
type world struct {
	*Gateway
	mu      sync.Mutex
	entries []sallyport.Entry
	ran     []sallyport.Job
	risk    sallyport.Risk
	verdict Verdict
	tools   map[string]sallyport.Tool
	gen     uint64
	run     func(context.Context, sallyport.Job) (sallyport.Output, error)
	sick    error // of the journal
	blind   bool  // nobody may know of any tool
	slots   int
	ledger  *memory
	now     time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{
		verdict: Verdict{Allow: true, Policies: []string{"p1"}},
		tools: map[string]sallyport.Tool{"echo": {
			Name: "echo", Version: "1", Digest: "d1", Status: sallyport.ToolActive,
			Origin: sallyport.Origin{Backend: "fake", Server: "s", Name: "echo"},
		}},
		run: func(_ context.Context, j sallyport.Job) (sallyport.Output, error) {
			return sallyport.Output{Content: json.RawMessage(`{"content":[{"type":"text","text":` + quote(string(j.Args)) + `}]}`)}, nil
		},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	w.ledger = &memory{w: w, res: map[sallyport.ReservationKey]*sallyport.Reservation{}, tickets: map[string]*sallyport.Ticket{}, writer: "r"}
	w.Gateway = &Gateway{
		Authenticator: w, Limiter: w, Catalog: catalogFake{w}, Assessor: w, Authorizer: authorizerFake{w}, Ledger: w.ledger,
		Tickets: w.ledger, Sanitiser: plain{}, Journal: w, Backends: map[string]sallyport.Backend{"fake": backendFake{w}},
		Now: func() time.Time { return w.now }, Log: slog.New(slog.DiscardHandler),
	}
	return w
}

func quote(s string) string { b, _ := json.Marshal(s); return string(b) }

func (w *world) Authenticate(_ context.Context, _, bearer string) (sallyport.Principal, error) {
	return gatewaytest.Principal(bearer, "t1")
}

func (w *world) Admit(_ sallyport.Principal, size int) (func(), error) {
	if size > 1000 {
		return nil, &sallyport.Error{Code: sallyport.TooLarge, Message: "too large"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots++
	return sync.OnceFunc(func() { w.mu.Lock(); w.slots--; w.mu.Unlock() }), nil
}

func (w *world) Assess(context.Context, sallyport.Tool, json.RawMessage) sallyport.Risk {
	return w.risk
}

func (w *world) Append(e sallyport.Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, e)
	return nil
}
func (w *world) Healthy() error { return w.sick }

// last is the record of the last outcome.
func (w *world) last(t *testing.T) sallyport.Record {
	t.Helper()
	for i := len(w.entries) - 1; i >= 0; i-- {
		if w.entries[i].Kind == sallyport.EntryOutcome {
			var r sallyport.Record
			if err := json.Unmarshal(w.entries[i].Payload, &r); err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	t.Fatal("no outcome was recorded")
	return sallyport.Record{}
}

type catalogFake struct{ w *world }

func (c catalogFake) Resolve(_, name string) (sallyport.Tool, error) {
	tool, ok := c.w.tools[name]
	if !ok {
		return tool, &sallyport.Error{Code: sallyport.NotFound}
	}
	return tool, nil
}
func (c catalogFake) List(string) (all []sallyport.Tool, _ error) {
	for _, t := range c.w.tools {
		all = append(all, t)
	}
	return all, nil
}
func (c catalogFake) Validate(_ sallyport.Tool, args json.RawMessage) error {
	if strings.Contains(string(args), "bad") {
		return errors.New("/bad: not allowed")
	}
	return nil
}
func (c catalogFake) Generation() uint64 { return c.w.gen }
func (c catalogFake) Listed(string) bool { return true }

type authorizerFake struct{ w *world }

func (a authorizerFake) Authorize(q Question) (Verdict, error) {
	if q.Action == ActionList {
		return Verdict{Allow: !strings.HasPrefix(q.Tool.Name, "hidden") && !a.w.blind}, nil
	}
	return a.w.verdict, nil
}
func (a authorizerFake) Generation() uint64 { return a.w.gen }

type backendFake struct{ w *world }

func (backendFake) Info() sallyport.Info        { return sallyport.Info{Name: "fake", Isolation: "none"} }
func (backendFake) Check(context.Context) error { return nil }
func (backendFake) Close() error                { return nil }
func (b backendFake) Run(ctx context.Context, j sallyport.Job) (sallyport.Output, error) {
	b.w.mu.Lock()
	b.w.ran = append(b.w.ran, j)
	b.w.mu.Unlock()
	return b.w.run(ctx, j)
}

type plain = gatewaytest.Plain

// memory is a ledger in memory, for the logic of the path. The real one, and
// what it promises, is tested in store/.
type memory struct {
	mu      sync.Mutex
	w       *world
	res     map[sallyport.ReservationKey]*sallyport.Reservation
	tickets map[string]*sallyport.Ticket
	opened  []string
	full    error // of Open
	refuse  error // of Finish
	writer  string
}

func (m *memory) Find(_ context.Context, key sallyport.ReservationKey) (*sallyport.Reservation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.res[key]; r != nil {
		c := *r
		if c.State == sallyport.Executing && !m.w.now.Before(c.Lease) {
			c.State = sallyport.Unknown
		}
		return &c, nil
	}
	return nil, nil
}

func (m *memory) Ticket(_ context.Context, tenant, id string) (sallyport.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tickets[id]
	if !ok || t.Binding.Tenant != tenant {
		return sallyport.Ticket{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return *t, nil
}

func (m *memory) Open(_ context.Context, t sallyport.Ticket, key sallyport.ReservationKey, fp string, e sallyport.Entry) (sallyport.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full != nil {
		return sallyport.Ticket{}, m.full
	}
	m.tickets[t.ID] = &t
	m.res[key] = &sallyport.Reservation{ReservationKey: key, Fingerprint: fp, State: sallyport.AwaitingApproval, Ticket: t.ID}
	return t, m.w.Append(e)
}

func (m *memory) Begin(_ context.Context, b Begin) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := b.Unchanged(); err != nil {
		return 0, err
	}
	r := m.res[b.Key]
	if r != nil && (r.State == sallyport.Executing || r.State == sallyport.Done) {
		return 0, &sallyport.Error{Code: sallyport.InFlight}
	}
	if b.Ticket != "" {
		t := m.tickets[b.Ticket]
		if t == nil || t.State != sallyport.TicketApproved || t.Hash != b.TicketHash {
			return 0, &sallyport.Error{Code: sallyport.Conflict}
		}
		t.State = sallyport.TicketConsumed
	}
	fence := int64(1)
	if r != nil {
		fence = r.Fence + 1
	}
	m.res[b.Key] = &sallyport.Reservation{ReservationKey: b.Key, Fingerprint: b.Fingerprint, State: sallyport.Executing, CallID: b.CallID, Fence: fence, Ticket: b.Ticket, Writer: m.writer, Lease: m.w.now.Add(b.Lease)}
	return fence, m.w.Append(b.Intent)
}

func (m *memory) Finish(_ context.Context, f Finish) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.res[f.Key]
	if m.refuse != nil || r == nil || r.Fence != f.Fence {
		return errors.Join(m.refuse, errors.New("stale fence or refused"))
	}
	r.State, r.Output, r.IsError, r.Reason = f.State, f.Output, f.IsError, f.Reason
	return m.w.Append(f.Outcome)
}

func (m *memory) Wait(ctx context.Context, _, id string) error {
	for {
		m.mu.Lock()
		s := m.tickets[id].State
		m.mu.Unlock()
		if s != sallyport.TicketPending {
			return nil
		}
		if !pause.For(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (m *memory) Opened(_ context.Context, t sallyport.Ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = append(m.opened, t.ID)
}

func (m *memory) Withdraw(_ context.Context, who sallyport.Principal, id, reason string) (sallyport.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tickets[id]
	switch {
	case t == nil || t.Binding.Principal != who.ID:
		return sallyport.Ticket{}, &sallyport.Error{Code: sallyport.NotFound}
	case t.State == sallyport.TicketPending:
		t.State, t.Reason = sallyport.TicketWithdrawn, reason
	case t.State == sallyport.TicketApproved:
		t.State, t.VoidReason = sallyport.TicketVoid, reason
	default:
		return *t, &sallyport.Error{Code: sallyport.Conflict}
	}
	return *t, nil
}

func (m *memory) Void(_ context.Context, _, id, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tickets[id]
	if t == nil || t.State != sallyport.TicketApproved {
		return &sallyport.Error{Code: sallyport.Conflict}
	}
	t.State, t.VoidReason = sallyport.TicketVoid, reason
	return nil
}

func (m *memory) decide(id string, s sallyport.TicketState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets[id].State = s
}
