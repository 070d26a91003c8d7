package plan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/wire"
)

// Backend is the Tool.Origin.Backend of the saga tools.
const Backend = "saga"

// The saga tools.
const (
	ToolRun      = "saga_run"
	ToolStatus   = "saga_status"
	ToolBegin    = "saga_begin"
	ToolCommit   = "saga_commit"
	ToolRollback = "saga_rollback"
)

// A Book reads plans: those that come with a call, and those that the operator
// keeps under a name. It says what each would do, and touches nothing.
type Book struct {
	Catalog  gateway.Catalog
	Assessor gateway.Assessor
	Image    string // digest of the image that sandbox tools run on, part of a plan's digest

	named atomic.Pointer[map[string]json.RawMessage] // canonical JSON
}

// Load reads every plan of a folder: NAME.yaml, NAME.yml or NAME.json. It takes
// all of them or none; a missing folder has none.
func (b *Book) Load(dir string) error {
	plans := map[string]json.RawMessage{}
	var wrong []error
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			continue
		}
		file := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(file)
		if err == nil {
			name := strings.TrimSuffix(e.Name(), ext)
			plans[name], err = JSON(file, text)
		}
		wrong = append(wrong, err)
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	b.named.Store(&plans)
	return nil
}

// JSON parses a plan and returns it as canonical JSON, as saga_run takes it.
func JSON(file string, text []byte) (json.RawMessage, error) {
	if _, err := Parse(file, text); err != nil {
		return nil, err
	}
	n, err := source{file}.read(text)
	if err != nil {
		return nil, err
	}
	return sallyport.Canonical(n.json(nil))
}

// A Draft is a plan as it would run: tools resolved, inputs filled in, every
// step and compensation judged.
type Draft struct {
	Name     string
	Version  string
	Steps    []sallyport.SagaStep
	Missing  []string // steps whose tool does not exist
	Digest   string
	Risk     sallyport.Risk
	Warnings []string
}

// Draft reads the arguments of saga_run.
func (b *Book) Draft(args json.RawMessage) (Draft, error) {
	text, file := wire.Member(args, "plan"), "plan"
	if name, ok := wire.String(wire.Member(args, "name")); ok {
		if text != nil {
			return Draft{}, invalid("both plan and name are given", "give one of them")
		}
		plans := b.named.Load()
		if plans == nil || (*plans)[name] == nil {
			return Draft{}, invalid(fmt.Sprintf("there is no plan %.64q", name), "an operator puts plans into the folder sagas.plans; or send the plan itself")
		}
		text, file = (*plans)[name], name
	}
	if text == nil {
		return Draft{}, invalid("neither plan nor name is given", "give one of them")
	}
	p, err := Parse(file, text)
	if err != nil {
		return Draft{}, err
	}
	return b.draft(p, wire.Member(args, "inputs"))
}

// Undo is what a tool's manifest says undoes a call of it, nil if nothing does.
func (b *Book) Undo(t sallyport.Tool, args json.RawMessage) *sallyport.SagaCall {
	c := t.Manifest.Compensate
	if c == nil {
		return nil
	}
	filled, err := expand(c.Args, sources{undo: true, arguments: args})
	tool, unknown := b.Catalog.Resolve("", c.Tool)
	if err != nil || unknown != nil {
		return nil
	}
	undo := b.Call(tool, Call{Idempotent: c.Idempotent}, filled)
	return &undo
}

func invalid(message, hint string) error {
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Validate, Message: message, Hint: hint}
}

func (b *Book) draft(p Plan, inputs json.RawMessage) (Draft, error) {
	d := Draft{Name: p.Name, Version: p.Version}
	d.Risk = sallyport.Risk{Level: sallyport.High, Reasons: []string{fmt.Sprintf("starts a saga of %d steps, approved or refused as a whole", len(p.Steps))}}
	for _, st := range p.Steps {
		step, missing, err := b.step(st, inputs)
		if err != nil {
			return d, err
		}
		if missing != "" {
			d.Missing = append(d.Missing, missing)
		}
		d.Steps = append(d.Steps, step)
	}
	d.Warnings = warnings(p, d.Steps)
	for _, s := range d.Steps {
		d.Risk = d.Risk.Join(labelled("step "+s.ID, s.Do))
		if s.Undo != nil {
			d.Risk = d.Risk.Join(labelled("undo of "+s.ID, *s.Undo))
		}
	}
	d.Digest = digestOf(d, b.Image)
	// The digest that was judged travels with the verdict to the ticket.
	d.Risk.Parts = append([]sallyport.Part{{Label: partDigest, Text: d.Digest}}, d.Risk.Parts...)
	return d, nil
}

