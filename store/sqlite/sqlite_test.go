package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/sqlite"
	"sallyport.dev/sallyport/store/storetest"
)

// A place is a data folder, as far as the store and the record need one.
type place struct {
	dir string
	key *audit.Key
	box *secret.Rows
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{dir: t.TempDir()}
	key, err := audit.CreateKey(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	p.key = key
	if err := secret.CreateKey(p.dir); err != nil {
		t.Fatal(err)
	}
	if p.box, err = secret.OpenRows(p.dir); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) db() string        { return filepath.Join(p.dir, "sallyport.db") }
func (p *place) headsFile() string { return filepath.Join(p.dir, "heads") }

func (p *place) PublicKeys() []string { return []string{p.key.Public()} }

func (p *place) Heads(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(p.headsFile())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *place) open(clock func() time.Time) (*sqlite.Store, error) {
	seal, err := audit.NewSealer(p.key, p.headsFile())
	if err != nil {
		return nil, err
	}
	opts := []relational.Option{relational.WithClock(clock), relational.WithOpenCalls(storetest.OpenCalls), relational.WithKeptOutputs(storetest.KeptOutputs)}
	if p.box != nil {
		opts = append(opts, relational.WithBox(p.box))
	}
	return sqlite.Open(p.db(), seal, opts...)
}

func (p *place) Open(t *testing.T, clock func() time.Time) storetest.Store {
	t.Helper()
	s, err := p.open(clock)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place { return newPlace(t) })
}

func TestFileIsPrivate(t *testing.T) {
	p := newPlace(t)
	if err := os.WriteFile(p.db(), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	s := p.Open(t, time.Now)
	defer s.Close()
	if err := s.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(p.db() + "*")
	if err != nil || len(names) < 2 {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, n := range names {
		if st, err := os.Stat(n); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", n, st.Mode(), err)
		}
	}
}

func TestRefusesForeignFiles(t *testing.T) {
	p := newPlace(t)
	if err := os.WriteFile(p.db(), []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := p.open(time.Now); err == nil {
		s.Close()
		t.Error("a file that is no database was opened")
	}
	for sql, want := range map[string]string{
		"PRAGMA user_version = 99; PRAGMA application_id = 0x53505254": "newer program",
		"CREATE TABLE x (y)": "another program",
	} {
		p := newPlace(t)
		exec(t, p, sql)
		s, err := p.open(time.Now)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %s: %v, want %q", sql, err, want)
		}
	}
	if _, err := sqlite.OpenReadOnly(filepath.Join(p.dir, "none.db")); err == nil {
		t.Error("a missing file was opened for reading")
	}
}

func TestReadOnly(t *testing.T) {
	p := newPlace(t)
	s := p.Open(t, time.Now)
	defer s.Close()
	if err := s.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	ro, err := sqlite.OpenReadOnly(p.db())
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if err := ro.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: []byte("{}")}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("writing through a read-only store: %v", err)
	}
	rep, err := audit.Verify(t.Context(), ro, audit.Options{PublicKeys: p.PublicKeys(), Head: p.Heads(t)})
	if err != nil || !rep.OK() || len(rep.Logs) != 1 || rep.Logs[0].Entries != 1 {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

// After Close everything is in the one file that people copy.
func TestCloseFoldsTheLogIntoTheFile(t *testing.T) {
	p := newPlace(t)
	s, err := p.open(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	e, err := audit.AdminEntry("t", sallyport.Change{Action: "agents add", By: "test", Target: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutAgent(t.Context(), sallyport.Agent{Tenant: "t", ID: "a", State: "active", CreatedAt: time.Now()}, e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Agents(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.db() + "-wal"); err != nil {
		t.Fatalf("no write-ahead log: this test shows nothing: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(p.db() + "-wal"); err == nil && st.Size() > 0 {
		t.Errorf("%d bytes are left in the write-ahead log", st.Size())
	}
}
