package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// seal writes the transaction's entries into the audit log.
func (t *txn) seal() (audit.Batch, error) {
	st, err := t.logState()
	if err != nil {
		return audit.Batch{}, err
	}
	b, err := t.s.seal.Seal(st, t.hashes(), t.entries, t.now)
	if err != nil {
		return audit.Batch{}, fmt.Errorf("seal the audit entries: %w", err)
	}
	if st.Head == nil {
		if _, err := t.exec("INSERT INTO audit_logs (writer, size, head) VALUES (?, 0, x'')", st.Writer); err != nil {
			return audit.Batch{}, err
		}
		if err := t.row("SELECT id FROM audit_logs WHERE writer = ?", st.Writer).Scan(&t.s.logID); err != nil {
			return audit.Batch{}, err
		}
	}
	id := t.s.logID
	for _, r := range b.Rows {
		if _, err := t.exec("INSERT INTO audit_entries (log, seq, tenant, time, kind, call_id, commitment) VALUES (?, ?, ?, ?, ?, ?, ?)",
			id, r.Seq, r.Tenant, r.Time.UnixNano(), string(r.Kind), r.CallID, r.Commitment[:]); err != nil {
			return audit.Batch{}, err
		}
		if _, err := t.exec("INSERT INTO audit_payloads (log, seq, tenant, salt, payload) VALUES (?, ?, ?, ?, ?)",
			id, r.Seq, r.Tenant, r.Salt, string(r.Payload)); err != nil {
			return audit.Batch{}, err
		}
	}
	for i, h := range b.Hashes {
		if _, err := t.exec("INSERT INTO audit_hashes (log, idx, hash) VALUES (?, ?, ?)", id, b.FirstHash+int64(i), h[:]); err != nil {
			return audit.Batch{}, err
		}
	}
	_, err = t.exec("UPDATE audit_logs SET size = ?, head = ? WHERE id = ?", b.Size, b.Head, id)
	return b, err
}

// logState reads how far the log of this store's writer has come, and its id.
func (t *txn) logState() (audit.State, error) {
	st := audit.State{Writer: t.s.seal.Writer()}
	err := t.row("SELECT id, size, head FROM audit_logs WHERE writer = ?", st.Writer).Scan(&t.s.logID, &st.Size, &st.Head)
	if errors.Is(err, sql.ErrNoRows) {
		return st, nil
	}
	if err == nil && st.Head == nil {
		st.Head = []byte{} // a log without a head is not a new one
	}
	return st, err
}

func (t *txn) hashes() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, n := range indexes {
			var h []byte
			if err := t.row("SELECT hash FROM audit_hashes WHERE log = ? AND idx = ?", t.s.logID, n).Scan(&h); err != nil {
				return nil, fmt.Errorf("stored hash %d: %w", n, err)
			}
			if len(h) != tlog.HashSize {
				return nil, fmt.Errorf("stored hash %d has %d bytes", n, len(h))
			}
			out[i] = tlog.Hash(h)
		}
		return out, nil
	})
}

// checkLog refuses a log that was altered at rest, and tells the second place
// where the log stands.
func (s *Store) checkLog(ctx context.Context) error {
	var st audit.State
	var bad error
	err := s.update(ctx, sallyport.Receive, func(t *txn) error {
		var err error
		if st, err = t.logState(); err == nil {
			bad = s.seal.Check(st, t.hashes())
		}
		return err
	})
	if err = errors.Join(err, bad); err == nil && st.Size > 0 {
		s.seal.Publish(st.Size, st.Head)
		err = s.seal.Healthy()
	}
	return err
}

// AppendEntries makes entries durable, in order, in one transaction.
func (s *Store) AppendEntries(ctx context.Context, entries ...sallyport.Entry) error {
	return s.update(ctx, sallyport.Respond, func(t *txn) error {
		t.entries = entries
		return nil
	})
}

// EraseAudit removes the payload of one entry for good. The log still holds:
// it has only ever committed to the payload. Another entry tells who erased it
// and why; such an entry itself cannot be erased.
func (s *Store) EraseAudit(ctx context.Context, writer string, seq int64, by, reason string) error {
	err := s.update(ctx, sallyport.Respond, func(t *txn) error {
		own, err := t.logState()
		if err != nil {
			return err
		}
		if writer != own.Writer {
			return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Respond,
				Message: fmt.Sprintf("the entry belongs to the log of %s, which another gateway writes", writer),
				Hint:    "erase it there"}
		}
		var tenant, kind string
		var payload sql.NullString
		err = t.row(`SELECT e.tenant, e.kind, p.payload FROM audit_entries e JOIN audit_payloads p USING (log, seq)
			WHERE e.log = ? AND e.seq = ?`, t.s.logID, seq).Scan(&tenant, &kind, &payload)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !payload.Valid {
			return notFound(sallyport.Respond, fmt.Sprintf("there is no payload of entry %d", seq))
		} else if err != nil {
			return err
		}
		if kind == string(sallyport.EntryAdmin) && strings.Contains(payload.String, audit.EraseAction) {
			return &sallyport.Error{Code: sallyport.Denied, Step: sallyport.Respond, Message: "the record of an erasure cannot be erased"}
		}
		e, err := audit.AdminEntry(tenant, sallyport.Change{Action: audit.EraseAction, By: by, Reason: reason,
			Detail: audit.Erasure{Writer: writer, Seq: seq}})
		if err != nil {
			return err
		}
		t.log(e)
		_, err = t.exec("UPDATE audit_payloads SET salt = NULL, payload = NULL, erased = ? WHERE log = ? AND seq = ?",
			own.Size, t.s.logID, seq) // own.Size is the sequence that e will get
		return err
	})
	if err != nil {
		return err
	}
	return s.checkpoint(ctx)
}

