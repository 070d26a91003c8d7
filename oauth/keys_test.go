package oauth_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/oauth"
)

func TestKeyRotation(t *testing.T) {
	w := newWorld(t)
	old := w.issue(t)
	if err := w.keys.Rotate(); err != nil {
		t.Fatal(err)
	}
	now := w.issue(t)
	for name, tok := range map[string]string{"old": old, "new": now} {
		if _, err := w.door.Authenticate(context.Background(), tok); err != nil {
			t.Errorf("%s token after a rotation: %v", name, err)
		}
	}
	if n := strings.Count(string(w.keys.JWKS()), `"kid"`); n != 2 {
		t.Errorf("%d keys in %s", n, w.keys.JWKS())
	}
	again, err := oauth.LoadKeys(w.dir) // as after a restart
	if err != nil || string(again.JWKS()) != string(w.keys.JWKS()) {
		t.Errorf("loaded again: %v, %s", err, again.JWKS())
	}
	if err := w.keys.Forget(); err != nil {
		t.Fatal(err)
	}
	_, err = w.door.Authenticate(context.Background(), old)
	wantCode(t, "token of a forgotten key", err, sallyport.Unauthenticated)
	if _, err := w.door.Authenticate(context.Background(), now); err != nil {
		t.Errorf("token of the key in use: %v", err)
	}
}

func TestKeysThatMustNotLoad(t *testing.T) {
	rsaLike, err := x509.MarshalPKCS8PrivateKey(mustECDSA(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(path string) error{
		"none":            os.Remove,
		"readable by all": func(p string) error { return os.Chmod(p, 0o644) },
		"by the group":    func(p string) error { return os.Chmod(p, 0o640) },
		"empty":           func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"cut short":       func(p string) error { return os.Truncate(p, 40) },
		"not a key": func(p string) error {
			return os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), 0o600)
		},
		"not Ed25519": func(p string) error {
			return os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rsaLike}), 0o600)
		},
		"a link":          func(p string) error { return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p)) },
		"a folder":        func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"bad retired key": func(p string) error { return os.WriteFile(filepath.Dir(p)+"/oauth-retired-x.pem", []byte("x"), 0o600) },
		"something behind": func(p string) error {
			b, err := os.ReadFile(p)
			return errors.Join(err, os.WriteFile(p, append(b, b...), 0o600))
		},
	} {
		dir := t.TempDir()
		if _, err := oauth.CreateKeys(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "oauth-signing.pem")
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		_, err := oauth.LoadKeys(dir)
		wantCode(t, name, err, sallyport.Unavailable)
	}
}
