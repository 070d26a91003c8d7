package oauth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/oauth"
)

func mustECDSA(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newLogins(t *testing.T) (*oauth.Logins, *people, *clock, string) {
	t.Helper()
	password := oauth.NewPassword()
	hash, err := oauth.HashPassword(password)
	if err != nil {
		t.Fatal(err)
	}
	p := &people{admins: map[string]sallyport.Admin{"default/root": {Tenant: "default", Name: "root", PasswordHash: hash}}}
	c := newClock()
	return oauth.NewLogins(p, c.now), p, c, password
}

var peer = oauth.Peer{UID: 1000, Session: 4711, Started: 99}

func TestLogin(t *testing.T) {
	l, p, c, password := newLogins(t)
	ctx := context.Background()
	_, err := l.Check(ctx, peer)
	wantCode(t, "before", err, sallyport.Unauthenticated)
	if a, err := l.Login(ctx, "default", "root", password, peer); err != nil || a.Name != "root" {
		t.Fatalf("%+v, %v", a, err)
	}
	if a, err := l.Check(ctx, peer); err != nil || a.Name != "root" {
		t.Fatalf("%+v, %v", a, err)
	}
	for name, other := range map[string]oauth.Peer{
		"another user":                     {UID: 1001, Session: 4711, Started: 99},
		"another session":                  {UID: 1000, Session: 4712, Started: 99},
		"a later session with the same id": {UID: 1000, Session: 4711, Started: 100},
		"nobody":                           {},
	} {
		_, err := l.Check(ctx, other)
		wantCode(t, name, err, sallyport.Unauthenticated)
	}
	c.advance(9*time.Minute + 59*time.Second)
	if _, err := l.Check(ctx, peer); err != nil {
		t.Errorf("just before the end: %v", err)
	}
	c.advance(time.Second) // uses do not prolong it
	_, err = l.Check(ctx, peer)
	wantCode(t, "after ten minutes", err, sallyport.Unauthenticated)

	if _, err := l.Login(ctx, "default", "root", password, peer); err != nil {
		t.Fatal(err)
	}
	l.Logout(peer)
	_, err = l.Check(ctx, peer)
	wantCode(t, "after logout", err, sallyport.Unauthenticated)

	if _, err := l.Login(ctx, "default", "root", password, peer); err != nil {
		t.Fatal(err)
	}
	a := p.admins["default/root"]
	delete(p.admins, "default/root")
	_, err = l.Check(ctx, peer)
	wantCode(t, "admin removed", err, sallyport.Unauthenticated)
	p.admins["default/root"] = a
	_, err = l.Check(ctx, peer)
	wantCode(t, "admin back again", err, sallyport.Unauthenticated)
}

func TestLoginEndsWithThePassword(t *testing.T) {
	l, p, _, password := newLogins(t)
	if _, err := l.Login(context.Background(), "default", "root", password, peer); err != nil {
		t.Fatal(err)
	}
	hash, err := oauth.HashPassword("another password")
	if err != nil {
		t.Fatal(err)
	}
	p.admins["default/root"] = sallyport.Admin{Tenant: "default", Name: "root", PasswordHash: hash}
	_, err = l.Check(context.Background(), peer)
	wantCode(t, "new password", err, sallyport.Unauthenticated)
}

func TestLoginsThatMustFail(t *testing.T) {
	l, p, _, password := newLogins(t)
	p.admins["default/empty"] = sallyport.Admin{Tenant: "default", Name: "empty"}
	p.admins["default/plain"] = sallyport.Admin{Tenant: "default", Name: "plain", PasswordHash: password}
	for name, tt := range map[string]struct {
		tenant, user, password string
		peer                   oauth.Peer
		code                   sallyport.Code
	}{
		"wrong password":             {"default", "root", "wrong", peer, sallyport.Unauthenticated},
		"no password":                {"default", "root", "", peer, sallyport.Unauthenticated},
		"unknown name":               {"default", "nobody", password, peer, sallyport.Unauthenticated},
		"other tenant":               {"acme", "root", password, peer, sallyport.Unauthenticated},
		"admin without a password":   {"default", "empty", "", peer, sallyport.Unauthenticated},
		"password kept in the clear": {"default", "plain", password, peer, sallyport.Unauthenticated},
		"no session":                 {"default", "root", password, oauth.Peer{UID: 1000}, sallyport.Invalid},
		"negative session":           {"default", "root", password, oauth.Peer{UID: 1000, Session: -1}, sallyport.Invalid},
	} {
		_, err := l.Login(context.Background(), tt.tenant, tt.user, tt.password, tt.peer)
		wantCode(t, name, err, tt.code)
		if err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error shows the password", name)
		}
	}
}

func TestFailedLoginsAreThrottled(t *testing.T) {
	l, _, c, password := newLogins(t)
	ctx := context.Background()
	for i := range 5 {
		_, err := l.Login(ctx, "default", "root", "wrong", peer)
		wantCode(t, fmt.Sprint("failure ", i), err, sallyport.Unauthenticated)
	}
	_, err := l.Login(ctx, "default", "root", password, peer)
	wantCode(t, "the right password after five failures", err, sallyport.RateLimited)
	other := peer
	other.UID = 0
	if _, err := l.Login(ctx, "default", "root", password, other); err != nil {
		t.Errorf("another user is locked out: %v", err)
	}
	c.advance(10 * time.Second)
	if _, err := l.Login(ctx, "default", "root", password, peer); err != nil {
		t.Errorf("ten seconds later: %v", err)
	}
}

func TestSecretsAndPasswords(t *testing.T) {
	a, hash := oauth.NewSecret()
	b, _ := oauth.NewSecret()
	if a == b || !strings.HasPrefix(a, oauth.SecretPrefix) || len(a) != len(oauth.SecretPrefix)+43 || len(hash) != 64 || strings.Contains(hash, a) {
		t.Errorf("secrets %q, %q, hash %q", a, b, hash)
	}
	if p, q := oauth.NewPassword(), oauth.NewPassword(); p == q || len(p) != 23 {
		t.Errorf("passwords %q, %q", p, q)
	}
	h1, err1 := oauth.HashPassword("correct horse")
	h2, err2 := oauth.HashPassword("correct horse")
	if err1 != nil || err2 != nil || h1 == h2 || !strings.HasPrefix(h1, "$argon2id$v=19$m=65536,t=2,p=1$") {
		t.Errorf("hashes %q, %q", h1, h2)
	}
	for _, bad := range []string{"", "short", strings.Repeat("x", 2000)} {
		if _, err := oauth.HashPassword(bad); err == nil {
			t.Errorf("a password of %d bytes is taken", len(bad))
		}
	}
}