// checkpoint moves everything into the database file and empties the WAL, which
// would otherwise keep what was erased for a while.
func (s *Store) checkpoint(ctx context.Context) error {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	_, err := s.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return storeError(sallyport.Respond, err)
}

// Logs implements audit.Source.
func (s *Store) Logs(ctx context.Context) ([]audit.State, error) {
	return list(ctx, s, func(r scanner) (st audit.State, err error) {
		err = r.Scan(&st.Writer, &st.Size, &st.Head)
		return st, err
	}, "SELECT writer, size, head FROM audit_logs ORDER BY writer")
}

const auditColumns = `l.writer, e.seq, e.tenant, e.time, e.kind, e.call_id, e.commitment, p.salt, p.payload, coalesce(p.erased, 0)
	FROM audit_entries e JOIN audit_logs l ON l.id = e.log LEFT JOIN audit_payloads p ON p.log = e.log AND p.seq = e.seq`

func scanAudit(r scanner) (audit.Row, error) {
	var row audit.Row
	var at int64
	var commitment, salt []byte
	var payload sql.NullString
	if err := r.Scan(&row.Writer, &row.Seq, &row.Tenant, &at, &row.Kind, &row.CallID, &commitment, &salt, &payload, &row.Erased); err != nil {
		return row, err
	}
	row.Time = timeAt(at)
	copy(row.Commitment[:], commitment) // a wrong length shows as a wrong commitment
	row.Salt = salt
	if payload.Valid {
		row.Payload = json.RawMessage(payload.String)
	}
	return row, nil
}

// Rows implements audit.Source. It reads in pages, so that a long verification
// holds no reading transaction open.
func (s *Store) Rows(ctx context.Context, writer string, from int64, fn func(audit.Row) error) error {
	const page = 500
	for {
		rows, err := list(ctx, s, scanAudit, "SELECT "+auditColumns+" WHERE l.writer = ? AND e.seq >= ? ORDER BY e.seq LIMIT ?", writer, from, page)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := fn(r); err != nil {
				return err
			}
		}
		if len(rows) < page {
			return nil
		}
		from = rows[len(rows)-1].Seq + 1
	}
}

// Hashes implements audit.Source.
func (s *Store) Hashes(ctx context.Context, writer string, indexes []int64) (map[int64]tlog.Hash, error) {
	type stored struct {
		idx  int64
		hash []byte
	}
	wanted, err := json.Marshal(indexes)
	if err != nil {
		return nil, err
	}
	found, err := list(ctx, s, func(r scanner) (h stored, err error) {
		err = r.Scan(&h.idx, &h.hash)
		return h, err
	}, `SELECT h.idx, h.hash FROM json_each(?) j CROSS JOIN audit_hashes h
		WHERE h.log = (SELECT id FROM audit_logs WHERE writer = ?) AND h.idx = j.value`, string(wanted), writer)
	if err != nil {
		return nil, err
	}
	out := make(map[int64]tlog.Hash, len(found))
	for _, h := range found {
		if len(h.hash) == tlog.HashSize {
			out[h.idx] = tlog.Hash(h.hash)
		}
	}
	return out, nil
}

// Search implements audit.Source.
func (s *Store) Search(ctx context.Context, f audit.Filter, limit int) ([]audit.Row, error) {
	var where []string
	var args []any
	add := func(set bool, cond string, arg any) {
		if set {
			where, args = append(where, cond), append(args, arg)
		}
	}
	add(f.Tenant != "", "e.tenant = ?", f.Tenant)
	add(f.CallID != "", "e.call_id = ?", f.CallID)
	add(f.Kind != "", "e.kind = ?", string(f.Kind))
	add(!f.Since.IsZero(), "e.time >= ?", nanos(f.Since))
	add(!f.Until.IsZero(), "e.time < ?", nanos(f.Until))
	add(f.Principal != "", payloadField("principal")+" = ?", f.Principal)
	add(f.Tool != "", payloadField("target")+" = ?", f.Tool)
	if f.Code == "ok" {
		add(true, "e.kind = ? AND p.payload IS NOT NULL AND coalesce("+payloadField("code")+", '') = ''", string(sallyport.EntryOutcome))
	} else {
		add(f.Code != "", payloadField("code")+" = ?", f.Code)
	}
	if f.Text != "" {
		where = append(where, "(instr(p.payload, ?) > 0 OR instr(p.payload, ?) > 0)")
		args = append(args, f.Text, jsonText(f.Text))
	}
	q := "SELECT " + auditColumns
	if len(where) > 0 {
		q += " WHERE " + strings.Join(where, " AND ")
	}
	q += " ORDER BY e.time DESC, e.seq DESC LIMIT ?"
	return list(ctx, s, scanAudit, q, append(args, limit)...)
}

// payloadField reads one member of the payload; a payload that was made
// unreadable must not make the others unfindable.
func payloadField(name string) string {
	return "CASE WHEN json_valid(p.payload) THEN p.payload ->> '$." + name + "' END"
}

// jsonText is s as encoding/json writes it inside a string.
func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(b[1 : len(b)-1])
}
