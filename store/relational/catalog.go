package relational

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

const pinColumns = "tenant, server, name, digest, definition, status, approved_by, approved_at, updated_at, version, accepted, endpoint FROM pins"

func scanPin(r scanner) (store.Pin, error) {
	var p store.Pin
	var definition []byte
	var approved, updated int64
	var accepted string
	err := r.Scan(&p.Tenant, &p.Server, &p.Name, &p.Digest, &definition, &p.Status, &p.ApprovedBy, &approved, &updated, &p.Version, &accepted, &p.Endpoint)
	if accepted != "" {
		p.Accepted = strings.Split(accepted, "\n")
	}
	p.Definition, p.ApprovedAt, p.UpdatedAt = definition, timeAt(approved), timeAt(updated)
	return p, err
}

// PutPins stores pins, new or changed, all or nothing.
func (s *Store) PutPins(ctx context.Context, pins []store.Pin, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		for _, p := range pins {
			if _, err := t.exec(`INSERT INTO pins (tenant, server, name, digest, definition, status, approved_by, approved_at, updated_at, version, accepted, endpoint)
					VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT (tenant, server, name) DO UPDATE SET digest = excluded.digest, definition = excluded.definition,
					status = excluded.status, approved_by = excluded.approved_by, approved_at = excluded.approved_at, updated_at = excluded.updated_at, version = excluded.version, accepted = excluded.accepted, endpoint = excluded.endpoint`,
				p.Tenant, p.Server, p.Name, p.Digest, []byte(p.Definition), p.Status, p.ApprovedBy, nanos(p.ApprovedAt), nanos(t.now), cmp.Or(p.Version, "1.0.0"), strings.Join(p.Accepted, "\n"), p.Endpoint); err != nil {
				return err
			}
		}
		return nil
	})
}

// Pin returns a pin, or code NotFound.
func (s *Store) Pin(ctx context.Context, tenant, server, name string) (store.Pin, error) {
	p, err := scanPin(s.row(ctx, "SELECT "+pinColumns+" WHERE tenant = ? AND server = ? AND name = ?", tenant, server, name))
	if errors.Is(err, sql.ErrNoRows) {
		return p, notFound(sallyport.Resolve, fmt.Sprintf("tool %.64q of server %.64q is not pinned", name, server))
	}
	return p, s.storeError(sallyport.Resolve, err)
}

// Pins returns the pins of a server ("" = of all), by server and name.
func (s *Store) Pins(ctx context.Context, tenant, server string) ([]store.Pin, error) {
	var w where
	w.eq("tenant", tenant)
	w.eq("server", server)
	out, err := list(ctx, s, scanPin, "SELECT "+pinColumns+w.sql()+" ORDER BY tenant, server, name", w.args...)
	return out, s.storeError(sallyport.Resolve, err)
}

// DeletePin forgets a pin, or returns code NotFound.
func (s *Store) DeletePin(ctx context.Context, tenant, server, name string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		return t.deleteOne("tool", name, "DELETE FROM pins WHERE tenant = ? AND server = ? AND name = ?", tenant, server, name)
	})
}

// PutServer stores a server added at run time, new or changed.
func (s *Store) PutServer(ctx context.Context, v store.Server, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		_, err := t.exec(`INSERT INTO servers (tenant, name, config, updated_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (tenant, name) DO UPDATE SET config = excluded.config, updated_at = excluded.updated_at`,
			v.Tenant, v.Name, []byte(v.Config), nanos(t.now))
		return err
	})
}

// Servers returns the servers added at run time, by name.
func (s *Store) Servers(ctx context.Context, tenant string) ([]store.Server, error) {
	var w where
	w.eq("tenant", tenant)
	out, err := list(ctx, s, func(r scanner) (v store.Server, err error) {
		var config []byte
		var updated int64
		err = r.Scan(&v.Tenant, &v.Name, &config, &updated)
		v.Config, v.UpdatedAt = config, timeAt(updated)
		return v, err
	}, "SELECT tenant, name, config, updated_at FROM servers"+w.sql()+" ORDER BY tenant, name", w.args...)
	return out, s.storeError(sallyport.Resolve, err)
}

// DeleteServer takes a server away, with its pins and what is held at its
// authorization server, or returns code NotFound.
func (s *Store) DeleteServer(ctx context.Context, tenant, name string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		if _, err := t.exec("DELETE FROM pins WHERE tenant = ? AND server = ?", tenant, name); err != nil {
			return err
		}
		if _, err := t.exec("DELETE FROM upstream_holdings WHERE tenant = ? AND server = ?", tenant, name); err != nil {
			return err
		}
		return t.deleteOne("server", name, "DELETE FROM servers WHERE tenant = ? AND name = ?", tenant, name)
	})
}

// PutSecret stores a ciphertext; see package secret.
func (s *Store) PutSecret(ctx context.Context, tenant, name string, ciphertext []byte, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		_, err := t.exec(`INSERT INTO secrets (tenant, name, ciphertext, updated_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (tenant, name) DO UPDATE SET ciphertext = excluded.ciphertext, updated_at = excluded.updated_at`,
			tenant, name, ciphertext, nanos(t.now))
		return err
	})
}

// Secret returns a ciphertext, or code NotFound.
func (s *Store) Secret(ctx context.Context, tenant, name string) ([]byte, error) {
	var b []byte
	err := s.row(ctx, "SELECT ciphertext FROM secrets WHERE tenant = ? AND name = ?", tenant, name).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Execute, Message: fmt.Sprintf("there is no secret %.64q", name),
			Hint: "an operator stores it with `sallyport secrets set` and this name"}
	}
	return b, s.storeError(sallyport.Execute, err)
}

// Secrets returns the names of a tenant's secrets.
func (s *Store) Secrets(ctx context.Context, tenant string) ([]store.SecretInfo, error) {
	out, err := list(ctx, s, func(r scanner) (v store.SecretInfo, err error) {
		var updated int64
		err = r.Scan(&v.Name, &updated)
		v.UpdatedAt = timeAt(updated)
		return v, err
	}, "SELECT name, updated_at FROM secrets WHERE tenant = ? ORDER BY name", tenant)
	return out, s.storeError(sallyport.Receive, err)
}

// DeleteSecret removes a secret, or returns code NotFound.
func (s *Store) DeleteSecret(ctx context.Context, tenant, name string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		return t.deleteOne("secret", name, "DELETE FROM secrets WHERE tenant = ? AND name = ?", tenant, name)
	})
}
