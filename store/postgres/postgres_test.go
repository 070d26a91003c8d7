package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/store/relational"
	"sallyport.dev/sallyport/store/storetest"
)

// shared is the server of all tests that do not stop it or change its settings.
var shared struct {
	*postgrestest.Server
	err error
}

func TestMain(m *testing.M) {
	shared.Server, shared.err = postgrestest.Start()
	code := m.Run()
	if shared.Server != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func running(t *testing.T) *postgrestest.Server {
	t.Helper()
	postgrestest.Need(t, shared.err)
	return shared.Server
}

// A place is a database, and a gateway's keys and heads.
type place struct {
	url string
	dir string
	key *audit.Key
}

func newPlace(t *testing.T, server *postgrestest.Server) *place {
	t.Helper()
	return joinPlace(t, server.Database(t))
}

// joinPlace is one more gateway, with a key of its own, on a database.
func joinPlace(t *testing.T, url string) *place {
	t.Helper()
	p := &place{url: url, dir: t.TempDir()}
	var err error
	if p.key, err = audit.CreateKey(p.dir); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) PublicKeys() []string { return []string{p.key.Public()} }

func (p *place) Heads(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "heads"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *place) open(t *testing.T, opts ...relational.Option) (*relational.Store, error) {
	seal, err := audit.NewSealer(p.key, filepath.Join(p.dir, "heads"))
	if err != nil {
		return nil, err
	}
	return postgres.Open(t.Context(), p.url, seal, opts...)
}

func (p *place) Open(t *testing.T, clock func() time.Time) storetest.Store {
	t.Helper()
	s, err := p.open(t, relational.WithClock(clock), relational.WithOpenCalls(storetest.OpenCalls), relational.WithKeptOutputs(storetest.KeptOutputs))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	server := running(t)
	storetest.Run(t, func(t *testing.T) storetest.Place { return newPlace(t, server) })
}