const partDigest = "plan digest"

// JudgedDigest is the digest of the plan that a verdict is about.
func JudgedDigest(r sallyport.Risk) string {
	for _, p := range r.Parts {
		if p.Label == partDigest {
			return p.Text
		}
	}
	return ""
}

// labelled says of which step each reason is, and shows the call itself.
func labelled(what string, c sallyport.SagaCall) sallyport.Risk {
	r := c.Risk
	r.Reasons = slices.Clone(r.Reasons)
	for i, reason := range r.Reasons {
		r.Reasons[i] = what + " (" + c.Tool + "): " + reason
	}
	text := c.Tool + " " + string(c.Args)
	if len(text) > 400 {
		text = strings.ToValidUTF8(text[:400], "") + "…"
	}
	r.Parts = append([]sallyport.Part{{Label: what, Text: text}}, r.Parts...)
	return r
}

func digestOf(d Draft, image string) string {
	type call struct {
		Call  sallyport.SagaCall
		Risky string
	}
	type step struct {
		ID       string
		NoReturn bool
		Do, Undo *call
	}
	of := func(c *sallyport.SagaCall) *call {
		if c == nil {
			return nil
		}
		bare := *c
		bare.Risk = sallyport.Risk{} // an opinion; what is bound is what runs
		return &call{bare, fmt.Sprint(c.Risk.Level, c.Risk.Irreversible)}
	}
	all := struct {
		Form, Name, Version, Image string
		Steps                      []step
	}{"sallyport saga plan v1", d.Name, d.Version, image, nil}
	for _, s := range d.Steps {
		all.Steps = append(all.Steps, step{s.ID, s.NoReturn, of(&s.Do), of(s.Undo)})
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err) // our own types; arguments are canonical JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// step resolves one step. missing names a tool that does not exist; who may not
// see a tool must not be told more, so it is no error here.
func (b *Book) step(st Step, inputs json.RawMessage) (out sallyport.SagaStep, missing string, err error) {
	out = sallyport.SagaStep{ID: st.ID, NoReturn: st.NoReturn, State: sallyport.StepPending}
	args, err := expand(st.Do.Args, sources{inputs: inputs})
	if err != nil {
		return out, "", about(st, err)
	}
	tool, err := b.Catalog.Resolve("", st.Do.Tool)
	if err != nil {
		out.Do = sallyport.SagaCall{Tool: st.Do.Tool, Args: args}
		return out, st.Do.Tool, nil
	}
	if err := plain(tool); err != nil {
		return out, "", about(st, err)
	}
	out.Do = b.Call(tool, st.Do, args)
	undo := st.Undo
	if undo == nil && !st.None && tool.Manifest.Compensate != nil {
		c := tool.Manifest.Compensate
		undo = &Call{Tool: c.Tool, Args: c.Args, Idempotent: c.Idempotent}
	}
	if undo == nil {
		return out, "", nil
	}
	if args, err = expand(undo.Args, sources{inputs: inputs, undo: true, arguments: args}); err != nil {
		return out, "", about(st, err)
	}
	if tool, err = b.Catalog.Resolve("", undo.Tool); err != nil {
		out.Undo = &sallyport.SagaCall{Tool: undo.Tool, Args: args}
		return out, undo.Tool, nil
	}
	if err := plain(tool); err != nil {
		return out, "", about(st, err)
	}
	c := b.Call(tool, *undo, args)
	out.Undo = &c
	return out, "", nil
}

func about(st Step, err error) error {
	var e sallyport.Error
	if ours, ok := errors.AsType[*sallyport.Error](err); ok {
		e = *ours
	} else {
		e = sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Validate, Message: err.Error(), Hint: "see the chapter on sagas in docs/operations.md"}
	}
	e.Message = fmt.Sprintf("step %q: %s", st.ID, e.Message)
	return &e
}

// plain refuses the gateway's own tools as steps: a saga of sagas has no order.
func plain(t sallyport.Tool) error {
	if t.Origin.Backend == Backend || t.Origin.Backend == "builtin" {
		return invalid(fmt.Sprintf("%s cannot be a step", t.Name), "steps are calls of tools that do something")
	}
	return nil
}

