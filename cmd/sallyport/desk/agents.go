package desk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/redact/lookalike"
	"sallyport.dev/sallyport/store/relational"
)

// Agents keeps agents and gives out their tokens.
type Agents struct {
	Tenant string
	Store  *relational.Store
	Cache  *oauth.AgentCache
	Issuer *oauth.Server
	Base   string // where the gateway is reached
}

// Issue gives out a token of an agent for a profile, "" is the default one; actor is the operator who asked for it, on record.
func (d Agents) Issue(ctx context.Context, id, profile, actor string) (string, time.Time, error) {
	agent, err := d.Store.Agent(ctx, d.Tenant, id)
	if err != nil {
		return "", time.Time{}, err
	}
	resource := ""
	if profile != "" {
		resource = d.Base + "/mcp/" + profile
	}
	t, err := d.Issuer.Issue(ctx, agent, resource, actor)
	return t.Value, t.Expires, err
}

// ListAgents returns every agent.
func (d Agents) ListAgents(ctx context.Context) ([]sallyport.Agent, error) {
	return d.Store.Agents(ctx, d.Tenant)
}

// AddAgent makes an agent with a new secret.
func (d Agents) AddAgent(ctx context.Context, id string, roles []string, e sallyport.Entry) (string, error) {
	if _, err := d.Store.Agent(ctx, d.Tenant, id); sallyport.CodeOf(err) != sallyport.NotFound || err == nil {
		if err == nil {
			err = &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("agent %q exists", id), Hint: "`sallyport agents rotate` gives it a new secret"}
		}
		return "", err
	}
	if err := d.mistaken(ctx, id, roles); err != nil {
		return "", err
	}
	secret, a := NewAgent(d.Tenant, id, roles, time.Now())
	defer d.Cache.Invalidate()
	return secret, d.Store.PutAgent(ctx, a, e)
}

// mistaken refuses the name of an agent, or of a role, that a reader, and whoever
// writes a policy, takes for one that is there already.
func (d Agents) mistaken(ctx context.Context, id string, roles []string) error {
	all, err := d.Store.Agents(ctx, d.Tenant)
	if err != nil {
		return err
	}
	var ids, known []string
	for _, a := range all {
		ids, known = append(ids, a.ID), append(known, a.Roles...)
	}
	say := func(what, name, other string) error {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("the %s %q can be taken for %q, which is there already", what, name, other), Hint: "choose a name that nobody takes for the other"}
	}
	if other := lookalike.Taken(id, ids); other != "" {
		return say("agent", id, other)
	}
	for _, role := range roles {
		if other := lookalike.Taken(role, known); other != "" {
			return say("role", role, other)
		}
	}
	return nil
}

// NewAgent returns an active agent and its secret, of which it keeps the hash.
func NewAgent(tenant, id string, roles []string, now time.Time) (secret string, a sallyport.Agent) {
	secret, hash := oauth.NewSecret()
	slices.Sort(roles)
	return secret, sallyport.Agent{
		Tenant: tenant, ID: id, Roles: slices.Compact(roles), SecretHash: hash,
		State: "active", Source: "database", CreatedAt: now,
	}
}

// RotateAgent gives an agent a new secret; its old one and its tokens end.
func (d Agents) RotateAgent(ctx context.Context, id string, e sallyport.Entry) (string, error) {
	a, err := d.Store.Agent(ctx, d.Tenant, id)
	if err != nil {
		return "", err
	}
	secret, hash := oauth.NewSecret()
	a.SecretHash, a.NotBefore = hash, time.Now()
	defer d.Cache.Invalidate()
	return secret, d.Store.PutAgent(ctx, a, e)
}

// SetAgentState suspends, resumes or revokes an agent. Revoked is for good.
func (d Agents) SetAgentState(ctx context.Context, id, state string, e sallyport.Entry) error {
	a, err := d.Store.Agent(ctx, d.Tenant, id)
	if err != nil {
		return err
	}
	if a.State == "revoked" {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("agent %q is revoked for good", id), Hint: "add another agent"}
	}
	notBefore := a.NotBefore
	if state != "active" {
		notBefore = time.Now()
	}
	defer d.Cache.Invalidate()
	return d.Store.SetAgentState(ctx, d.Tenant, id, state, notBefore, e)
}

// fromFile is the source of an agent that the configuration declares.
const fromFile = "configuration"

// Declare brings the stored agents in line with those of the configuration,
// which wins: it makes and changes them, and suspends those that it named once
// and no longer does. Their tokens come from `sallyport token`; `agents rotate`
// gives one a secret of its own.
func (d Agents) Declare(ctx context.Context, declared map[string]config.Agent) error {
	stored, err := d.Store.Agents(ctx, d.Tenant)
	if err != nil {
		return err
	}
	known := map[string]sallyport.Agent{}
	for _, a := range stored {
		known[a.ID] = a
		if _, still := declared[a.ID]; a.Source == fromFile && !still {
			a.State, a.NotBefore = "suspended", time.Now()
			if err := d.put(ctx, a, known[a.ID]); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(declared)) {
		want, ok := known[id]
		if !ok {
			_, want = NewAgent(d.Tenant, id, nil, time.Now())
		}
		want.Source, want.State = fromFile, "active"
		want.Roles = slices.Compact(slices.Sorted(slices.Values(declared[id].Roles)))
		if declared[id].Suspended {
			want.State = "suspended"
		}
		if err := d.put(ctx, want, known[id]); err != nil {
			return err
		}
	}
	return nil
}

// put stores an agent, and says so in the record, if anything about it changed.
func (d Agents) put(ctx context.Context, want, have sallyport.Agent) error {
	if want.State == have.State && want.Source == have.Source && slices.Equal(want.Roles, have.Roles) {
		return nil
	}
	e, err := audit.AdminEntry(d.Tenant, sallyport.Change{Action: "agents declare", By: fromFile, Target: want.ID, Detail: map[string]any{"roles": want.Roles, "state": want.State}})
	if err != nil {
		return err
	}
	defer d.Cache.Invalidate()
	return d.Store.PutAgent(ctx, want, e)
}
