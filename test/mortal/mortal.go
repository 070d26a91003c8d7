// Package mortal is a gateway's database that dies in the middle, for tests that
// kill a gateway at each of its writes and start another one on what is left.
package mortal

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store/sqlite"
)

// ErrDead is what a store says that has died.
var ErrDead = errors.New("killed")

// A Store dies at its nth write: before or after the write took place, all else of
// its life fails. Only what goes through Write and Gone knows of that.
type Store struct {
	*sqlite.Store
	Died chan struct{} // closed when it has

	mu     sync.Mutex // guards what follows
	left   int        // writes to live, negative: for ever
	after  bool
	writes int
}

// Open opens the database in a folder, as a gateway that starts does: what a life
// before left is recovered. Its tenant "t" has the operator "ada". n is the write at
// which it dies, 0 is none; after tells whether that one still takes place.
func Open(t testing.TB, dir string, key *audit.Key, n int, after bool) *Store {
	t.Helper()
	seal, err := audit.NewSealer(key, filepath.Join(dir, "heads"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(filepath.Join(dir, "db"), seal)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := db.Recover(ctx, db.Writer()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Admin(ctx, "t", "ada"); err != nil {
		e, err := audit.AdminEntry("t", sallyport.Change{Action: "admins add", By: "init", Target: "ada"})
		if err == nil {
			err = db.PutAdmin(ctx, sallyport.Admin{Tenant: "t", Name: "ada"}, e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		n = -1
	}
	return &Store{Store: db, Died: make(chan struct{}), left: n, after: after}
}

// Write makes a write, if the store lives.
func (s *Store) Write(fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return ErrDead
	}
	s.writes++
	if s.left--; s.left != 0 {
		return fn()
	}
	if s.after {
		_ = fn() // took place; nobody hears of it
	}
	close(s.Died)
	return ErrDead
}

// Gone is ErrDead of a store that has died.
func (s *Store) Gone() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return ErrDead
	}
	return nil
}

// Writes is how many there were.
func (s *Store) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Begin is a write.
func (s *Store) Begin(ctx context.Context, b gateway.Begin) (fence int64, err error) {
	err = s.Write(func() error { fence, err = s.Store.Begin(ctx, b); return err })
	return fence, err
}

// Finish is a write.
func (s *Store) Finish(ctx context.Context, f gateway.Finish) error {
	return s.Write(func() error { return s.Store.Finish(ctx, f) })
}

// Find fails once the store has died.
func (s *Store) Find(ctx context.Context, key sallyport.ReservationKey) (*sallyport.Reservation, error) {
	if err := s.Gone(); err != nil {
		return nil, err
	}
	return s.Store.Find(ctx, key)
}