// Call is a call of a tool, judged.
func (b *Book) Call(t sallyport.Tool, c Call, args json.RawMessage) sallyport.SagaCall {
	return sallyport.SagaCall{
		Tool: t.Name, Version: t.Version, Digest: t.Digest, Endpoint: t.Origin.Endpoint, Credential: t.Origin.Credential,
		Args: args, Risk: b.risk(t, args), Idempotent: c.Idempotent,
		Timeout: c.Timeout, Attempts: c.Attempts, Backoff: c.Backoff,
	}
}

// risk judges a call whose references stand for values that nobody knows yet.
// Where such a value would say what the call does, the verdict is the worst.
func (b *Book) risk(t sallyport.Tool, args json.RawMessage) sallyport.Risk {
	n, err := template(args)
	if err != nil {
		return worst("its arguments cannot be read")
	}
	var later []sallyport.Risk
	filled, err := n.fill(func(at string, r node) (node, error) {
		v, err := source{"arguments"}.ref(r)
		if err != nil {
			return node{}, err
		}
		later = append(later, unknownAt(t, at, v))
		return map[string]node{
			"integer": {kind: '0', text: "0"}, "number": {kind: '0', text: "0"}, "boolean": {kind: 't', text: "true"},
		}[v.kind].or(node{kind: '"', text: "x"}), nil
	})
	if err != nil {
		return worst("its arguments cannot be read")
	}
	canonical, err := sallyport.Canonical(filled.json(nil))
	if err != nil {
		return worst("its arguments cannot be read")
	}
	risk := b.Assessor.Assess(context.Background(), t, canonical)
	for _, l := range later {
		if risk.Mutating() || l.Irreversible { // a tool that only reads does so whatever it is given
			risk = risk.Join(l)
		}
	}
	return risk
}

func (n node) or(other node) node {
	if n.kind == 0 {
		return other
	}
	return n
}

func worst(why string) sallyport.Risk {
	return sallyport.Risk{Level: sallyport.Critical, Irreversible: true, Reasons: []string{why}}
}

// unknownAt is what it means that the value at a place comes only at run time.
func unknownAt(t sallyport.Tool, at string, r ref) sallyport.Risk {
	for _, f := range t.Manifest.Fields {
		within := at == f.Path || strings.HasPrefix(at, f.Path+"/") || strings.HasPrefix(f.Path, at+"/")
		switch {
		case !within:
		case f.Kind == "path":
		case (f.Kind == "amount" || f.Kind == "recipient") && r.declared():
		default:
			return worst(fmt.Sprintf("what stands at %s (%s) comes from %s, so nobody can tell beforehand what the call does", at, f.Kind, r))
		}
	}
	how := "as declared"
	if !r.declared() {
		how = "whatever it is"
	}
	return sallyport.Risk{Level: sallyport.High, Reasons: []string{fmt.Sprintf("%s is filled in from %s, %s", at, r, how)}}
}

// warnings are what a person should know before the plan runs.
func warnings(p Plan, steps []sallyport.SagaStep) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	past := ""
	for i, s := range steps {
		last := i == len(steps)-1
		switch {
		case past != "" && p.Steps[i].Undo != nil:
			add("step %s comes after the point of no return %s: its compensation never runs", s.ID, past)
		case past == "" && s.Undo == nil && !p.Steps[i].None && !last && !s.NoReturn && s.Do.Risk.Mutating():
			add("step %s has no compensation: if a later step fails, its effect stays; write compensate:, or compensate: none", s.ID)
		}
		if s.NoReturn {
			past = s.ID
		}
		if s.Undo == nil {
			continue
		}
		for _, r := range refsIn(s.Undo.Args) {
			if why := foreign(steps, i, r); why != "" {
				add("the compensation of %s uses %s, %s: it will wait for a human", s.ID, r, why)
			}
		}
	}
	return all
}

// foreign says why a value from a result may not steer a compensation without
// a human, or "". A result is what an upstream says; only what a step of this
// saga made, in the declared form, is taken on its word.
func foreign(steps []sallyport.SagaStep, i int, r ref) string {
	from, _ := stepOf(steps, i, r)
	switch {
	case from < 0:
		return "which is no step's"
	case !steps[from].Do.Risk.Mutating():
		return "which a step only read and did not make"
	case !r.declared():
		return "which is declared with neither a pattern nor a type but string"
	}
	return ""
}
