// Package audit is the record that nobody can alter unseen. Entries go into a
// Merkle log (RFC 6962 hashing, golang.org/x/mod/sumdb/tlog) whose signed heads
// are also kept in a second place; Verify recomputes all of it.
//
// The format is fixed:
//
//   - A log belongs to one writer. The writer is made with the signing key, once
//     per data folder, so one log goes on across restarts, and several gateways
//     on one database each have a log of their own and never wait for each other.
//   - An entry's leaf covers tenant, writer, sequence, time, kind, call id and a
//     commitment: sha256 over a random salt and the payload. The payload and its
//     salt lie in another row, so that they can be erased and the log still holds.
//   - A head is a signed note in the form of a C2SP checkpoint: origin, size,
//     root hash, and the time as an extension line.
//
// This package knows no database: a store calls Sealer inside its own
// transactions, and hands its rows to Verify, Search and Export as a Source.
package audit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
)

// A Row is one sealed entry as a store keeps it.
type Row struct {
	Writer     string
	Seq        int64 // 0, 1, 2 … without gaps, per writer
	Tenant     string
	Time       time.Time
	Kind       sallyport.EntryKind
	CallID     string
	Commitment [32]byte
	Salt       []byte          // nil once erased
	Payload    json.RawMessage // nil once erased
	Erased     int64           // sequence of the entry that records the erasure, 0 = not erased
}

// Leaf returns the bytes that the Merkle log hashes for this entry. Each field
// is written with its length first, so that no two entries share an encoding.
func (r Row) Leaf() []byte {
	var b []byte
	put := func(s string) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	put("sallyport audit entry v1")
	put(r.Tenant)
	put(r.Writer)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Seq))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Time.UnixNano()))
	put(string(r.Kind))
	put(r.CallID)
	return append(b, r.Commitment[:]...)
}

// Opens reports whether salt and payload are what the entry committed to.
func (r Row) Opens() bool {
	c := commit(r.Salt, r.Payload)
	return len(r.Salt) == saltSize && subtle.ConstantTimeCompare(c[:], r.Commitment[:]) == 1
}

const saltSize = 32

func commit(salt, payload []byte) [32]byte {
	h := sha256.New()
	h.Write([]byte("sallyport audit payload v1\x00"))
	h.Write(salt)
	h.Write(payload)
	return [32]byte(h.Sum(nil))
}

func newSalt() []byte {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails: crypto/rand ends the program instead
	return salt
}

// A State is how far one log has come.
type State struct {
	Writer string
	Size   int64
	Head   []byte // signed note
}

// A Source reads what a store keeps. Every method works while another process
// appends.
type Source interface {
	// Logs returns the state of each log, ordered by writer.
	Logs(ctx context.Context) ([]State, error)

	// Rows calls fn for the rows of a log with sequence ≥ from, in order,
	// until fn returns an error, which Rows returns.
	Rows(ctx context.Context, writer string, from int64, fn func(Row) error) error

	// Hashes returns those stored hashes of a log that exist.
	Hashes(ctx context.Context, writer string, indexes []int64) (map[int64]tlog.Hash, error)

	// Search returns matching rows of all logs, newest first, at most limit.
	Search(ctx context.Context, f Filter, limit int) ([]Row, error)
}

// A Filter chooses entries. Empty fields match everything.
type Filter struct {
	Tenant    string
	CallID    string
	Principal string
	Tool      string // the target of the call
	Kind      sallyport.EntryKind
	Code      string // "ok" matches calls that ended without an error
	Since     time.Time
	Until     time.Time
	Text      string // occurs in the payload, case-sensitive
}

// MaxSearch bounds what one search returns.
const MaxSearch = 10_000

// Search returns the entries that match f, newest first. A limit that is not
// between 1 and MaxSearch becomes 100 or MaxSearch.
func Search(ctx context.Context, src Source, f Filter, limit int) ([]Row, error) {
	if limit <= 0 {
		limit = 100
	}
	return src.Search(ctx, f, min(limit, MaxSearch))
}

// AdminEntry makes the entry of an operator's change. The store sets the time.
func AdminEntry(tenant string, c sallyport.Change) (sallyport.Entry, error) {
	return NewEntry(tenant, sallyport.EntryAdmin, "", c)
}

// NewEntry makes an entry whose payload is v as JSON. The store sets the time.
func NewEntry(tenant string, kind sallyport.EntryKind, callID string, v any) (sallyport.Entry, error) {
	p, err := json.Marshal(v)
	if err != nil {
		return sallyport.Entry{}, &sallyport.Error{Code: sallyport.Internal, Step: sallyport.Respond,
			Message: "cannot write the audit entry", Err: err}
	}
	return sallyport.Entry{Tenant: tenant, Kind: kind, CallID: callID, Payload: p}, nil
}
