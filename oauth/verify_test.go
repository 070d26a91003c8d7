package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/oauth"
)

var _ gateway.Authenticator = oauth.Profiles(nil)

func TestAuthenticate(t *testing.T) {
	w := newWorld(t)
	tok, err := w.server.Issue(context.Background(), w.agent(t), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // checked, then remembered
		who, err := w.door.Authenticate(context.Background(), tok.Value)
		if err != nil {
			t.Fatal(err)
		}
		if who.Tenant != "default" || who.ID != "claude" || who.Actor != "alice" || who.TokenID != tok.ID ||
			!who.Expires.Equal(tok.Expires) || !slices.Equal(who.Roles, []string{"agent", "ops"}) || who.OnBehalfOf != "" {
			t.Errorf("principal %+v", who)
		}
	}
	if who, err := w.door.Authenticate(context.Background(), w.issue(t)); err != nil || who.Actor != "" {
		t.Errorf("actor %q, %v", who.Actor, err)
	}
}

func TestTO10_TokenOfOneProfileIsNoGoodForAnother(t *testing.T) {
	w := newWorld(t)
	v, err := oauth.NewVerifier(w.config)
	if err != nil {
		t.Fatal(err)
	}
	doors := map[string]*oauth.Audience{}
	for _, r := range []string{resource, profile} {
		if doors[r], err = v.For(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{resource, profile} {
		tok, err := w.server.Issue(context.Background(), w.agent(t), to, "")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // also when the token is remembered
			for at, door := range doors {
				if _, err := door.Authenticate(context.Background(), tok.Value); (err == nil) != (at == to) {
					t.Errorf("token for %s at %s: %v", to, at, err)
				}
			}
		}
	}
	all := oauth.Profiles{"": doors[resource], "ops": doors[profile]}
	tok := w.issue(t)
	for name, want := range map[string]bool{"": true, "ops": false, "other": false} {
		_, err := all.Authenticate(context.Background(), name, tok)
		if (err == nil) != want {
			t.Errorf("the default profile's token at profile %q: %v", name, err)
		}
		if !want {
			wantCode(t, name, err, sallyport.Unauthenticated)
		}
	}
	if _, err := v.For(issuer + "/mcp/other"); err == nil {
		t.Error("an authenticator for a resource that does not exist")
	}
	if _, err := w.server.Issue(context.Background(), w.agent(t), "https://other.example", ""); sallyport.CodeOf(err) != sallyport.Invalid {
		t.Errorf("a token for a foreign resource: %v", err)
	}
}

func TestTokenExpires(t *testing.T) {
	w := newWorld(t)
	tok := w.issue(t)
	for _, step := range []struct {
		by time.Duration
		ok bool
	}{{0, true}, {9 * time.Minute, true}, {59 * time.Second, true}, {time.Minute, false}} {
		w.advance(step.by)
		if _, err := w.door.Authenticate(context.Background(), tok); (err == nil) != step.ok {
			t.Errorf("after %v more: %v", step.by, err)
		}
	}
	// Not remembered: the same token, met for the first time when it is old.
	fresh := newWorld(t)
	tok = fresh.issue(t)
	fresh.advance(11 * time.Minute)
	_, err := fresh.door.Authenticate(context.Background(), tok)
	wantCode(t, "old", err, sallyport.Unauthenticated)
	if !strings.Contains(err.Error(), "expired") {
		t.Errorf("%v does not say that it expired", err)
	}
}

// TO-09: a call outlives its token, not its agent. So that an agent was stopped is told by
// its old token, too, whether it is remembered or not.
func TestTO09_OldTokensTellOfTheirAgent(t *testing.T) {
	for _, remembered := range []bool{true, false} {
		w := newWorld(t)
		tok := w.issue(t)
		if remembered {
			if _, err := w.door.Authenticate(context.Background(), tok); err != nil {
				t.Fatal(err)
			}
		}
		w.advance(20 * time.Minute)
		if _, err := w.door.Authenticate(context.Background(), tok); err == nil || errors.Is(err, sallyport.ErrRevoked) {
			t.Errorf("remembered %t, the control: %v", remembered, err)
		}
		a := w.agent(t)
		a.State = "suspended"
		w.people.put(a)
		w.cache.Invalidate()
		if _, err := w.door.Authenticate(context.Background(), tok); !errors.Is(err, sallyport.ErrRevoked) {
			t.Errorf("remembered %t: %v", remembered, err)
		}
	}
}

// What changes about an agent counts at the next call, though the token and
// the agent are remembered.
func TestTO09_ChangesToAnAgentActAtOnce(t *testing.T) {
	for name, change := range map[string]func(*world, *sallyport.Agent){
		"suspended": func(_ *world, a *sallyport.Agent) { a.State = "suspended" },
		"revoked":   func(_ *world, a *sallyport.Agent) { a.State = "revoked" },
		"rotated":   func(w *world, a *sallyport.Agent) { a.NotBefore = w.now().Add(time.Microsecond) },
	} {
		w := newWorld(t)
		tok := w.issue(t)
		if _, err := w.door.Authenticate(context.Background(), tok); err != nil {
			t.Fatalf("%s: the control: %v", name, err)
		}
		a := w.agent(t)
		change(w, &a)
		w.people.put(a)
		w.cache.Invalidate()
		_, err := w.door.Authenticate(context.Background(), tok)
		wantCode(t, name, err, sallyport.Unauthenticated)

		if name == "rotated" { // in the same second: the new token is good, the old one is not
			w.advance(time.Millisecond)
			if _, err := w.door.Authenticate(context.Background(), w.issue(t)); err != nil {
				t.Errorf("a token issued after the rotation: %v", err)
			}
			_, err := w.door.Authenticate(context.Background(), tok)
			wantCode(t, "the old token", err, sallyport.Unauthenticated)
		}
	}
	w := newWorld(t)
	tok := w.issue(t)
	_, _ = w.door.Authenticate(context.Background(), tok)
	a := w.agent(t)
	a.Roles = []string{"reader"}
	w.people.put(a)
	w.cache.Invalidate()
	if who, err := w.door.Authenticate(context.Background(), tok); err != nil || !slices.Equal(who.Roles, []string{"reader"}) {
		t.Errorf("roles %v, %v", who.Roles, err)
	}
}

func TestStoreDownIsNotARefusal(t *testing.T) {
	w := newWorld(t)
	tok := w.issue(t)
	w.people.broken = errors.New("disk on fire")
	w.cache.Invalidate()
	_, err := w.door.Authenticate(context.Background(), tok)
	wantCode(t, "store down", err, sallyport.Unavailable)
}

// The hot path: signature remembered, agent remembered.
func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b)
	w.config.Now = nil
	cache := oauth.NewAgentCache(w.people, time.Hour, nil)
	w.config.Agents = cache
	server, err1 := oauth.NewServer(w.config)
	v, err2 := oauth.NewVerifier(w.config)
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	door, err := v.For(resource)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 10_000} {
		toks := make([]string, n)
		for i := range toks {
			a := sallyport.Agent{Tenant: "default", ID: fmt.Sprint("a", i), State: "active"}
			w.people.put(a)
			tok, err := server.Issue(context.Background(), a, "", "")
			if err != nil {
				b.Fatal(err)
			}
			toks[i] = tok.Value
			if _, err := door.Authenticate(context.Background(), tok.Value); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := door.Authenticate(context.Background(), toks[i%n]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
