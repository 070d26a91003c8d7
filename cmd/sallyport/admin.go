package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/sqlite"
)

// The types below say the admin API's few words in those of the engines.

// An agentDesk keeps agents and gives out their tokens.
type agentDesk struct {
	tenant string
	store  *sqlite.Store
	cache  *oauth.AgentCache
	issuer *oauth.Server
}

func (d agentDesk) Issue(ctx context.Context, id, actor string) (string, time.Time, error) {
	agent, err := d.store.Agent(ctx, d.tenant, id)
	if err != nil {
		return "", time.Time{}, err
	}
	t, err := d.issuer.Issue(ctx, agent, "", actor)
	return t.Value, t.Expires, err
}

func (d agentDesk) ListAgents(ctx context.Context) ([]sallyport.Agent, error) {
	return d.store.Agents(ctx, d.tenant)
}

func (d agentDesk) AddAgent(ctx context.Context, id string, roles []string, e sallyport.Entry) (string, error) {
	if _, err := d.store.Agent(ctx, d.tenant, id); sallyport.CodeOf(err) != sallyport.NotFound || err == nil {
		if err == nil {
			err = &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("agent %q exists", id), Hint: "`sallyport agents rotate` gives it a new secret"}
		}
		return "", err
	}
	secret, a := newAgent(d.tenant, id, roles, time.Now())
	defer d.cache.Invalidate()
	return secret, d.store.PutAgent(ctx, a, e)
}

func newAgent(tenant, id string, roles []string, now time.Time) (secret string, a sallyport.Agent) {
	secret, hash := oauth.NewSecret()
	slices.Sort(roles)
	return secret, sallyport.Agent{
		Tenant: tenant, ID: id, Roles: slices.Compact(roles), SecretHash: hash,
		State: "active", Source: "database", CreatedAt: now,
	}
}

func (d agentDesk) RotateAgent(ctx context.Context, id string, e sallyport.Entry) (string, error) {
	a, err := d.store.Agent(ctx, d.tenant, id)
	if err != nil {
		return "", err
	}
	secret, hash := oauth.NewSecret()
	a.SecretHash, a.NotBefore = hash, time.Now()
	defer d.cache.Invalidate()
	return secret, d.store.PutAgent(ctx, a, e)
}

func (d agentDesk) SetAgentState(ctx context.Context, id, state string, e sallyport.Entry) error {
	a, err := d.store.Agent(ctx, d.tenant, id)
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
	defer d.cache.Invalidate()
	return d.store.SetAgentState(ctx, d.tenant, id, state, notBefore, e)
}

// A loginDesk remembers logged-in humans.
type loginDesk struct {
	tenant string
	logins *oauth.Logins
}

func loginPeer(p adminapi.Peer) oauth.Peer {
	return oauth.Peer{UID: uint32(p.UID), Session: int(p.Session), Started: p.Started}
}

func (d loginDesk) Login(ctx context.Context, p adminapi.Peer, name, password string) (time.Time, error) {
	_, err := d.logins.Login(ctx, d.tenant, name, password, loginPeer(p))
	return time.Now().Add(oauth.LoginLifetime), err
}

func (d loginDesk) Check(ctx context.Context, p adminapi.Peer) (string, error) {
	a, err := d.logins.Check(ctx, loginPeer(p))
	return a.Name, err
}

func (d loginDesk) Logout(p adminapi.Peer) { d.logins.Logout(loginPeer(p)) }

// A ticketDesk shows tickets and takes decisions.
type ticketDesk struct {
	tenant string
	engine *approval.Engine
}

func (d ticketDesk) ListTickets(ctx context.Context, state string, limit int) ([]sallyport.Ticket, error) {
	f := store.TicketFilter{Tenant: d.tenant, Limit: limit}
	if state != "" {
		f.States = []sallyport.TicketState{sallyport.TicketState(state)}
	}
	return d.engine.List(ctx, f)
}

func (d ticketDesk) ShowTicket(ctx context.Context, id string) (sallyport.Ticket, string, error) {
	t, err := d.engine.Ticket(ctx, d.tenant, id)
	if err != nil {
		return t, "", err
	}
	return t, approval.Render(t, time.Now()), nil
}

