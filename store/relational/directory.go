package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
)

const agentColumns = "tenant, id, roles, secret_hash, state, source, created_at, not_before FROM agents"

func scanAgent(r scanner) (sallyport.Agent, error) {
	var a sallyport.Agent
	var roles string
	var created, notBefore int64
	if err := r.Scan(&a.Tenant, &a.ID, &roles, &a.SecretHash, &a.State, &a.Source, &created, &notBefore); err != nil {
		return a, err
	}
	a.CreatedAt, a.NotBefore = timeAt(created), timeAt(notBefore)
	if err := json.Unmarshal([]byte(roles), &a.Roles); err != nil {
		return a, fmt.Errorf("agent %s: malformed roles: %w", a.ID, err)
	}
	return a, nil
}

// PutAgent stores an agent, new or changed, with the entry that tells of it.
// The time of creation stays that of the first Put.
func (s *Store) PutAgent(ctx context.Context, a sallyport.Agent, e sallyport.Entry) error {
	roles, err := json.Marshal(append([]string{}, a.Roles...))
	if err != nil {
		return s.storeError(sallyport.Authenticate, err)
	}
	return s.change(ctx, e, func(t *txn) error {
		if a.CreatedAt.IsZero() {
			a.CreatedAt = t.now
		}
		_, err := t.exec(`INSERT INTO agents (tenant, id, roles, secret_hash, state, source, created_at, not_before) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (tenant, id) DO UPDATE SET roles = excluded.roles, secret_hash = excluded.secret_hash, state = excluded.state,
				source = excluded.source, not_before = excluded.not_before`,
			a.Tenant, a.ID, string(roles), a.SecretHash, a.State, a.Source, nanos(a.CreatedAt), nanos(a.NotBefore))
		return err
	})
}

// change writes an operator's change and its entry in one transaction.
func (s *Store) change(ctx context.Context, e sallyport.Entry, fn func(*txn) error) error {
	return s.update(ctx, sallyport.Receive, func(t *txn) error {
		t.log(e)
		return fn(t)
	})
}

// SetAgentState makes an agent active, suspended or revoked. Tokens issued
// before notBefore are refused from now on; zero leaves that time as it is.
// A revoked agent stays revoked.
func (s *Store) SetAgentState(ctx context.Context, tenant, id, state string, notBefore time.Time, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		a, err := scanAgent(t.row("SELECT "+agentColumns+" WHERE tenant = ? AND id = ?", tenant, id))
		if errors.Is(err, sql.ErrNoRows) {
			return noSuch(sallyport.Receive, "agent", id)
		} else if err != nil {
			return err
		}
		if a.State == "revoked" && state != "revoked" {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Receive, Message: fmt.Sprintf("agent %s is revoked for good", id),
				Hint: "add a new agent"}
		}
		if notBefore.Before(a.NotBefore) {
			notBefore = a.NotBefore
		}
		if _, err = t.exec("UPDATE agents SET state = ?, not_before = ? WHERE tenant = ? AND id = ?", state, nanos(notBefore), tenant, id); err != nil || state == "active" {
			return err
		}
		return t.closeTickets(tenant, id, "the agent was "+state)
	})
}

// Agent returns an agent, or code NotFound.
func (s *Store) Agent(ctx context.Context, tenant, id string) (sallyport.Agent, error) {
	a, err := scanAgent(s.row(ctx, "SELECT "+agentColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return a, noSuch(sallyport.Authenticate, "agent", id)
	}
	return a, s.storeError(sallyport.Authenticate, err)
}

// Agents returns every agent of a tenant ("" = all), by id.
func (s *Store) Agents(ctx context.Context, tenant string) ([]sallyport.Agent, error) {
	var w where
	w.eq("tenant", tenant)
	out, err := list(ctx, s, scanAgent, "SELECT "+agentColumns+w.sql()+" ORDER BY tenant, id", w.args...)
	return out, s.storeError(sallyport.Receive, err)
}

const adminColumns = "tenant, name, groups, password_hash, created_at FROM admins"

func scanAdmin(r scanner) (sallyport.Admin, error) {
	var a sallyport.Admin
	var groups string
	var created int64
	if err := r.Scan(&a.Tenant, &a.Name, &groups, &a.PasswordHash, &created); err != nil {
		return a, err
	}
	a.CreatedAt = timeAt(created)
	if err := json.Unmarshal([]byte(groups), &a.Groups); err != nil {
		return a, fmt.Errorf("admin %s: malformed groups: %w", a.Name, err)
	}
	return a, nil
}

// stopped refuses an agent that was suspended or revoked at any gateway, a moment
// ago: another one may not have noticed when it let the call in.
func (t *txn) stopped(tenant, id string) error {
	var state string
	err := t.row("SELECT state FROM agents WHERE tenant = ? AND id = ?", tenant, id).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) || err == nil && state == "active" {
		return nil
	}
	if err != nil {
		return err
	}
	return &sallyport.Error{Code: sallyport.Unauthenticated, Step: sallyport.Execute, Message: "the agent is " + state, Hint: "ask an operator"}
}

// PutAdmin stores an admin, new or changed.
func (s *Store) PutAdmin(ctx context.Context, a sallyport.Admin, e sallyport.Entry) error {
	groups, err := json.Marshal(append([]string{}, a.Groups...))
	if err != nil {
		return s.storeError(sallyport.Receive, err)
	}
	return s.change(ctx, e, func(t *txn) error {
		if a.CreatedAt.IsZero() {
			a.CreatedAt = t.now
		}
		_, err := t.exec(`INSERT INTO admins (tenant, name, groups, password_hash, created_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (tenant, name) DO UPDATE SET groups = excluded.groups, password_hash = excluded.password_hash`,
			a.Tenant, a.Name, string(groups), a.PasswordHash, nanos(a.CreatedAt))
		return err
	})
}

// DeleteAdmin takes an admin away, or returns code NotFound.
func (s *Store) DeleteAdmin(ctx context.Context, tenant, name string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		return t.deleteOne("admin", name, "DELETE FROM admins WHERE tenant = ? AND name = ?", tenant, name)
	})
}

func (t *txn) deleteOne(what, name, q string, args ...any) error {
	n, err := t.exec(q, args...)
	if err == nil && n == 0 {
		return noSuch(sallyport.Receive, what, name)
	}
	return err
}

// Admin returns an admin, or code NotFound.
func (s *Store) Admin(ctx context.Context, tenant, name string) (sallyport.Admin, error) {
	a, err := scanAdmin(s.row(ctx, "SELECT "+adminColumns+" WHERE tenant = ? AND name = ?", tenant, name))
	if errors.Is(err, sql.ErrNoRows) {
		return a, noSuch(sallyport.Receive, "admin", name)
	}
	return a, s.storeError(sallyport.Receive, err)
}

// Admins returns every admin of a tenant ("" = all), by name.
func (s *Store) Admins(ctx context.Context, tenant string) ([]sallyport.Admin, error) {
	var w where
	w.eq("tenant", tenant)
	out, err := list(ctx, s, scanAdmin, "SELECT "+adminColumns+w.sql()+" ORDER BY tenant, name", w.args...)
	return out, s.storeError(sallyport.Receive, err)
}
