package saga_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/backend/fake"
	sagatools "sallyport.dev/sallyport/backend/saga"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/gatewaytest"
	"sallyport.dev/sallyport/saga"
	"sallyport.dev/sallyport/saga/plan"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/mortal"
)

// A world is everything that outlives a gateway: a database, the record's key,
// and targets that remember what was done to them.
type world struct {
	hidden bool // servers have not told their tools yet; guarded by mu

	t    *testing.T
	dir  string
	key  *audit.Key
	plan map[string]func(n int, job sallyport.Job) (sallyport.Output, error) // what a call does besides its effect, by its arguments' "what"

	mu      sync.Mutex
	effects []string       // in order: "do a", "undo a"
	tries   map[string]int // calls that reached the target
	agent   sallyport.Agent
	behalf  string          // "+USER": for whom ann starts plans
	perm    gateway.Verdict // of every call that is let through
	risk    map[string]sallyport.Risk
	manif   map[string]sallyport.Manifest
	digest  string // of every tool
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: folder(t), plan: map[string]func(int, sallyport.Job) (sallyport.Output, error){}, tries: map[string]int{},
		agent: sallyport.Agent{Tenant: "t", ID: "ann", State: "active"}, perm: gateway.Verdict{Allow: true},
		risk: map[string]sallyport.Risk{}, manif: map[string]sallyport.Manifest{}, digest: "d"}
	var err error
	if w.key, err = audit.CreateKey(w.dir); err != nil {
		t.Fatal(err)
	}
	return w
}

// folder is one in memory where there is such: no process dies here, so nothing
// needs the disk.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "saga")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A house is one life of a gateway on the world.
type house struct {
	*world
	db     ledger
	front  *gateway.Gateway
	steps  *gateway.Gateway
	engine *saga.Engine
	seal   *saga.Seal
	stop   context.CancelFunc
	done   chan struct{}
}

// ledger is the store as the gateway of one life sees it.
type ledger struct{ *mortal.Store }

func (m ledger) CreateSaga(ctx context.Context, s sallyport.Saga, e sallyport.Entry) (out sallyport.Saga, err error) {
	err = m.Write(func() error { out, err = m.Store.CreateSaga(ctx, s, e); return err })
	return out, err
}

func (m ledger) MoveSaga(ctx context.Context, v store.SagaMove) (out sallyport.Saga, err error) {
	out = v.Saga
	err = m.Write(func() error { out, err = m.Store.MoveSaga(ctx, v); return err })
	return out, err
}

func (m ledger) LeaseSaga(ctx context.Context, tenant, id, owner string, fence int64, until time.Time) (out sallyport.Saga, err error) {
	err = m.Write(func() error { out, err = m.Store.LeaseSaga(ctx, tenant, id, owner, fence, until); return err })
	return out, err
}

func (m ledger) Saga(ctx context.Context, tenant, id string) (sallyport.Saga, error) {
	if err := m.Gone(); err != nil {
		return sallyport.Saga{}, err
	}
	return m.Store.Saga(ctx, tenant, id)
}

// live starts a gateway that dies at its nth write; 0: never.
func (w *world) live(n int, after bool) *house {
	w.t.Helper()
	h := &house{world: w, db: ledger{mortal.Open(w.t, w.dir, w.key, n, after)}, done: make(chan struct{})}
	h.wire()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { defer close(h.done); h.engine.Run(ctx) }()
	return h
}

