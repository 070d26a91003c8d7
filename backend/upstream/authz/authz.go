// Package authz authorises the gateway at upstream MCP servers, as an OAuth client
// of its own: for the gateway itself, or for each agent or user by itself. Humans
// consent through a login that an operator starts; tokens are kept in the vault,
// refreshed by one gateway at a time, and put into requests here and nowhere else.
// What an agent authenticates with never gets here.
package authz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/oauth/client"
	"sallyport.dev/sallyport/oauth/discovery"
	"sallyport.dev/sallyport/secret/vault"
)

// Whom tokens are for.
const (
	PerGateway = "gateway" // one grant for everybody
	PerAgent   = "agent"
	PerUser    = "user" // on whose behalf an agent acts
)

// How tokens are got.
const (
	ByCode        = "authorization_code" // a human consents
	ByCredentials = "client_credentials" // the gateway is known there by itself
)

// An Identity is whom a token is for: "gateway", "agent:ID" or "user:NAME".
type Identity string

// Gateway is the identity of what the gateway asks for itself.
const Gateway Identity = PerGateway

// A Config is how one server is authorised at.
type Config struct {
	Server, URL string
	Grant       string // ByCode or ByCredentials
	Per         string
	Issuer      string   // the one to use, "" is what the server names
	ClientID    string   // of a client that was registered by hand, at Issuer
	Secret      string   // of it, or
	Key         string   // its private key in PEM
	Document    string   // https URL of the client's metadata document, "" if there is none
	Scopes      []string // to ask for; nil is what the server asks for
	Redirect    string   // where humans come back to
	HTTP        http.RoundTripper
}

// Options are what all servers share.
type Options struct {
	Vault   vault.Vault
	Holder  string // names this gateway among those with the same database
	Log     *slog.Logger
	Now     func() time.Time // nil means time.Now
	Changed func(server string, id Identity)
	Lease   time.Duration // after which a gateway that refreshes counts as gone, default 30 s
	Pause   time.Duration // before a refresh is tried again, default 250 ms
}

// A Keeper keeps the authorisations of all servers. It is safe for concurrent use.
type Keeper struct {
	Options

	mu      sync.Mutex // guards what follows
	servers map[string]*server
}

// New returns a keeper of no servers.
func New(o Options) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(string, Identity) {}
	}
	o.Lease, o.Pause = cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.Pause, 250*time.Millisecond)
	return &Keeper{Options: o, servers: map[string]*server{}}
}

// A server is what is known of one of them in this process.
type server struct {
	Config
	finder discovery.Finder
	client client.Client

	mu        sync.Mutex // guards what follows
	seen      map[Identity]sight
	flights   map[string]*flight
	rejected  map[Identity]rejection
	challenge discovery.Challenge // of the last refusal
}

// A sight is a grant as it was when somebody looked.
type sight struct {
	grant   grant
	present bool
	at      time.Time
}

// A rejection is a token that the server did not take though it is new.
type rejection struct {
	token string
	until time.Time
	err   error
}

const (
	sightAge   = 2 * time.Second // how long a change by another gateway goes unseen
	rejectAge  = time.Minute     // before a server is asked again that refuses new tokens
	maxFresh   = 30 * time.Second
	loginLife  = 10 * time.Minute
	maxLogins  = 200 // that wait for their humans
	renewLimit = 2 * time.Minute
)

// Add begins to keep a server's authorisation. What is held for another server that
// had the name is forgotten.
func (k *Keeper) Add(ctx context.Context, c Config) error {
	s := &server{Config: c, finder: discovery.Finder{HTTP: c.HTTP}, client: client.Client{HTTP: c.HTTP, Now: k.Now},
		seen: map[Identity]sight{}, flights: map[string]*flight{}, rejected: map[Identity]rejection{}}
	stale := false
	look := func(_ vault.Place, of ownership, err error) { stale = stale || err == nil && of.URL != c.URL }
	for _, kind := range []string{vault.Issuer, vault.Client, vault.Grant} {
		if err := vault.Each(ctx, k.Vault, c.Server, kind, look); err != nil {
			return err
		}
	}
	if stale {
		if _, err := k.Vault.Delete(ctx, c.Server, "", "", nil); err != nil {
			return err
		}
		k.Log.Warn("the server's url is another one now: its tokens and registrations are forgotten", "server", c.Server)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.servers[c.Server] = s
	return nil
}

// An ownership is the part that every holding has.
type ownership struct {
	URL string `json:"url"` // of the server
}

// Drop stops keeping a server, and leaves what is held for it where it is.
func (k *Keeper) Drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.servers, name)
}

// Leaving reads what is held for a server that is about to be removed. After it is,
// revoke takes its grants back where their issuers offer that.
func (k *Keeper) Leaving(ctx context.Context, name string) (revoke func()) {
	s := k.server(name)
	if s == nil {
		return func() {}
	}
	all := k.grants(ctx, name)
	return func() { go k.revoke(s, all) }
}

