package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.dev/sallyport"
)

// A Sealer turns entries into rows of its log. A store calls Seal inside the
// transaction that changes state, and Committed after it.
type Sealer struct {
	key   *Key
	heads *headFile // nil without a second place

	mu  sync.Mutex
	at  edge  // as of the last commit of this process; another process may be ahead
	err error // why the record is no longer trusted, sticky
}

// NewSealer returns the sealer of key's log. headsPath, if not empty, is the
// file to which each head is appended and synced after its commit.
func NewSealer(key *Key, headsPath string) (*Sealer, error) {
	s := &Sealer{key: key}
	if headsPath != "" {
		var err error
		if s.heads, err = openHeadFile(headsPath); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Writer names the log.
func (s *Sealer) Writer() string { return s.key.writer }

// A Batch is what one transaction adds to the log.
type Batch struct {
	Rows      []Row
	FirstHash int64 // index of Hashes[0]; the others follow it
	Hashes    []tlog.Hash
	Size      int64  // of the log after it
	Head      []byte // signed note for Size

	after edge
}

// Seal gives entries their place after those of st, the log's state in the
// store. stored reads the log's stored hashes; it is used only if this process
// has not written the last entry, and then what it reads must be what the
// signed head says: a log altered at rest is never extended and signed anew.
// Nothing is remembered before Committed.
func (s *Sealer) Seal(st State, stored tlog.HashReader, entries []sallyport.Entry, now time.Time) (Batch, error) {
	e, err := s.edgeAt(st, stored)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{FirstHash: tlog.StoredHashCount(st.Size)}
	for _, in := range entries {
		if !json.Valid(in.Payload) {
			return Batch{}, fmt.Errorf("the payload of a %s entry is not JSON", in.Kind)
		}
		row := Row{Writer: s.key.writer, Seq: e.size, Tenant: in.Tenant, Time: in.Time, Kind: in.Kind,
			CallID: in.CallID, Salt: newSalt(), Payload: in.Payload}
		if row.Time.IsZero() {
			row.Time = now
		}
		row.Time = row.Time.UTC()
		row.Commitment = commit(row.Salt, row.Payload)
		hs, err := e.add(tlog.RecordHash(row.Leaf()))
		if err != nil {
			return Batch{}, fmt.Errorf("extend the audit log: %w", err)
		}
		b.Rows = append(b.Rows, row)
		b.Hashes = append(b.Hashes, hs...)
	}
	root, err := e.root()
	if err != nil {
		return Batch{}, fmt.Errorf("compute the audit log's root: %w", err)
	}
	if b.Head, err = s.key.sign(e.size, root, now); err != nil {
		return Batch{}, fmt.Errorf("sign the audit log's head: %w", err)
	}
	b.Size, b.after = e.size, e
	return b, nil
}

func (s *Sealer) edgeAt(st State, stored tlog.HashReader) (edge, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.size == st.Size {
		return s.at.clone(), nil
	}
	return s.check(st, stored)
}

// Check reports why st cannot be the state of this sealer's log, or nil. It
// also holds it against the last head in the second place: a log that was cut
// back is not written on.
func (s *Sealer) Check(st State, stored tlog.HashReader) error {
	if _, err := s.check(st, stored); err != nil || s.heads == nil {
		return err
	}
	vs, err := newVerifiers([]string{s.key.public})
	if err != nil {
		return err
	}
	last, err := s.heads.last(func(h head) bool { return h.writer == s.key.writer && vs.check(h) == nil })
	if err != nil || last.size == 0 {
		return err
	}
	const hint = "run `sallyport audit verify`; after restoring a backup on purpose, move that file away"
	if last.size > st.Size {
		return fmt.Errorf("the audit log was cut back: it has %d entries, its last head in %s says %d; %s", st.Size, s.heads.f.Name(), last.size, hint)
	}
	if root, err := tlog.TreeHash(last.size, stored); err != nil || root != last.root {
		return errors.Join(fmt.Errorf("the audit log was altered: it does not lead to its last head in %s; %s", s.heads.f.Name(), hint), err)
	}
	return nil
}

func (s *Sealer) check(st State, stored tlog.HashReader) (edge, error) {
	if st.Size == 0 && len(st.Head) == 0 {
		return edge{}, nil // a new log
	}
	vs, err := newVerifiers([]string{s.key.public})
	if err != nil {
		return edge{}, err
	}
	h, err := parseHead(st.Head)
	if err != nil {
		return edge{}, fmt.Errorf("the audit log's head is malformed: %w", err)
	}
	if h.writer != s.key.writer || h.size != st.Size {
		return edge{}, fmt.Errorf("the audit log of %s has %d entries, but its head speaks of %d of %s", s.key.writer, st.Size, h.size, h.writer)
	}
	if err := vs.check(h); err != nil {
		return edge{}, fmt.Errorf("the audit log's head is not signed by this gateway's key: %w", err)
	}
	e, err := readEdge(st.Size, stored)
	if err != nil {
		return edge{}, fmt.Errorf("read the edge of the audit log: %w", err)
	}
	if root, err := e.root(); err != nil || root != h.root {
		return edge{}, errors.Join(errors.New("the audit log was altered: its hashes do not lead to its signed head; run `sallyport audit verify`"), err)
	}
	return e, nil
}

// Committed tells that b is durable. It must be called before the next Seal.
func (s *Sealer) Committed(b Batch) {
	s.mu.Lock()
	s.at = b.after
	s.mu.Unlock()
}

// Publish appends a head to the second place and syncs it. If that fails the
// entry itself is safe, so the call that wrote it goes on; but Healthy fails
// from then on.
func (s *Sealer) Publish(size int64, note []byte) {
	if s.heads == nil {
		return
	}
	if err := s.heads.publish(size, note); err != nil {
		s.Fail(fmt.Errorf("append to the file for audit heads: %w", err))
	}
}

// Fail marks the record as no longer complete: no record, no call.
func (s *Sealer) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive,
			Message: "the gateway cannot keep its audit record, so it takes no calls",
			Hint:    "ask the operator to look at the disk and restart the gateway", Err: err}
	}
}

