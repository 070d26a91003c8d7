package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config"
)

// A file with the database's password is not for everybody, and the password is
// in no name and no error.
func TestStorePassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sallyport.yaml")
	for _, tt := range []struct {
		url  string
		mode os.FileMode
		ok   bool
	}{
		{"postgres://app:hunter2@db/d", 0o600, true},
		{"postgres://app:hunter2@db/d", 0o640, true}, // the gateway's group reads it
		{"postgres://app:hunter2@db/d", 0o644, false},
		{"postgres://app@db/d?password=hunter2", 0o604, false},
		{"postgres://app@db/d", 0o644, true},
		{"postgres://app@db/d?passfile=p", 0o644, true},
		{"sqlite", 0o644, true},
	} {
		if err := os.WriteFile(path, []byte(config.Starter(tt.url)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if (err == nil) != tt.ok {
			t.Errorf("%s with mode %o: %v", tt.url, tt.mode, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || sallyport.CodeOf(err) != sallyport.Invalid) {
			t.Errorf("%s: %v", tt.url, err)
		}
		if err == nil && strings.Contains(c.StoreName(), "hunter2") {
			t.Errorf("%s is called %s", tt.url, c.StoreName())
		}
	}
}

func TestStoreURL(t *testing.T) {
	for in, want := range map[string]string{
		"sqlite":                                 "sqlite",
		"postgres://a@db:5433/d?sslmode=require": "postgres://a@db:5433/d?sslmode=require",
		"postgresql://a@/d?host=/run/postgresql": "postgresql://a@/d?host=/run/postgresql",
		"postgres://a@db/d?passfile=keys/p":      "postgres://a@db/d?passfile=%2Fetc%2Fsallyport%2Fkeys%2Fp",
		"postgres://a@db/d?passfile=/p":          "postgres://a@db/d?passfile=/p",
		"postgres://a@db/d?sslrootcert=system":   "postgres://a@db/d?sslrootcert=system",
		"mysql://a@db/d":                         "",
		"postgres:///d":                          "",
		"postgres://a:b c@db/d":                  "",
		"SQLite":                                 "",
	} {
		c, err := config.Parse(file, []byte("store: \""+in+"\"\n"))
		switch {
		case want == "" && err == nil:
			t.Errorf("%s was taken: %s", in, c.Store)
		case want != "" && (err != nil || c.Store != want):
			t.Errorf("%s is %v, %v; want %s", in, c, err, want)
		}
	}
}