func (k *Keeper) grants(ctx context.Context, name string) (all []grant) {
	_ = vault.Each(ctx, k.Vault, name, vault.Grant, func(_ vault.Place, g grant, err error) {
		if err == nil {
			all = append(all, g)
		}
	})
	return all
}

// revoke is a courtesy: what cannot be taken back ends by itself.
func (k *Keeper) revoke(s *server, all []grant) {
	ctx, cancel := context.WithTimeout(context.Background(), renewLimit)
	defer cancel()
	for _, g := range all {
		if g.At.RevocationEndpoint == "" || g.Refresh == "" {
			continue
		}
		if err := s.client.Revoke(ctx, g.At, g.Client, g.Refresh); err != nil {
			k.Log.Info("a grant could not be revoked", "server", s.Server, "err", err)
		}
	}
}

func (k *Keeper) server(name string) *server {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.servers[name]
}

// For says with which identity a call is made. Errors wrap ErrNotExecuted.
func (k *Keeper) For(name string, who sallyport.Principal) (Identity, error) {
	s := k.server(name)
	if s == nil {
		return Gateway, nil
	}
	switch s.Per {
	case PerAgent:
		return Identity(PerAgent + ":" + who.ID), nil
	case PerUser:
		if who.OnBehalfOf == "" {
			return "", &sallyport.Error{Code: sallyport.AuthorizationRequired, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
				Message: fmt.Sprintf("server %q is called with the consent of a user, and this call is on behalf of nobody", name),
				Hint:    "use a token that says on whose behalf the agent acts"}
		}
		return Identity(PerUser + ":" + who.OnBehalfOf), nil
	}
	return Gateway, nil
}

// A Status says what is held for one identity.
type Status struct {
	Identity Identity
	Issuer   string
	Scopes   []string
	Since    time.Time // of the login
	Wants    string    // what is missing, "" if nothing is
}

// Status tells what is held for a server; ok is false for one that is not kept.
func (k *Keeper) Status(ctx context.Context, name string) (all []Status, ok bool) {
	s := k.server(name)
	if s == nil {
		return nil, false
	}
	err := vault.Each(ctx, k.Vault, name, vault.Grant, func(p vault.Place, g grant, err error) {
		st := Status{Identity: Identity(p.Name), Issuer: g.Issuer, Scopes: g.Scopes, Since: g.Began}
		switch {
		case err != nil:
			st.Wants = "what is stored cannot be read"
		case g.Spent:
			st.Wants = "a login: " + g.Why
		case len(g.Wanted) > 0:
			st.Wants = "consent to " + strings.Join(g.Wanted, " ")
		}
		all = append(all, st)
	})
	if err != nil {
		return []Status{{Identity: Gateway, Wants: "the store cannot be read"}}, true
	}
	if s.Grant == ByCode && !slices.ContainsFunc(all, func(st Status) bool { return st.Identity == Gateway }) {
		all = append(all, Status{Identity: Gateway, Wants: "a login"})
	}
	return all, true
}

// Known are the tokens, and secrets of its clients, that this gateway has in hand, to recognise them where they
// must not be.
func (k *Keeper) Known() (tokens map[string]string) {
	tokens = map[string]string{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, s := range k.servers {
		s.mu.Lock()
		for _, seen := range s.seen {
			for _, t := range []string{seen.grant.Access, seen.grant.Refresh, seen.grant.Client.Secret} {
				if t != "" {
					tokens[t] = name
				}
			}
		}
		s.mu.Unlock()
	}
	return tokens
}

// required is the answer to a call that a human must consent to first.
func (s *server) required(id Identity, why string, scopes ...string) error {
	return &sallyport.Error{
		Code: sallyport.AuthorizationRequired, Step: sallyport.Execute, Err: outcome.NotSent(errors.New(why)),
		Message: fmt.Sprintf("server %q needs an authorisation for %s: %s", s.Server, id, why),
		Hint:    "an operator runs `" + s.command(id, scopes...) + "` and opens the URL that it prints",
	}
}

// command starts a login.
func (s *server) command(id Identity, more ...string) string {
	c := "sallyport servers login " + s.Server
	switch kind, name, _ := strings.Cut(string(id), ":"); kind {
	case PerAgent:
		c += " --agent " + name
	case PerUser:
		c += " --user " + name
	}
	return strings.Join(append([]string{c}, more...), " ")
}

// unavailable is the answer while the authorization server does not answer.
func (s *server) unavailable(err error, after time.Duration) error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Err: outcome.NotSent(err), RetryAfter: after,
		Message: fmt.Sprintf("server %q cannot be called now: no token could be fetched: %v", s.Server, brief(err)),
		Hint:    "try later; the operator sees more under servers list",
	}
}

// brief is an error without addresses, which are the operator's.
func brief(err error) string {
	if f, ok := errors.AsType[*client.Failure](err); ok {
		switch {
		case f.Code != "":
			return f.Code
		case f.Status != 0:
			return fmt.Sprintf("HTTP status %d", f.Status)
		}
		return "the authorization server does not answer"
	}
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		return e.Message
	}
	return "it failed"
}