// Healthy returns an error once something could not be recorded.
func (s *Sealer) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close closes the second place.
func (s *Sealer) Close() error {
	if s.heads == nil {
		return nil
	}
	return s.heads.f.Close()
}

// edge is the right edge of a Merkle tree: the roots of its complete subtrees,
// by stored hash index. It is all that is needed to extend the tree.
type edge struct {
	size int64
	at   map[int64]tlog.Hash
}

func edgeIndexes(size int64) []int64 {
	var out []int64
	for level := 62; level >= 0; level-- {
		if size>>level&1 == 1 {
			out = append(out, tlog.StoredHashIndex(level, size>>level-1))
		}
	}
	return out
}

func readEdge(size int64, stored tlog.HashReader) (edge, error) {
	idx := edgeIndexes(size)
	e := edge{size: size, at: make(map[int64]tlog.Hash, len(idx))}
	if len(idx) == 0 {
		return e, nil
	}
	hs, err := stored.ReadHashes(idx)
	if err != nil {
		return edge{}, err
	}
	for i, h := range hs {
		e.at[idx[i]] = h
	}
	return e, nil
}

func (e edge) clone() edge {
	c := edge{size: e.size, at: make(map[int64]tlog.Hash, len(e.at))}
	for i, h := range e.at {
		c.at[i] = h
	}
	return c
}

// ReadHashes implements tlog.HashReader.
func (e edge) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		h, ok := e.at[n]
		if !ok {
			return nil, fmt.Errorf("hash %d is not on the edge of a tree of %d", n, e.size)
		}
		out[i] = h
	}
	return out, nil
}

// add appends a leaf and returns the hashes to store, leaf first.
func (e *edge) add(leaf tlog.Hash) ([]tlog.Hash, error) {
	hs, err := tlog.StoredHashesForRecordHash(e.size, leaf, e)
	if err != nil {
		return nil, err
	}
	first := tlog.StoredHashCount(e.size)
	grown := make(map[int64]tlog.Hash, len(e.at)+1)
	for _, n := range edgeIndexes(e.size + 1) {
		if n >= first {
			grown[n] = hs[n-first]
		} else {
			grown[n] = e.at[n]
		}
	}
	e.size, e.at = e.size+1, grown
	return hs, nil
}

func (e edge) root() (tlog.Hash, error) { return tlog.TreeHash(e.size, e) }