func (d ticketDesk) Decide(ctx context.Context, w sallyport.Decision) (sallyport.Ticket, error) {
	return d.engine.Decide(ctx, sallyport.Admin{Tenant: d.tenant, Name: w.By}, w.Ticket, w.Approve, w.Reason)
}

// An auditDesk searches the record.
type auditDesk struct {
	tenant string
	source audit.Source
}

func (d auditDesk) Search(ctx context.Context, q adminapi.AuditQuery) ([]adminapi.AuditEntry, error) {
	rows, err := audit.Search(ctx, d.source, audit.Filter{
		Tenant: d.tenant, CallID: q.Call, Principal: q.Principal, Tool: q.Tool, Kind: sallyport.EntryKind(q.Kind),
		Code: q.Code, Since: q.Since, Until: q.Until, Text: q.Text,
	}, q.Limit)
	out := make([]adminapi.AuditEntry, 0, len(rows))
	for _, r := range rows {
		out = append(out, adminapi.AuditEntry{Writer: r.Writer, Seq: r.Seq, Time: r.Time, Kind: r.Kind, CallID: r.CallID, Payload: r.Payload})
	}
	return out, err
}

// A toolDesk is the operator's view of the catalogue.
type toolDesk struct {
	tenant  string
	catalog *catalog.Catalog
	store   *sqlite.Store
}

func (d toolDesk) AllTools(context.Context) ([]sallyport.Tool, error) { return d.catalog.List("") }

func (d toolDesk) ShowTool(_ context.Context, name string) (sallyport.Tool, error) {
	return d.catalog.Resolve("", name)
}

func (d toolDesk) DiffTool(_ context.Context, name string) (string, error) {
	return d.catalog.Diff(name)
}

func (d toolDesk) ApproveTool(ctx context.Context, name string, e sallyport.Entry) error {
	t, err := d.catalog.Resolve("", name)
	if err != nil {
		return err
	}
	// On record first: a release that nobody can account for does not happen.
	if err := d.store.AppendEntries(ctx, e); err != nil {
		return err
	}
	return d.catalog.Approve(ctx, name, t.Digest)
}

// A reservationDesk settles what nobody knows.
type reservationDesk struct {
	tenant string
	store  *sqlite.Store
}

func (d reservationDesk) ListReservations(ctx context.Context, state string, limit int) ([]sallyport.Reservation, error) {
	f := store.ReservationFilter{Tenant: d.tenant, Limit: limit}
	if state != "" {
		f.States = []sallyport.ReservationState{sallyport.ReservationState(state)}
	}
	return d.store.Reservations(ctx, f)
}

func (d reservationDesk) ResolveReservation(ctx context.Context, key sallyport.ReservationKey, state sallyport.ReservationState, by, reason string) error {
	return d.store.Resolve(ctx, store.Resolution{Key: key, State: state, By: by, Reason: reason})
}

// A secretDesk takes secrets in; none comes out here.
type secretDesk struct {
	tenant string
	vault  *secret.Vault
}

func (d secretDesk) SetSecret(ctx context.Context, name, value, by string) error {
	return d.vault.Set(ctx, d.tenant, name, []byte(value), by)
}

func (d secretDesk) SecretNames(ctx context.Context) (names []string, err error) {
	list, err := d.vault.List(ctx, d.tenant)
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names, err
}

func (d secretDesk) RemoveSecret(ctx context.Context, name, by string) error {
	return d.vault.Remove(ctx, d.tenant, name, by)
}

// A pinBook is the catalogue's pins, in the store.
type pinBook struct {
	tenant string
	store  *sqlite.Store
}

func (p pinBook) GetPin(ctx context.Context, server, tool string) (json.RawMessage, error) {
	pin, err := p.store.Pin(ctx, p.tenant, server, tool)
	if err != nil && sallyport.CodeOf(err) == sallyport.NotFound {
		return nil, nil
	}
	return pin.Definition, err
}

func (p pinBook) PutPin(ctx context.Context, server, tool string, definition json.RawMessage) error {
	e, err := audit.AdminEntry(p.tenant, sallyport.Change{Action: "tools pin", By: "system", Target: server + "/" + tool})
	if err != nil {
		return err
	}
	pin := store.Pin{Tenant: p.tenant, Server: server, Name: tool, Definition: definition, Digest: hexDigest(definition), Status: string(sallyport.ToolActive)}
	return p.store.PutPins(ctx, []store.Pin{pin}, e)
}
