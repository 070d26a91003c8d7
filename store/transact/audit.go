package transact

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// seal writes the transaction's entries into the audit log.
func (t *Tx) seal() (audit.Batch, error) {
	st, err := t.logState()
	if err != nil {
		return audit.Batch{}, err
	}
	b, err := t.db.seal.Seal(st, t.hashes(), t.entries, t.Now)
	if err != nil {
		return audit.Batch{}, fmt.Errorf("seal the audit entries: %w", err)
	}
	if st.Head == nil {
		if _, err := t.Exec("INSERT INTO audit_logs (writer, size, head) VALUES (?, 0, ?)", st.Writer, []byte{}); err != nil {
			return audit.Batch{}, err
		}
		if err := t.Row("SELECT id FROM audit_logs WHERE writer = ?", st.Writer).Scan(&t.db.logID); err != nil {
			return audit.Batch{}, err
		}
	}
	id := t.db.logID
	if err := t.insertRows(id, b); err != nil {
		return audit.Batch{}, err
	}
	return b, t.Later("UPDATE audit_logs SET size = ?, head = ? WHERE id = ?", b.Size, b.Head, id)
}

// rowsPerInsert bounds one INSERT, and with it how many different ones there are.
const rowsPerInsert = 32

// insertRows writes what a batch adds to the log.
func (t *Tx) insertRows(id int64, b audit.Batch) error {
	for rows := range slices.Chunk(b.Rows, rowsPerInsert) {
		var entries, payloads []any
		for _, r := range rows {
			entries = append(entries, id, r.Seq, r.Tenant, r.Time.UnixNano(), string(r.Kind), r.CallID, r.Commitment[:])
			payloads = append(payloads, id, r.Seq, r.Tenant, r.Salt, string(r.Payload))
		}
		if err := t.insert("audit_entries (log, seq, tenant, time, kind, call_id, commitment)", 7, entries); err != nil {
			return err
		}
		if err := t.insert("audit_payloads (log, seq, tenant, salt, payload)", 5, payloads); err != nil {
			return err
		}
	}
	next := b.FirstHash
	for hashes := range slices.Chunk(b.Hashes, rowsPerInsert) {
		var args []any
		for _, h := range hashes {
			args = append(args, id, next, h[:])
			next++
		}
		if err := t.insert("audit_hashes (log, idx, hash)", 3, args); err != nil {
			return err
		}
	}
	return nil
}

// insert inserts several rows at once.
func (t *Tx) insert(into string, columns int, args []any) error {
	row := Marks(columns)
	return t.Later("INSERT INTO "+into+" VALUES "+row+strings.Repeat(", "+row, len(args)/columns-1), args...)
}

// logName names the fact how far the log of this store's writer has come.
type logName struct{}

func (t *Tx) logFact() Fact {
	return Fact{logName{}, "SELECT id, size, head FROM audit_logs WHERE writer = ?" + t.db.dialect.Lock, []any{t.db.seal.Writer()}}
}

// logState reads how far the log of this store's writer has come, and its id.
func (t *Tx) logState() (audit.State, error) {
	st := audit.State{Writer: t.db.seal.Writer()}
	err := t.Know(t.logFact()).Scan(&t.db.logID, &st.Size, &st.Head)
	if errors.Is(err, sql.ErrNoRows) {
		return st, nil
	}
	if err == nil && st.Head == nil {
		st.Head = []byte{} // a log without a head is not a new one
	}
	return st, err
}

