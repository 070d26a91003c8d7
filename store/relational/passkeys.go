package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

const keyColumns = "tenant, id, admin, label, rp_id, credential, counter, created_at, used_at FROM passkeys"

func scanPasskey(r scanner) (store.Passkey, error) {
	var k store.Passkey
	var credential string
	var created, used int64
	err := r.Scan(&k.Tenant, &k.ID, &k.Admin, &k.Label, &k.RPID, &credential, &k.Counter, &created, &used)
	k.Credential, k.CreatedAt, k.UsedAt = json.RawMessage(credential), timeAt(created), timeAt(used)
	return k, err
}

// Passkeys returns the passkeys of an admin ("" = of every admin), oldest first.
func (s *Store) Passkeys(ctx context.Context, tenant, admin string) ([]store.Passkey, error) {
	var w where
	w.eq("tenant", tenant)
	w.eq("admin", admin)
	out, err := list(ctx, s, scanPasskey, "SELECT "+keyColumns+w.sql()+" ORDER BY created_at, id LIMIT ?", append(w.args, store.MaxList)...)
	return out, s.storeError(sallyport.Approve, err)
}

// PutPasskey stores a new passkey and uses the link that it came by. Codes:
// Conflict if the passkey is known or the link is not open.
func (s *Store) PutPasskey(ctx context.Context, k store.Passkey, link string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		if err := t.useLink(k.Tenant, link); err != nil {
			return err
		}
		n, err := t.exec(`INSERT INTO passkeys (tenant, id, admin, label, rp_id, credential, counter, created_at, used_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (tenant, id) DO NOTHING`,
			k.Tenant, k.ID, k.Admin, k.Label, k.RPID, string(k.Credential), k.Counter, nanos(t.now))
		if err == nil && n == 0 {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Message: "this passkey is enrolled already"}
		}
		return err
	})
}

// UsePasskey notes a signature: its counter, which must have grown unless it
// is 0 for good, and the link that it came by ("" for none). Codes: NotFound,
// Conflict if the counter went back or the link is not open.
func (s *Store) UsePasskey(ctx context.Context, tenant, id string, counter int64, link string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		if err := t.useLink(tenant, link); err != nil {
			return err
		}
		n, err := t.exec(`UPDATE passkeys SET counter = ?, used_at = ? WHERE tenant = ? AND id = ? AND (counter < ? OR counter = 0 AND counter = ?)`,
			counter, nanos(t.now), tenant, id, counter, counter)
		if err != nil || n == 1 {
			return err
		}
		var have int64
		err = t.row("SELECT counter FROM passkeys WHERE tenant = ? AND id = ?", tenant, id).Scan(&have)
		if errors.Is(err, sql.ErrNoRows) {
			return notFound(sallyport.Approve, fmt.Sprintf("there is no passkey %.64q", id))
		} else if err != nil {
			return err
		}
		return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve,
			Message: fmt.Sprintf("the passkey's counter went back from %d to %d: there may be a copy of it", have, counter),
			Hint:    "have another admin remove the passkey, and find out who has the other one"}
	})
}

// useLink makes a link used; "" is none.
func (t *txn) useLink(tenant, id string) error {
	if id == "" {
		return nil
	}
	n, err := t.exec("UPDATE passkey_links SET state = 'used', ceremony = '', error = '' WHERE tenant = ? AND id = ? AND state = 'open'", tenant, id)
	if err == nil && n == 0 {
		return usedLink()
	}
	return err
}

func usedLink() error {
	return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Message: "this link was used already",
		Hint: "ask for another one: it serves once"}
}

// DeletePasskey takes a passkey away, or returns code NotFound.
func (s *Store) DeletePasskey(ctx context.Context, tenant, id string, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		return t.deleteOne("passkey", id, "DELETE FROM passkeys WHERE tenant = ? AND id = ?", tenant, id)
	})
}

const linkColumns = `tenant, id, kind, admin, login, ticket, reason, label, state, ceremony, tries, error, created_at, expires_at FROM passkey_links`

