// Package holdings keeps what the gateway holds at the authorization servers of
// its upstreams, in the database of store/relational. Each change is one
// transaction that takes place only if nobody else's came between, so that an old
// token never replaces a new one.
package holdings

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/transact"
)

// A Store is the table of holdings.
type Store struct{ DB *transact.DB }

const columns = "tenant, server, kind, name, body, version, holder, held_until, expires_at, updated_at FROM upstream_holdings"

func scan(r transact.Scanner) (h store.Holding, err error) {
	var until, expires, updated int64
	err = r.Scan(&h.Tenant, &h.Server, &h.Kind, &h.Name, &h.Body, &h.Version, &h.Holder, &until, &expires, &updated)
	h.HeldUntil, h.ExpiresAt, h.UpdatedAt = transact.TimeAt(until), transact.TimeAt(expires), transact.TimeAt(updated)
	return h, err
}

// Holding returns one, or code NotFound.
func (s Store) Holding(ctx context.Context, tenant, server, kind, name string) (store.Holding, error) {
	h, err := scan(s.DB.Row(ctx, "SELECT "+columns+" WHERE tenant = ? AND server = ? AND kind = ? AND name = ?", tenant, server, kind, name))
	if errors.Is(err, sql.ErrNoRows) {
		return h, &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Execute, Message: "nothing of this kind is held for server " + server}
	}
	return h, s.DB.Error(sallyport.Execute, err)
}

// Holdings returns those of a kind, by server and name; of one server, or of all if
// it is "".
func (s Store) Holdings(ctx context.Context, tenant, server, kind string) ([]store.Holding, error) {
	q, args := "SELECT "+columns+" WHERE tenant = ? AND kind = ?", []any{tenant, kind}
	if server != "" {
		q, args = q+" AND server = ?", append(args, server)
	}
	out, err := transact.List(ctx, s.DB, scan, q+" ORDER BY server, name", args...)
	return out, s.DB.Error(sallyport.Execute, err)
}

// Put stores a holding if its version is still the one that was read, else it
// returns code Conflict. It returns the new version. entry, if any, is recorded in
// the same transaction. Logins that have expired are forgotten.
func (s Store) Put(ctx context.Context, h store.Holding, entry *sallyport.Entry) (version int64, err error) {
	err = s.DB.Update(ctx, sallyport.Execute, func(t *transact.Tx) error {
		if entry != nil {
			t.Log(*entry)
		}
		if h.Kind == store.HoldsLogin {
			if _, err := t.Exec("DELETE FROM upstream_holdings WHERE kind = ? AND expires_at < ?", store.HoldsLogin, transact.Nanos(t.Now)); err != nil {
				return err
			}
		}
		version, err = put(t, h)
		return err
	})
	return version, err
}

func put(t *transact.Tx, h store.Holding) (int64, error) {
	values := []any{h.Body, h.Holder, transact.Nanos(h.HeldUntil), transact.Nanos(h.ExpiresAt), transact.Nanos(t.Now)}
	key := []any{h.Tenant, h.Server, h.Kind, h.Name}
	var stored int64
	err := t.Row("SELECT version FROM upstream_holdings WHERE tenant = ? AND server = ? AND kind = ? AND name = ?", key...).Scan(&stored)
	absent := errors.Is(err, sql.ErrNoRows)
	if err != nil && !absent {
		return 0, err
	}
	if h.Version != store.Any && h.Version != stored { // stored is 0 where there is none
		return 0, conflict(h)
	}
	if absent {
		first := max(t.Now.UnixNano(), 1) // above what a row of this name had before it was deleted
		n, err := t.Exec(`INSERT INTO upstream_holdings (body, holder, held_until, expires_at, updated_at, tenant, server, kind, name, version)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, server, kind, name) DO NOTHING`, append(append(values, key...), first)...)
		if err == nil && n == 0 {
			err = conflict(h)
		}
		return first, err
	}
	n, err := t.Exec(`UPDATE upstream_holdings SET body = ?, holder = ?, held_until = ?, expires_at = ?, updated_at = ?, version = version + 1
		WHERE tenant = ? AND server = ? AND kind = ? AND name = ? AND version = ?`, append(append(values, key...), stored)...)
	if err == nil && n == 0 {
		err = conflict(h)
	}
	return stored + 1, err
}

func conflict(h store.Holding) error {
	return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute, Message: "the " + h.Kind + " of server " + h.Server + " was changed by another"}
}

// Delete forgets holdings of a server: of one kind, or all if it is ""; of one name,
// or all if it is "". It tells how many there were.
func (s Store) Delete(ctx context.Context, tenant, server, kind, name string, entry *sallyport.Entry) (n int64, err error) {
	q, args := "DELETE FROM upstream_holdings WHERE tenant = ? AND server = ?", []any{tenant, server}
	for column, v := range map[string]string{"kind": kind, "name": name} {
		if v != "" {
			q, args = q+" AND "+column+" = ?", append(args, v)
		}
	}
	err = s.DB.Update(ctx, sallyport.Execute, func(t *transact.Tx) error {
		if entry != nil {
			t.Log(*entry)
		}
		n, err = t.Exec(q, args...)
		return err
	})
	return n, err
}

// Take deletes one holding and returns it, so that only one caller has it: a login
// is finished once. It returns code NotFound for one that is not there, or expired.
func (s Store) Take(ctx context.Context, tenant, server, kind, name string, now time.Time) (store.Holding, error) {
	h, err := s.Holding(ctx, tenant, server, kind, name)
	if err != nil {
		return h, err
	}
	n, err := s.Delete(ctx, tenant, server, kind, name, nil)
	if err == nil && (n == 0 || !h.ExpiresAt.IsZero() && h.ExpiresAt.Before(now)) {
		err = &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Execute, Message: "nothing of this kind is held for server " + server}
	}
	return h, err
}
