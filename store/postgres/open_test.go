package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/postgres"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
)

// Gateways that start together on an empty database make its schema once.
func TestStartTogether(t *testing.T) {
	server := running(t)
	for range 3 {
		u := server.Database(t)
		var places []*place
		for range 6 {
			places = append(places, joinPlace(t, u))
		}
		var wg sync.WaitGroup
		for _, p := range places {
			wg.Go(func() {
				s, err := p.open(t)
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if err := s.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: []byte("{}")}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := server.SQL(t, u, "SELECT count(*) - count(DISTINCT version) FROM sallyport_migrations"); n != "0" {
			t.Errorf("%s migrations were applied twice", n)
		}
		if n := server.SQL(t, u, "SELECT count(*) FROM audit_logs"); n != "6" {
			t.Errorf("%s logs, want 6", n)
		}
	}
}

func TestRefusesForeignDatabases(t *testing.T) {
	server := running(t)
	for sql, want := range map[string]string{
		"CREATE TABLE x (y int)": "another program",
		"CREATE TABLE sallyport_migrations (version bigint); INSERT INTO sallyport_migrations VALUES (99)": "newer program",
	} {
		p := newPlace(t, server)
		server.SQL(t, p.url, sql)
		s, err := p.open(t)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %s: %v, want %q", sql, err, want)
		}
	}
	p := newPlace(t, server)
	if s, err := postgres.OpenReadOnly(t.Context(), p.url); err == nil || !strings.Contains(err.Error(), "start the gateway once") {
		t.Errorf("an empty database was opened for reading: %v, %v", s, err)
	}
	server.SQL(t, p.url, "CREATE TABLE x (y int)")
	own := *p // beside another program, in a schema of its own
	own.url += "&search_path=sallyport"
	if _, err := own.open(t); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a schema that is not there: %v", err)
	}
	server.SQL(t, p.url, "CREATE SCHEMA sallyport")
	s, err := own.open(t)
	if err != nil {
		t.Fatalf("in a schema of its own: %v", err)
	}
	s.Close()
}

func TestReadOnly(t *testing.T) {
	server := running(t)
	p := newPlace(t, server)
	s := p.start(t, time.Hour)
	must[int64](t)(s.Begin(t.Context(), begin("k")))
	ro, err := postgres.OpenReadOnly(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if err := ro.AppendEntries(t.Context(), sallyport.Entry{Tenant: "t", Payload: []byte("{}")}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("writing through a read-only store: %v", err)
	}
	rep, err := audit.Verify(t.Context(), ro, audit.Options{PublicKeys: p.PublicKeys(), Head: p.Heads(t)})
	if err != nil || !rep.OK() || stateOf(t, ro, "k") != sallyport.Executing {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A user that may not change the schema runs a gateway on one that is up to date.
func TestUserWithoutSchemaRights(t *testing.T) {
	server := running(t)
	p := newPlace(t, server)
	s := p.start(t, time.Hour)
	s.Close()
	server.SQL(t, p.url, `CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO app`)
	app := joinPlace(t, strings.Replace(p.url, "postgres@", "app@", 1))
	g := app.start(t, time.Hour)
	must[int64](t)(g.Begin(t.Context(), begin("k")))
	empty := joinPlace(t, strings.Replace(server.Database(t), "postgres@", "app@", 1))
	if _, err := empty.open(t); err == nil || !strings.Contains(fmt.Sprint(err), "permission denied") || hintOf(err) == "" {
		t.Errorf("an empty database, without the right to fill it: %v", err)
	}
}

func hintOf(err error) string {
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return e.Hint
	}
	return ""
}

// Passwords work as everywhere in PostgreSQL, and are in no error.
func TestPasswords(t *testing.T) {
	server := postgrestest.New(t)
	u := server.Database(t)
	server.SQL(t, u, "CREATE ROLE app LOGIN PASSWORD 'hunter2'; GRANT ALL ON SCHEMA public TO app")
	hba := filepath.Join(server.Dir, "data", "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("local all postgres trust\nlocal all app scram-sha-256\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server.SQL(t, u, "SELECT pg_reload_conf()")
	dir := t.TempDir()
	file := func(name, line string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(line+"\n"), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "*:*:*:app:hunter2", 0o600)
	with := func(password, passfile string) string {
		v, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		v.User = url.User("app")
		if password != "" {
			v.User = url.UserPassword("app", password)
		}
		if passfile != "" {
			q := v.Query()
			q.Set("passfile", passfile)
			v.RawQuery = q.Encode()
		}
		return v.String()
	}
	for name, tt := range map[string]struct{ url, env, want string }{
		"none":             {with("", ""), "", "password"},
		"in the URL":       {with("hunter2", ""), "", ""},
		"wrong in the URL": {with("hunter3", ""), "", "password"},
		"in a file":        {with("", good), "", ""},
		"no file":          {with("", filepath.Join(dir, "none")), "", "cannot be read"},
		"an open file":     {with("", file("open", "*:*:*:app:hunter2", 0o644)), "", "others can read"},
		"wrong in a file":  {with("", file("wrong", "*:*:*:app:hunter4", 0o600)), "", "password"},
		"in PGPASSWORD":    {with("", ""), "hunter2", ""},
		"no such host":     {"postgres://app:hunter2@nowhere.invalid/x", "", "nowhere.invalid"},
		"nobody listens":   {"postgres://app:hunter2@127.0.0.1:1/x", "", "127.0.0.1:1"},
		"bad port":         {"postgres://app:hunter2@127.0.0.1:x/x", "", "URL"},
		"odd password":     {"postgres://app:hunter2%zz@127.0.0.1/x", "", "URL"},
		"a query":          {"postgres://app@127.0.0.1:1/x?password=hunter2", "", "127.0.0.1:1"},
		"no database":      {"postgres://app:hunter2@127.0.0.1:1?user=", "", "names no database"},
		"bad sslmode":      {"postgres://app:hunter2@127.0.0.1:1/x?sslmode=hunter", "", "URL"},
		"a strange option": {"postgres://app:hunter2@127.0.0.1:1/x?options=-cfsync", "", "options"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PGPASSWORD", tt.env)
			p := joinPlace(t, tt.url)
			s, err := p.open(t)
			if err == nil {
				s.Close()
			}
			all := fmt.Sprint(err, hintOf(err))
			if e, ok := errors.AsType[*sallyport.Error](err); ok {
				all += fmt.Sprintf("%v %+v", e.Err, e)
			}
			switch {
			case (err == nil) != (tt.want == ""), err != nil && !strings.Contains(err.Error(), tt.want):
				t.Errorf("%v, want %q", err, tt.want)
			case err != nil && hintOf(err) == "":
				t.Errorf("%v: no hint", err)
			case strings.Contains(all, "hunter2"), strings.Contains(all, "hunter3"), strings.Contains(all, "hunter4"):
				t.Errorf("the password is in %s", all)
			}
		})
	}
}
