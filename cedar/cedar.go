// Package cedar decides by policy what an agent may list and call. Policies are
// Cedar files in one folder; nothing is allowed unless a policy allows it, and
// nothing is allowed when a policy cannot be evaluated.
//
// Annotations carry what plain Cedar cannot say:
//
//	@id("name")            names the policy in records and messages
//	@message("…")          shown to the agent when the policy refuses or holds
//	@hint("…")             shown after the message: what to do
//	@approval("required")  a human must approve the call
//	@approvers("a,b")      … of these groups; without it, any admin
//	@quorum("2")           … so many different ones, at most 20; without it, one
//	@network("none")       the call gets no network
//	@description("…")      for readers only
//
// Approval and network, the obligations, can stand on a permit or on a forbid. A permit with
// one allows, under that obligation. A forbid with one does not refuse; it puts
// the obligation on calls that something else permits. So taking the annotation
// off a forbid makes it stricter, never looser.
package cedar

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	cedargo "github.com/cedar-policy/cedar-go"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// An Engine implements gateway.Authorizer over one folder of policies.
// It is safe for concurrent use.
type Engine struct {
	dir      string
	set      atomic.Pointer[set] // never nil
	entities entityCache
	contexts contextCache

	mu      sync.Mutex // one reload at a time; guards lastErr
	lastErr error
}

// A set is one generation of policies. It never changes.
type set struct {
	index      index
	byID       map[cedargo.PolicyID]*policy
	likes      likes
	version    string
	generation uint64
}

// Load reads every policy of dir. It fails, naming file and line, when a file
// cannot be read, does not parse, holds no policy or does not fit the schema,
// and when the folder has no policy at all: an Engine always has policies.
// The error wraps Problems.
func Load(dir string) (*Engine, error) {
	e := &Engine{dir: dir}
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	s.generation = 1
	e.set.Store(s)
	return e, nil
}

// Reload reads the folder again. On an error nothing changes: the last good
// policies go on deciding, and Err tells about it until a reload succeeds.
func (e *Engine) Reload() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := load(e.dir)
	e.lastErr = err
	if err != nil {
		return err
	}
	old := e.set.Load()
	if s.version == old.version {
		return nil
	}
	s.generation = old.generation + 1
	e.set.Store(s)
	return nil
}

// Err returns why the last Reload failed, or nil: an alarm for readiness.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastErr
}

// Generation changes whenever any policy does.
func (e *Engine) Generation() uint64 { return e.set.Load().generation }

// Version is a short hash of the policy files that decide now.
func (e *Engine) Version() string { return e.set.Load().version }

// Len returns the number of policies.
func (e *Engine) Len() int { return len(e.set.Load().byID) }

// Authorize decides q. An error means that the question itself is malformed;
// the verdict is then a denial too. A policy that cannot be evaluated denies,
// and the verdict says which one.
func (e *Engine) Authorize(q gateway.Question) (gateway.Verdict, error) {
	s := e.set.Load()
	ents, err := e.entities.of(q)
	if err != nil {
		return refuse(err)
	}
	act, ok := actions[q.Action]
	if !ok {
		return refuse(fmt.Errorf("unknown action %q", q.Action))
	}
	found := s.index.find(ents, act)
	ctx, err := e.contexts.of(q, found.args)
	if t, ok := errors.AsType[twins](err); ok {
		return gateway.Verdict{Reasons: []string{t.Error()}}, nil
	}
	if err != nil {
		return refuse(err)
	}
	req := cedargo.Request{
		Principal: ents.principal.UID, Action: act.uid, Resource: ents.resource.UID, Context: ctx,
	}
	v := s.decide(found, ents, req)
	if v.Allow && len(s.likes[ents.skeleton]) > 0 {
		v = s.alike(e, q, ents, act, ctx, v)
	}
	return v, nil
}

func (s *set) decide(found candidates, ents entities, req cedargo.Request) gateway.Verdict {
	decision, diag := cedargo.Authorize(found.rules, ents, req)
	if len(diag.Errors) > 0 {
		return s.broken(diag.Errors)
	}
	if decision != cedargo.Allow {
		return s.refused(diag.Reasons)
	}
	v := gateway.Verdict{Allow: true, Policies: make([]string, 0, len(diag.Reasons))}
	for _, r := range diag.Reasons {
		v.Policies = append(v.Policies, string(r.PolicyID))
		s.byID[r.PolicyID].oblige(&v)
	}
	if found.holds.empty() {
		return v
	}
	_, diag = cedargo.Authorize(found.holds, ents, req)
	if len(diag.Errors) > 0 {
		return s.broken(diag.Errors)
	}
	for _, r := range diag.Reasons {
		v.Policies = append(v.Policies, string(r.PolicyID))
		s.byID[r.PolicyID].oblige(&v)
	}
	return v
}

// refused tells why nothing was allowed: the forbids that matched, or that no
// permit did.
func (s *set) refused(forbids []cedargo.DiagnosticReason) gateway.Verdict {
	if len(forbids) == 0 {
		return gateway.Verdict{Reasons: []string{"no policy allows this"}}
	}
	var v gateway.Verdict
	for _, r := range forbids {
		v.Policies = append(v.Policies, string(r.PolicyID))
		v.Reasons = append(v.Reasons, s.byID[r.PolicyID].reason())
	}
	return v
}

func (s *set) broken(errs []cedargo.DiagnosticError) gateway.Verdict {
	var v gateway.Verdict
	for _, e := range errs {
		v.Policies = append(v.Policies, string(e.PolicyID))
		v.Reasons = append(v.Reasons, fmt.Sprintf("policy %q could not be evaluated for this call (%s), so it is refused", e.PolicyID, e.Message))
	}
	return v
}

// refuse answers a question that cannot be put to the policies.
func refuse(err error) (gateway.Verdict, error) {
	return gateway.Verdict{Reasons: []string{"the question could not be put to the policies"}},
		&sallyport.Error{
			Code: sallyport.Denied, Step: sallyport.Authorize,
			Message: "the question could not be put to the policies",
			Hint:    "this is refused to be safe; the log says what was wrong with it",
			Err:     err,
		}
}
