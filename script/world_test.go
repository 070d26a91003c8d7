package script_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/gateway/gatewaytest"
	"sallyport.dev/sallyport/script"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/test/mortal"
)

// A world is everything that outlives a gateway: a database, and a target that
// remembers what was done to it. Its tools are do (changes), ask (needs a human),
// seen (as ask, with a witness), look (changes nothing), wild (what strangers wrote),
// secret (policies hide it) and run, whose programs are Go functions that speak as the launcher does.
type world struct {
	t       *testing.T
	dir     string
	key     *audit.Key
	program func(p *program) error
	act     func(ctx context.Context, job sallyport.Job) error // before an effect; may be nil
	text    string                                             // of every result, if set
	open    bool                                               // the planted weakness: inner calls are not sealed

	mu      sync.Mutex
	effects []string
	records []sallyport.Record
	agent   sallyport.Agent
	forbid  map[string]bool // tools that policies refuse
	demand  map[string]bool // tools that policies want a human for
	tokens  []string        // credentials that inner calls came with
}

func newWorld(t *testing.T) *world {
	dir, err := os.MkdirTemp("/dev/shm", "script") // no process dies here, so nothing needs the disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, agent: sallyport.Agent{Tenant: "t", ID: "ann", State: "active"},
		forbid: map[string]bool{"secret": true}, demand: map[string]bool{}}
	if w.key, err = audit.CreateKey(dir); err != nil {
		t.Fatal(err)
	}
	return w
}

// A house is one life of a gateway on the world.
type house struct {
	*world
	*mortal.Store
	front, inner *gateway.Gateway
	engine       *script.Engine
	tickets      *approval.Engine
}

// A ledger is the store as the gateways of one life see it.
type ledger struct{ *mortal.Store }

func (l ledger) Open(ctx context.Context, t sallyport.Ticket, key sallyport.ReservationKey, fp string, e sallyport.Entry) (out sallyport.Ticket, err error) {
	err = l.Write(func() error { out, err = l.Store.Open(ctx, t, key, fp, e); return err })
	return out, err
}

// live starts a gateway that dies at its nth write; 0: never.
func (w *world) live(n int, after bool) *house {
	w.t.Helper()
	h := &house{world: w, Store: mortal.Open(w.t, w.dir, w.key, n, after)}
	db := h.Store.Store
	h.tickets = approval.New(db, db, approval.Options{})
	build := func(who gateway.Authenticator, policies gateway.Authorizer) *gateway.Gateway {
		return &gateway.Gateway{
			Authenticator: who, Limiter: w, Catalog: catalogOf{}, Assessor: w, Authorizer: policies, Ledger: ledger{h.Store}, Sanitiser: gatewaytest.Plain{},
			Journal: w, Backends: map[string]sallyport.Backend{"fake": fake.New(w.work), "sandbox": fake.New(h.run)}, Now: time.Now,
			Log: slog.New(slog.DiscardHandler), Tickets: h.tickets, Taints: db, Limits: gateway.CallLimits{Taint: time.Hour}, Ended: w.ended,
		}
	}
	h.front = build(w, policy{w})
	leaves := &script.Seal{Agents: w, Door: h.front}
	var policies gateway.Authorizer = script.Sealed{Authorizer: policy{w}, Seal: leaves}
	if w.open {
		policies = policy{w}
	}
	h.inner = build(leaves, policies)
	h.engine = &script.Engine{Seal: leaves, Path: noted{w, h.inner}, Past: db}
	return h
}

func (h *house) end() {
	h.t.Helper()
	if err := h.Store.Close(); err != nil {
		h.t.Error(err)
	}
}

// noted remembers the credentials of inner calls.
type noted struct {
	w *world
	g *gateway.Gateway
}

func (n noted) Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
	n.w.mu.Lock()
	n.w.tokens = append(n.w.tokens, req.Credential)
	n.w.mu.Unlock()
	return n.g.Call(ctx, req)
}

// A program speaks as the launcher in a sandbox does, or as no launcher would.
type program struct {
	ctx context.Context
	run *script.Run
	n   int
}