func (t *Tx) hashes() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, n := range indexes {
			var h []byte
			if err := t.Row("SELECT hash FROM audit_hashes WHERE log = ? AND idx = ?", t.db.logID, n).Scan(&h); err != nil {
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
func (db *DB) checkLog(ctx context.Context) error {
	var st audit.State
	var bad error
	err := db.Update(ctx, sallyport.Receive, func(t *Tx) error {
		var err error
		if st, err = t.logState(); err == nil {
			bad = db.seal.Check(st, t.hashes())
		}
		return err
	})
	if err = errors.Join(err, bad); err == nil && st.Size > 0 {
		db.seal.Publish(st.Size, st.Head)
		err = db.seal.Healthy()
	}
	return err
}

// AppendEntries makes entries durable, in order, in one transaction.
func (db *DB) AppendEntries(ctx context.Context, entries ...sallyport.Entry) error {
	return db.submit(ctx, sallyport.Respond, &work{own: true, fn: func(t *Tx) error {
		t.entries = append(t.entries, entries...)
		return nil
	}})
}

// EraseAudit removes the payload of one entry for good. The log still holds:
// it has only ever committed to the payload. Another entry tells who erased it
// and why; such an entry itself cannot be erased.
func (db *DB) EraseAudit(ctx context.Context, writer string, seq int64, by, reason string) error {
	err := db.Update(ctx, sallyport.Respond, func(t *Tx) error {
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
		err = t.Row(`SELECT e.tenant, e.kind, p.payload FROM audit_entries e JOIN audit_payloads p USING (log, seq)
			WHERE e.log = ? AND e.seq = ?`, t.db.logID, seq).Scan(&tenant, &kind, &payload)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !payload.Valid {
			return notFound(fmt.Sprintf("there is no payload of entry %d", seq))
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
		t.Log(e)
		_, err = t.Exec("UPDATE audit_payloads SET salt = NULL, payload = NULL, erased = ? WHERE log = ? AND seq = ?",
			own.Size+int64(len(t.entries)-1), t.db.logID, seq) // the sequence that e will get
		return err
	})
	if err != nil {
		return err
	}
	return db.compact(ctx)
}

// compact removes what the database would otherwise keep of erased rows for a
// while.
func (db *DB) compact(ctx context.Context) error {
	if db.dialect.Compact == nil {
		return nil
	}
	db.lock <- struct{}{}
	defer func() { <-db.lock }()
	return db.Error(sallyport.Respond, db.dialect.Compact(ctx, db.pen.conn))
}

// Logs implements audit.Source.
func (db *DB) Logs(ctx context.Context) ([]audit.State, error) {
	return List(ctx, db, func(r Scanner) (st audit.State, err error) {
		err = r.Scan(&st.Writer, &st.Size, &st.Head)
		return st, err
	}, "SELECT writer, size, head FROM audit_logs ORDER BY writer")
}

const auditColumns = `l.writer, e.seq, e.tenant, e.time, e.kind, e.call_id, e.commitment, p.salt, p.payload, coalesce(p.erased, 0)
	FROM audit_entries e JOIN audit_logs l ON l.id = e.log LEFT JOIN audit_payloads p ON p.log = e.log AND p.seq = e.seq`

func scanAudit(r Scanner) (audit.Row, error) {
	var row audit.Row
	var at int64
	var commitment, salt []byte
	var payload sql.NullString
	if err := r.Scan(&row.Writer, &row.Seq, &row.Tenant, &at, &row.Kind, &row.CallID, &commitment, &salt, &payload, &row.Erased); err != nil {
		return row, err
	}
	row.Time = TimeAt(at)
	copy(row.Commitment[:], commitment) // a wrong length shows as a wrong commitment
	row.Salt = salt
	if payload.Valid {
		row.Payload = json.RawMessage(payload.String)
	}
	return row, nil
}

// Rows implements audit.Source. It reads in pages, so that a long verification
// holds no reading transaction open.
func (db *DB) Rows(ctx context.Context, writer string, from int64, fn func(audit.Row) error) error {
	const page = 500
	for {
		rows, err := List(ctx, db, scanAudit, "SELECT "+auditColumns+" WHERE l.writer = ? AND e.seq >= ? ORDER BY e.seq LIMIT ?", writer, from, page)
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

// hashPage is how many stored hashes one query reads.
const hashPage = 128

// Hashes implements audit.Source.
func (db *DB) Hashes(ctx context.Context, writer string, indexes []int64) (map[int64]tlog.Hash, error) {
	type stored struct {
		idx  int64
		hash []byte
	}
	out := make(map[int64]tlog.Hash, len(indexes))
	for page := range slices.Chunk(indexes, hashPage) {
		args := []any{writer}
		for i := range hashPage {
			args = append(args, page[min(i, len(page)-1)]) // one statement for every length
		}
		found, err := List(ctx, db, func(r Scanner) (h stored, err error) {
			err = r.Scan(&h.idx, &h.hash)
			return h, err
		}, "SELECT idx, hash FROM audit_hashes WHERE log = (SELECT id FROM audit_logs WHERE writer = ?) AND idx IN "+Marks(hashPage), args...)
		if err != nil {
			return nil, err
		}
		for _, h := range found {
			if len(h.hash) == tlog.HashSize {
				out[h.idx] = tlog.Hash(h.hash)
			}
		}
	}
	return out, nil
}

// Search implements audit.Source.
func (db *DB) Search(ctx context.Context, f audit.Filter, limit int) ([]audit.Row, error) {
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
	add(!f.Since.IsZero(), "e.time >= ?", Nanos(f.Since))
	add(!f.Until.IsZero(), "e.time < ?", Nanos(f.Until))
	add(f.Principal != "", db.dialect.Member("p.payload", "principal")+" = ?", f.Principal)
	add(f.Tool != "", db.dialect.Member("p.payload", "target")+" = ?", f.Tool)
	if f.Code == "ok" {
		add(true, "e.kind = ? AND p.payload IS NOT NULL AND coalesce("+db.dialect.Member("p.payload", "code")+", '') = ''", string(sallyport.EntryOutcome))
	} else {
		add(f.Code != "", db.dialect.Member("p.payload", "code")+" = ?", f.Code)
	}
	if f.Text != "" {
		contains := db.dialect.Contains("p.payload")
		where = append(where, "("+contains+" OR "+contains+")")
		args = append(args, f.Text, jsonText(f.Text))
	}
	q := "SELECT " + auditColumns
	if len(where) > 0 {
		q += " WHERE " + strings.Join(where, " AND ")
	}
	q += " ORDER BY e.time DESC, e.seq DESC LIMIT ?"
	return List(ctx, db, scanAudit, q, append(args, limit)...)
}

// jsonText is s as encoding/json writes it inside a string.
func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(b[1 : len(b)-1])
}