func scanLink(r scanner) (store.Link, error) {
	var l store.Link
	var ceremony string
	var created, expires int64
	err := r.Scan(&l.Tenant, &l.ID, &l.Kind, &l.Admin, &l.Login, &l.Ticket, &l.Reason, &l.Label, &l.State, &ceremony, &l.Tries, &l.Error, &created, &expires)
	if ceremony != "" {
		l.Ceremony = json.RawMessage(ceremony)
	}
	l.CreatedAt, l.ExpiresAt = timeAt(created), timeAt(expires)
	return l, err
}

// linkKept is how long a link can be looked at after it has expired.
const linkKept = 24 * time.Hour

// PutLink stores a new, open link with the entry that tells of it, and forgets
// old ones.
func (s *Store) PutLink(ctx context.Context, l store.Link, e sallyport.Entry) error {
	return s.change(ctx, e, func(t *txn) error {
		if _, err := t.exec("DELETE FROM passkey_links WHERE expires_at < ?", nanos(t.now.Add(-linkKept))); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO passkey_links (tenant, id, kind, admin, login, ticket, reason, label, state, ceremony, tries, error, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', '', 0, '', ?, ?)`,
			l.Tenant, l.ID, l.Kind, l.Admin, l.Login, l.Ticket, l.Reason, l.Label, nanos(t.now), nanos(l.ExpiresAt))
		return err
	})
}

func noLink() error {
	return &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Approve, Message: "there is no such link, or its time has passed",
		Hint: "ask for another one: it serves once, for a few minutes"}
}

// Link returns a link, or code NotFound.
func (s *Store) Link(ctx context.Context, tenant, id string) (store.Link, error) {
	l, err := scanLink(s.row(ctx, "SELECT "+linkColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return l, noLink()
	}
	return l, s.storeError(sallyport.Approve, err)
}

// BeginCeremony puts a challenge out for a link, in place of an earlier one,
// at most max times. Codes: NotFound, also once its time has passed; Conflict
// if it was used; RateLimited.
func (s *Store) BeginCeremony(ctx context.Context, tenant, id string, ceremony []byte, most int) error {
	return s.update(ctx, sallyport.Approve, func(t *txn) error {
		l, err := t.openLink(tenant, id)
		if err != nil {
			return err
		}
		if l.Tries >= most {
			return &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Approve, Message: "this link was tried too often", Hint: "ask for another one"}
		}
		_, err = t.exec("UPDATE passkey_links SET ceremony = ?, tries = tries + 1 WHERE tenant = ? AND id = ?", string(ceremony), tenant, id)
		return err
	})
}

// TakeCeremony returns a link with its challenge, and takes the challenge in:
// it serves for one answer. Codes: NotFound, Conflict.
func (s *Store) TakeCeremony(ctx context.Context, tenant, id string) (store.Link, error) {
	var l store.Link
	err := s.update(ctx, sallyport.Approve, func(t *txn) (err error) {
		if l, err = t.openLink(tenant, id); err != nil {
			return err
		}
		if l.Ceremony == nil {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Approve, Message: "no challenge is out for this link", Hint: "load the page again"}
		}
		_, err = t.exec("UPDATE passkey_links SET ceremony = '' WHERE tenant = ? AND id = ?", tenant, id)
		return err
	})
	return l, err
}

func (t *txn) openLink(tenant, id string) (store.Link, error) {
	l, err := scanLink(t.row("SELECT "+linkColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !t.now.Before(l.ExpiresAt):
		return l, noLink()
	case err == nil && l.State != store.LinkOpen:
		return l, usedLink()
	}
	return l, err
}

// NoteLink keeps why a try failed, for whoever waits for it.
func (s *Store) NoteLink(ctx context.Context, tenant, id, why string) error {
	return s.update(ctx, sallyport.Approve, func(t *txn) error {
		_, err := t.exec("UPDATE passkey_links SET error = ? WHERE tenant = ? AND id = ?", why, tenant, id)
		return err
	})
}