func (h *house) wire() {
	cat, backends := catalogOf{h.world}, map[string]sallyport.Backend{"fake": fake.New(h.world.act)}
	book := &plan.Book{Catalog: cat, Assessor: h.world}
	build := func(who gateway.Authenticator, policies gateway.Authorizer, plans gateway.Plans) *gateway.Gateway {
		return &gateway.Gateway{
			Authenticator: who, Limiter: h.world, Catalog: plan.Catalog{Catalog: cat, Book: book}, Assessor: plan.Assessor{Next: h.world, Book: book},
			Authorizer: policies, Ledger: h.db, Sanitiser: gatewaytest.Plain{}, Journal: quiet{}, Backends: backends, Now: time.Now,
			Log: slog.New(slog.DiscardHandler), Plans: plans, Tickets: approval.New(h.db, h.db, approval.Options{}),
		}
	}
	h.seal = &saga.Seal{Agents: h.world, Sagas: h.db, Approvals: h.db, Now: time.Now}
	policies := plan.Authorizer{Authorizer: policy{h.world}, Book: book}
	h.steps = build(h.seal, saga.Sealed{Authorizer: policies, Seal: h.seal}, h.seal)
	h.engine = saga.New(saga.Options{Store: h.db, Ledger: h.db, Gateway: h.steps, Seal: h.seal, Book: book, Owner: h.db.Writer(),
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Poll: 10 * time.Millisecond, Lease: 10 * time.Second, Patience: time.Nanosecond, Grace: 5 * time.Second})
	backends[plan.Backend] = sagatools.New(h.engine)
	h.front = build(h.world, policies, h.engine)
}

// end ends this life: a gateway that stops, not one that is killed.
func (h *house) end() {
	h.stop()
	<-h.done
	if err := h.db.Close(); err != nil {
		h.t.Error(err)
	}
}

func (w *world) Authenticate(_ context.Context, _, bearer string) (sallyport.Principal, error) {
	return gatewaytest.Principal(bearer, "t")
}

func (w *world) Admit(sallyport.Principal, int) (func(), error) { return func() {}, nil }

func (w *world) Agent(_ context.Context, tenant, id string) (sallyport.Agent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tenant != w.agent.Tenant || id != w.agent.ID {
		return sallyport.Agent{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return w.agent, nil
}

func (w *world) Assess(_ context.Context, t sallyport.Tool, _ json.RawMessage) sallyport.Risk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.risk[t.Name]; ok {
		return r
	}
	return sallyport.Risk{Level: sallyport.High, Reasons: []string{"changes things"}}
}

// act is every tool: its effect is a line, then comes what the test planned.
func (w *world) act(_ context.Context, job sallyport.Job) (sallyport.Output, error) {
	var in struct {
		What string `json:"what"`
	}
	if err := json.Unmarshal(job.Args, &in); err != nil {
		return sallyport.Output{}, err
	}
	name := job.Tool.Name + " " + in.What
	w.mu.Lock()
	w.tries[name]++
	n, plan := w.tries[name], w.plan[name]
	w.mu.Unlock()
	if plan != nil {
		return plan(n, job)
	}
	w.effect(name)
	return fake.Text("ok"), nil
}

func (w *world) effect(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects = append(w.effects, name)
}

func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.effects)
}

func fails(int, sallyport.Job) (sallyport.Output, error) { return fake.Failure("out of stock"), nil }

type catalogOf struct{ w *world }