// A reply is a line for the program.
type reply struct {
	N      int             `json:"n"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    sallyport.Code `json:"code"`
		Message string         `json:"message"`
	} `json:"error"`
}

var errStopped = errors.New("stopped")

func (p *program) send(tool, args string) {
	p.n++
	p.run.Hear(fmt.Appendf(nil, `{"n":%d,"tool":%q,"args":%s}`+"\n", p.n, tool, args))
}

func (p *program) recv() (r reply, err error) {
	select { // a program that is killed reads no more
	case <-p.run.Stopped():
		return r, errStopped
	default:
	}
	select {
	case b := <-p.run.Answers():
		return r, json.Unmarshal(b, &r)
	case <-p.run.Stopped():
		return r, errStopped
	case <-p.ctx.Done():
		return r, p.ctx.Err()
	}
}

// call calls a tool; what the path refuses is an error.
func (p *program) call(tool, args string) (string, error) {
	p.send(tool, args)
	r, err := p.recv()
	if err == nil && r.Error != nil {
		err = fmt.Errorf("%s: %s", r.Error.Code, r.Error.Message)
	}
	return string(r.Result), err
}

// run is the backend of scripts.
func (h *house) run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	r, err := h.engine.Open(ctx, job, sallyport.ScriptTools(job.Tool, job.Args))
	if err != nil {
		return sallyport.Output{}, err
	}
	failed := h.program(&program{ctx: ctx, run: r})
	calls, stopped, untrusted := r.Close()
	if ctx.Err() != nil {
		return sallyport.Output{}, ctx.Err()
	}
	result := map[string]any{"content": []any{}, "structuredContent": map[string]any{"calls": calls, "stopped": stopped, "failed": fmt.Sprint(failed)}}
	if untrusted {
		result["_meta"] = map[string]any{sallyport.MetaUntrusted: true}
	}
	b, err := json.Marshal(result)
	return sallyport.Output{Content: b, IsError: stopped != nil, Again: stopped != nil || failed != nil}, err
}

// An outcome is what came of a script.
type outcome struct {
	Calls   []sallyport.ScriptCall
	Stopped *sallyport.Error
	Failed  string

	err error
	res sallyport.Result
}

func (o outcome) String() string {
	return fmt.Sprintf("%+v, stopped %+v, failed %s, %v", o.Calls, o.Stopped, o.Failed, o.err)
}

func (h *house) script(key string, tools ...string) outcome {
	return h.scriptIn(context.Background(), sallyport.Request{Key: key}, tools...)
}

func (h *house) scriptIn(ctx context.Context, req sallyport.Request, tools ...string) (o outcome) {
	args, err := json.Marshal(map[string]any{"code": "-", "tools": tools})
	if err != nil {
		h.t.Fatal(err)
	}
	req.Credential, req.Door, req.Operation = "token-of-ann", "mcp", sallyport.Operation{Kind: sallyport.CallTool, Target: "run", Args: args}
	o.res, o.err = h.front.Call(ctx, req)
	if o.err == nil {
		var r struct{ StructuredContent *outcome }
		r.StructuredContent = &o
		if err := json.Unmarshal(o.res.Content, &r); err != nil {
			h.t.Fatal(err)
		}
	}
	return o
}

func (w *world) work(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if w.act != nil {
		if err := w.act(ctx, job); err != nil {
			return sallyport.Output{}, err
		}
	}
	if job.Tool.Name != "look" && job.Tool.Name != "wild" {
		w.mu.Lock()
		w.effects = append(w.effects, job.Tool.Name+" "+string(job.Args))
		w.mu.Unlock()
	}
	return fake.Text(cmp.Or(w.text, "ok "+string(job.Args))), nil
}

// done are the effects so far, sorted.
func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.effects)
	slices.Sort(out)
	return out
}

func (w *world) ended(r sallyport.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
}

// recorded are the inner calls on record.
func (w *world) recorded() (out []sallyport.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.Door == sallyport.ScriptDoor {
			out = append(out, r)
		}
	}
	return out
}

func (w *world) set(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

func (w *world) Authenticate(_ context.Context, _, bearer string) (sallyport.Principal, error) {
	return gatewaytest.Principal(bearer, "t")
}

func (w *world) Admit(sallyport.Principal, int) (func(), error) { return func() {}, nil }
func (w *world) Append(sallyport.Entry) error                   { return nil }
func (w *world) Healthy() error                                 { return nil }

func (w *world) Agent(_ context.Context, tenant, id string) (sallyport.Agent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tenant != w.agent.Tenant || id != w.agent.ID {
		return sallyport.Agent{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return w.agent, nil
}

func (w *world) Assess(_ context.Context, t sallyport.Tool, _ json.RawMessage) sallyport.Risk {
	switch t.Name {
	case "do", "secret":
		return sallyport.Risk{Level: sallyport.High, Reasons: []string{"changes things"}, Effects: []string{sallyport.EffectOpaque}}
	case "ask", "seen":
		return sallyport.Risk{Level: sallyport.Critical, Irreversible: true, Reasons: []string{"cannot be undone"}}
	}
	return sallyport.Risk{Level: sallyport.Low}
}

type catalogOf struct{}

func toolOf(name string) sallyport.Tool {
	t := sallyport.Tool{Name: name, Version: "1", Digest: "d", Status: sallyport.ToolActive, InputSchema: json.RawMessage(`{"type":"object"}`),
		Manifest: sallyport.Manifest{Untrusted: name == "wild"}, Origin: sallyport.Origin{Backend: "fake", Server: "s", Name: name}}
	if name == "seen" {
		t.Manifest.Witness = []sallyport.Witness{{Name: "before", Tool: "look"}}
	}
	if name == "run" {
		t.Origin, t.Code = sallyport.Origin{Backend: "sandbox", Name: name}, &sallyport.Script{Language: "javascript"}
	}
	return t
}

var names = []string{"ask", "do", "look", "run", "secret", "seen", "wild"}

func (catalogOf) Resolve(_, name string) (sallyport.Tool, error) {
	if !slices.Contains(names, name) {
		return sallyport.Tool{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return toolOf(name), nil
}

func (catalogOf) List(string) (all []sallyport.Tool, _ error) {
	for _, n := range names {
		all = append(all, toolOf(n))
	}
	return all, nil
}
func (catalogOf) Validate(sallyport.Tool, json.RawMessage) error { return nil }
func (catalogOf) Generation() uint64                             { return 1 }
func (catalogOf) Listed(string) bool                             { return true }

type policy struct{ w *world }

func (p policy) Authorize(q gateway.Question) (v gateway.Verdict, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	v.Allow = !p.w.forbid[q.Tool.Name]
	if p.w.demand[q.Tool.Name] {
		v.Demands = []sallyport.Demand{{Policy: "test"}}
	}
	return v, nil
}
func (policy) Generation() uint64 { return 1 }

// approve approves a ticket.
func (h *house) approve(id string) {
	h.t.Helper()
	if _, err := h.tickets.Decide(context.Background(), "t", sallyport.Decision{Ticket: id, Approve: true, By: "ada"}); err != nil {
		h.t.Fatal(err)
	}
}

// settle says of each call of unknown outcome what the target says.
func (h *house) settle() (n int) {
	h.t.Helper()
	all, err := h.Reservations(context.Background(), store.ReservationFilter{Tenant: "t", States: []sallyport.ReservationState{sallyport.Unknown}})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range all {
		if !strings.HasPrefix(r.Key, sallyport.ScriptKeyPrefix) {
			continue // a script settles itself: it is run again
		}
		state := sallyport.Failed
		if _, n, ok := sallyport.ParseScriptKey(r.Key); ok && slices.Contains(h.done(), fmt.Sprintf("%s {\"n\":%d}", r.Tool, n)) {
			state = sallyport.Done
		}
		if err := h.Resolve(context.Background(), store.Resolution{Key: r.ReservationKey, Call: r.CallID, State: state, By: "ada", Reason: "looked"}); err != nil {
			h.t.Fatal(err)
		}
		n++
	}
	return n
}
