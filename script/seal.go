// Package script lets programs in sandboxes call tools (code mode). A program
// holds no credential: what it asks for comes over the stream of its own run, and
// the Engine makes the call in its stead, as the principal whose call the run is,
// through the whole path. See docs/design/0039-code-mode.md.
package script

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// Agents are asked how an agent is now.
type Agents interface {
	Agent(ctx context.Context, tenant, id string) (sallyport.Agent, error)
}

// A Door is the gateway that the scripts themselves came through.
type Door interface {
	// See is what of a list a principal may see.
	See(who sallyport.Principal, profile string, shelf sallyport.Shelf) (sallyport.Sight, error)

	// Still says why a call that runs would not be let through any more, or nil.
	Still(ctx context.Context, job sallyport.Job) error
}

// A Seal mints the credentials with which inner calls are made, one for each run
// of a script, and is the only one that takes them: in this process, while the
// script runs, and only as long as the script itself would be let through and its
// agent is in good standing. No other door knows a Seal.
type Seal struct {
	Agents Agents
	Door   Door

	mu   sync.Mutex
	live map[string]leave // by id
}

// A leave is what one credential is for.
type leave struct {
	secret string
	job    sallyport.Job // the script
	tools  []string      // that it may call
}

// mint makes the credential of a script; end takes it back.
func (s *Seal) mint(job sallyport.Job, tools []string) (credential string, end func()) {
	id, secret := "script-"+rand.Text(), rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live = map[string]leave{}
	}
	s.live[id] = leave{secret, job, tools}
	return id + "." + secret, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, id)
	}
}

func (s *Seal) leave(id string) (leave, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.live[id]
	return l, ok
}

func unauthenticated(message string, err error) error {
	return &sallyport.Error{Code: sallyport.Unauthenticated, Step: sallyport.Authenticate, Message: message, Err: err,
		Hint: "the script can do nothing more; ask an operator"}
}

// Authenticate implements gateway.Authenticator, for the gateway of inner calls
// alone: who called the script, as the agent is now.
func (s *Seal) Authenticate(ctx context.Context, profile, credential string) (sallyport.Principal, error) {
	none := sallyport.Principal{}
	id, secret, _ := strings.Cut(credential, ".")
	l, ok := s.leave(id)
	if !ok || subtle.ConstantTimeCompare([]byte(secret), []byte(l.secret)) != 1 || profile != l.job.Profile {
		return none, unauthenticated("the credential is none of a script that runs here", nil)
	}
	who := l.job.Who
	agent, err := s.Agents.Agent(ctx, who.Tenant, who.ID)
	switch {
	case err != nil && sallyport.CodeOf(err) != sallyport.NotFound:
		return none, &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Authenticate, Message: "the script's agent cannot be looked up now",
			Hint: "try again", RetryAfter: time.Second, Err: err}
	case err != nil || agent.ID != who.ID || agent.Tenant != who.Tenant:
		return none, unauthenticated("the script's agent does not exist any more", err)
	case agent.State != "active":
		return none, unauthenticated("the script's agent is "+agent.State, nil)
	case l.job.Since.Before(agent.NotBefore):
		return none, unauthenticated("the script's agent was rotated or suspended since the script was called", nil)
	}
	l.job.Who.Roles = agent.Roles
	if err := s.Door.Still(ctx, l.job); err != nil {
		return none, &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Authenticate, Err: err,
			Message: "the script itself would not be let through any more: " + reason(err), Hint: "the script can do nothing more; an operator can change policies/*.cedar"}
	}
	who = l.job.Who
	who.TokenID = id
	return who, nil
}

func reason(err error) string {
	if e := asError(err); e != nil {
		return e.Message
	}
	return "internal error"
}

// A Sealed is the authorizer of inner calls: a script calls what it named, and
// policies decide on that as on any other call.
type Sealed struct {
	gateway.Authorizer
	Seal *Seal
}

// Authorize refuses what the script did not name, and scripts within scripts. A call
// is looked for in the list first; what the gateway looks at by itself, for who
// approves one, is of the tool's manifest, and not of the script's choice.
func (a Sealed) Authorize(q gateway.Question) (gateway.Verdict, error) {
	l, ok := a.Seal.leave(q.Who.TokenID)
	switch {
	case !ok || q.Action != gateway.ActionCall && !offered(l.tools, q.Tool):
		return gateway.Verdict{Reasons: []string{"the script did not name this tool"}}, nil
	case q.Action == gateway.ActionCall && len(sallyport.ScriptTools(q.Tool, q.Args)) > 0:
		return gateway.Verdict{Reasons: []string{"a script cannot run another that calls tools: call them in one"}}, nil
	}
	return a.Authorizer.Authorize(q)
}

// offered tells whether a script that named tools may call this one, as far as
// that goes. What asks the gateway about calls is not among them: a script is told.
func offered(tools []string, t sallyport.Tool) bool {
	return t.Shelf == "" && t.Origin.Backend != "builtin" && slices.ContainsFunc(tools, func(pattern string) bool {
		return pattern != "" && (sallyport.Matches(pattern, t.Name) || t.Alias != "" && sallyport.Matches(pattern, t.Alias))
	})
}