func (c catalogOf) Resolve(_, name string) (sallyport.Tool, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, t := range sagatools.Tools() {
		if t.Name == name {
			t.Digest, t.Status = "own", sallyport.ToolActive
			return t, nil
		}
	}
	if c.w.hidden || !slices.Contains([]string{"do", "undo", "read", "delete_all"}, name) {
		return sallyport.Tool{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return sallyport.Tool{Name: name, Version: "1", Digest: c.w.digest, Status: sallyport.ToolActive, Manifest: c.w.manif[name],
		Origin: sallyport.Origin{Backend: "fake", Server: "s", Name: name}}, nil
}
func (catalogOf) List(string) ([]sallyport.Tool, error)          { return nil, nil }
func (catalogOf) Validate(sallyport.Tool, json.RawMessage) error { return nil }
func (catalogOf) Generation() uint64                             { return 1 }
func (catalogOf) Listed(string) bool                             { return true }

type policy struct{ w *world }

func (p policy) Authorize(q gateway.Question) (gateway.Verdict, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if q.Action == gateway.ActionCall && q.Tool.Name == "do" {
		return p.w.perm, nil
	}
	return gateway.Verdict{Allow: true}, nil
}
func (policy) Generation() uint64 { return 1 }

type quiet struct{}

func (quiet) Append(sallyport.Entry) error { return nil }
func (quiet) Healthy() error               { return nil }

// planOf writes a plan of steps; each is "name" or "name -" for one that
// nothing undoes, then what YAML the step has besides.
func planOf(steps ...string) string {
	var b strings.Builder
	b.WriteString("name: test\nsteps:\n")
	for _, s := range steps {
		name, more, _ := strings.Cut(s, "|")
		name, undo, _ := strings.Cut(name, " ")
		fmt.Fprintf(&b, "- id: %s\n  tool: do\n  arguments: {what: %s}\n", name, name)
		switch {
		case undo == "-":
			b.WriteString("  compensate: none\n")
		case undo == "":
			fmt.Fprintf(&b, "  compensate: {tool: undo, arguments: {what: %s}, retry: {attempts: 3, backoff: 1ms}}\n", name)
		case undo == "idem":
			fmt.Fprintf(&b, "  compensate: {tool: undo, arguments: {what: %s}, idempotent: true, retry: {attempts: 3, backoff: 1ms}}\n", name)
		}
		if more != "" {
			b.WriteString("  " + more + "\n")
		}
	}
	return b.String()
}

// request is a call of ann's.
func request(tool string, args any) sallyport.Request {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return sallyport.Request{Credential: "token-of-ann", Door: "mcp", Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: tool, Args: b}}
}

func (h *house) request(text string) sallyport.Request {
	h.t.Helper()
	raw, err := plan.JSON("plan.yaml", []byte(text))
	if err != nil {
		h.t.Fatal(err)
	}
	r := request(plan.ToolRun, map[string]any{"plan": raw})
	r.Credential += h.behalf
	return r
}

// start starts a plan and returns the saga's id.
func (h *house) start(text string) string {
	h.t.Helper()
	res, err := h.front.Call(context.Background(), h.request(text))
	if err != nil {
		h.t.Fatal(err)
	}
	return idIn(h.t, res)
}

func idIn(t *testing.T, res sallyport.Result) string {
	t.Helper()
	var v struct{ StructuredContent saga.View }
	if err := json.Unmarshal(res.Content, &v); err != nil || v.StructuredContent.ID == "" {
		t.Fatalf("%v: %s", err, res.Content)
	}
	return v.StructuredContent.ID
}

// get reads a saga even of a life that is over.
func (h *house) get(id string) sallyport.Saga {
	h.t.Helper()
	s, err := h.db.Store.Saga(context.Background(), "t", id)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// until waits for the saga to be in a state.
func (h *house) until(id string, states ...sallyport.SagaState) sallyport.Saga {
	h.t.Helper()
	deadline := time.Now().Add(await.Patience)
	for {
		s := h.get(id)
		if slices.Contains(states, s.State) {
			return s
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("saga is %s (%s), want %v\n%+v", s.State, s.Reason, states, s.Steps)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (h *house) change(id, verb, step string) {
	h.t.Helper()
	if err := h.try(id, verb, step); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) try(id, verb, step string) error {
	_, err := h.engine.Change(context.Background(), "t", id, saga.Change{Verb: verb, Step: step, By: "ada", Reason: "looked", Human: true})
	return err
}

// resolve says what the target says.
func (h *house) resolve(id, step string, done bool) {
	h.t.Helper()
	_, err := h.engine.Change(context.Background(), "t", id, saga.Change{Verb: "resolve", Step: step, Done: done, By: "ada", Reason: "looked", Human: true})
	if err != nil {
		h.t.Fatal(err)
	}
}

func stateOf(s sallyport.Saga, id string) sallyport.StepState {
	for _, st := range s.Steps {
		if st.ID == id {
			return st.State
		}
	}
	return ""
}

func (w *world) want(effects ...string) {
	w.t.Helper()
	if got := w.done(); !slices.Equal(got, effects) {
		w.t.Errorf("effects %q\n   want %q", got, effects)
	}
}
