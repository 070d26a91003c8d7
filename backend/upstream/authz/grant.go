package authz

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"sallyport.dev/sallyport/oauth/client"
	"sallyport.dev/sallyport/oauth/discovery"
	"sallyport.dev/sallyport/secret/vault"
)

// A grant is what the gateway holds for one identity. It says itself where it was
// got, and is never shown anywhere else.
type grant struct {
	ownership
	Issuer   string              `json:"issuer"`
	At       discovery.Server    `json:"at"`
	Client   client.Registration `json:"client"`
	Resource string              `json:"resource"`

	Access  string    `json:"access"`
	Refresh string    `json:"refresh,omitempty"`
	Got     time.Time `json:"got"`
	Expires time.Time `json:"expires"` // zero is not known
	Began   time.Time `json:"began"`   // the login
	By      string    `json:"by,omitempty"`

	Scopes []string `json:"scopes,omitempty"` // that were granted
	Asked  []string `json:"asked,omitempty"`  // that were asked for, so far
	Wanted []string `json:"wanted,omitempty"` // to ask for at the next login, beside those

	Spent bool      `json:"spent,omitempty"` // no token can be got without a login
	Why   string    `json:"why,omitempty"`   // it is
	Tries int       `json:"tries,omitempty"` // refreshes that were begun, and of whose answers nothing is known
	Fails int       `json:"fails,omitempty"` // in a row
	After time.Time `json:"after,omitzero"`  // no refresh before
	Last  string    `json:"last,omitempty"`  // sha256 of the refresh token that was used last
}

// fresh tells whether the access token is good for another call.
func (g grant) fresh(now time.Time) bool {
	if g.Access == "" || g.Spent {
		return false
	}
	if g.Expires.IsZero() {
		return true
	}
	return now.Add(min(maxFresh, g.Expires.Sub(g.Got)/4)).Before(g.Expires)
}

// alive tells whether the access token has not expired yet.
func (g grant) alive(now time.Time) bool {
	return g.Access != "" && !g.Spent && (g.Expires.IsZero() || now.Before(g.Expires))
}

// take puts new tokens in.
func (g *grant) take(t client.Tokens, now time.Time) {
	g.Access, g.Refresh, g.Got, g.Expires = t.Access, t.Refresh, now, time.Time{}
	if t.Life > 0 {
		g.Expires = now.Add(t.Life)
	}
	if t.Scope != "" {
		g.Scopes = discovery.Scopes(t.Scope)
	} else if len(g.Scopes) == 0 {
		g.Scopes = g.Asked // RFC 6749: as it was asked for
	}
	g.Spent, g.Why, g.Tries, g.Fails, g.After = false, "", 0, 0, time.Time{}
}

// missing are those of scopes that were never asked for.
func (g grant) missing(scopes []string) (out []string) {
	for _, sc := range scopes {
		if !slices.Contains(g.Scopes, sc) && !slices.Contains(g.Asked, sc) {
			out = append(out, sc)
		}
	}
	return out
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (s *server) place(id Identity) vault.Place {
	return vault.Place{Server: s.Server, Kind: vault.Grant, Name: string(id)}
}

// look returns a grant as it was a moment ago, at most.
func (k *Keeper) look(ctx context.Context, s *server, id Identity) (g grant, present bool, err error) {
	s.mu.Lock()
	seen, ok := s.seen[id]
	s.mu.Unlock()
	if ok && k.Now().Sub(seen.at) < sightAge {
		return seen.grant, seen.present, nil
	}
	p, err := k.Vault.Load(ctx, s.place(id), &g)
	if err != nil {
		return grant{}, false, err
	}
	s.see(id, g, p.Version != 0, k.Now())
	return g, p.Version != 0, nil
}

// maxSeen bounds the grants of one server that are in memory.
const maxSeen = 4096

func (s *server) see(id Identity, g grant, present bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= maxSeen {
		clear(s.seen)
	}
	s.seen[id] = sight{g, present, now}
}

// save stores a grant if nobody changed it since p was read.
func (k *Keeper) save(ctx context.Context, s *server, p vault.Place, g grant) (vault.Place, error) {
	p, err := k.Vault.Save(ctx, p, g, nil)
	if err == nil {
		s.see(Identity(p.Name), g, true, k.Now())
	}
	return p, err
}
