package authz

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/oauth/client"
	"sallyport.dev/sallyport/oauth/discovery"
	"sallyport.dev/sallyport/secret/vault"
)

// A Login is one that a human can finish.
type Login struct {
	Server   string    `json:"server"`
	For      Identity  `json:"for"`
	URL      string    `json:"url"`    // to open
	Issuer   string    `json:"issuer"` // whose page that is
	Scopes   []string  `json:"scopes,omitempty"`
	Expires  time.Time `json:"expires"`
	Resource string    `json:"resource"`
}

// A pending login is what must be known when the human comes back: who was asked,
// before anybody was sent there.
type pending struct {
	ownership
	For      Identity            `json:"for"`
	Issuer   string              `json:"issuer"`
	At       discovery.Server    `json:"at"`
	Client   client.Registration `json:"client"`
	Resource string              `json:"resource"`
	Verifier string              `json:"verifier"`
	Scopes   []string            `json:"scopes,omitempty"`
	By       string              `json:"by"`
}

// A trust is the issuer that an operator confirmed for a server.
type trust struct {
	ownership
	Issuer string `json:"issuer"`
	By     string `json:"by"`
}

// A Wish is the login that an operator asks for.
type Wish struct {
	For    Identity
	Issuer string // confirms this one, "" keeps to what was confirmed before
	By     string
}

// Begin starts a login.
func (k *Keeper) Begin(ctx context.Context, name string, w Wish) (Login, error) {
	s := k.server(name)
	if s == nil {
		return Login{}, &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("server %.80q has no oauth", name), Hint: "`sallyport servers list` names the servers; one gets it with oauth in sallyport.yaml, or `servers add NAME --url URL --oauth gateway`"}
	}
	if err := s.mayAsk(w); err != nil {
		return Login{}, err
	}
	if !s.lastChallenge().Bearer {
		s.probe(ctx)
	}
	r, at, err := k.find(ctx, s, w.Issuer)
	if err != nil {
		return Login{}, err
	}
	reg, err := k.register(ctx, s, at)
	if err != nil {
		return Login{}, err
	}
	var old grant
	if _, err := k.Vault.Load(ctx, s.place(w.For), &old); err != nil {
		return Login{}, err
	}
	p := pending{ownership: ownership{s.URL}, For: w.For, Issuer: at.Issuer, At: at, Client: reg, Resource: r.Resource, Verifier: client.Secret(), By: w.By, Scopes: s.scopes(r, at, old)}
	state := name + "." + client.Secret()
	link, err := client.AuthorizationURL(at, reg, state, p.Verifier, p.Resource, p.Scopes)
	if err != nil {
		return Login{}, err
	}
	open := 0
	if err := vault.Each(ctx, k.Vault, "", vault.Login, func(vault.Place, pending, error) { open++ }); err != nil {
		return Login{}, err
	}
	if open >= maxLogins {
		return Login{}, &sallyport.Error{Code: sallyport.RateLimited, Message: fmt.Sprintf("%d logins wait for somebody to finish them", open), Hint: "finish them, or wait: each is forgotten after 10 minutes", RetryAfter: loginLife}
	}
	expires := k.Now().Add(loginLife)
	if _, err := k.Vault.Save(ctx, vault.Place{Server: name, Kind: vault.Login, Name: digest(state), ExpiresAt: expires}, p, nil); err != nil {
		return Login{}, err
	}
	return Login{Server: name, For: w.For, URL: link, Issuer: at.Issuer, Scopes: p.Scopes, Expires: expires, Resource: p.Resource}, nil
}

// mayAsk refuses logins that no call would use.
func (s *server) mayAsk(w Wish) error {
	kind, who, _ := strings.Cut(string(w.For), ":")
	bad := func(hint, format string, args ...any) error {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case s.Grant != ByCode:
		return bad("nothing is to be done: it fetches its tokens itself", "server %q is authorised by the gateway's own credentials", s.Server)
	case kind != PerGateway && kind != s.Per:
		return bad("leave --"+kind+" out, or set oauth.per of the server", "server %q is authorised per %s", s.Server, s.Per)
	case kind != PerGateway && (who == "" || len(who) > 256):
		return bad("name who it is for", "for which %s?", kind)
	}
	return nil
}

// find returns what the server says, and its authorization server: the one that is
// configured, was confirmed, or is confirmed now. Another is refused.
func (k *Keeper) find(ctx context.Context, s *server, confirmed string) (discovery.Resource, discovery.Server, error) {
	r, err := s.finder.Resource(ctx, s.URL, s.lastChallenge().ResourceMetadata)
	if err != nil {
		return r, discovery.Server{}, unreached(s, err)
	}
	var t trust
	if _, err := k.Vault.Load(ctx, vault.Place{Server: s.Server, Kind: vault.Issuer}, &t); err != nil {
		return r, discovery.Server{}, err
	}
	issuer := r.AuthorizationServers[0]
	for _, want := range []string{s.Issuer, confirmed, t.Issuer} {
		if want == "" {
			continue
		}
		if issuer = want; !slices.Contains(r.AuthorizationServers, want) {
			return r, discovery.Server{}, s.switched(r, want)
		}
		break
	}
	at, err := s.finder.Server(ctx, issuer)
	if err != nil {
		err = unreached(s, err)
	}
	return r, at, err
}

// switched says that the server names another authorization server than the one
// that is trusted.
func (s *server) switched(r discovery.Resource, want string) error {
	now := strings.Join(r.AuthorizationServers, ", ")
	hint := "ask its operator; if that is right, `" + s.command(Gateway, "--issuer", r.AuthorizationServers[0]) + "` confirms it, and every login there is a new one"
	if s.Issuer != "" {
		hint = "ask its operator; if that is right, change oauth.issuer of the server"
	}
	return discovery.Refused(hint, "server %q names the authorization server %.300q now, and not %.200q, which was confirmed; nothing is sent there", s.Server, now, want)
}

func unreached(s *server, err error) error {
	if _, ours := errors.AsType[*sallyport.Error](err); ours {
		return err
	}
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Execute, Message: fmt.Sprintf("server %q: %v", s.Server, err),
		Hint: "try again; a private address must be listed in egress.private", Err: err}
}

// register returns the client as the issuer knows it: registered by hand, by its
// document, as it registered before, or as it does now.
func (k *Keeper) register(ctx context.Context, s *server, at discovery.Server) (client.Registration, error) {
	reg := client.Registration{Issuer: at.Issuer, Redirect: s.Redirect}
	switch {
	case s.ClientID != "":
		reg.ClientID, reg.Secret, reg.Key, reg.Source = s.ClientID, s.Secret, s.Key, "configured"
		return reg, nil
	case s.Document != "" && at.MetadataDocuments:
		reg.ClientID, reg.Method, reg.Source = s.Document, client.MethodNone, "document"
		return reg, nil
	}
	type registration struct {
		ownership
		client.Registration
	}
	var known registration
	place := vault.Place{Server: s.Server, Kind: vault.Client, Name: at.Issuer}
	place, err := k.Vault.Load(ctx, place, &known)
	if err != nil {
		return reg, err
	}
	if place.Version != 0 && known.Issuer == at.Issuer && known.Redirect == s.Redirect {
		return known.Registration, nil
	}
	if at.RegistrationEndpoint == "" {
		return reg, discovery.Refused("register a client there by hand, with the redirect URI "+s.Redirect+", and set oauth.client_id (and oauth.client_secret) of the server",
			"the authorization server %.200q registers no clients by itself", at.Issuer)
	}
	reg, err = s.client.Register(ctx, at, client.Describe(s.Redirect))
	if err != nil {
		return reg, unreached(s, fmt.Errorf("registration: %w", err))
	}
	place.Version = vault.Any
	_, err = k.Vault.Save(ctx, place, registration{ownership{s.URL}, reg}, nil)
	return reg, err
}

// scopes are what to ask for: what is configured, else what the server's challenge
// says, else all that it knows, and never less than before.
func (s *server) scopes(r discovery.Resource, at discovery.Server, old grant) []string {
	want := s.Scopes
	if want == nil {
		want = s.lastChallenge().Scopes
	}
	if want == nil {
		want = r.ScopesSupported
	}
	if old.Issuer == at.Issuer {
		want = discovery.Union(old.Asked, slices.Concat(want, old.Wanted))
	}
	if len(want) > 0 && slices.Contains(at.ScopesSupported, "offline_access") {
		want = discovery.Union(want, []string{"offline_access"})
	}
	return discovery.Union(want, nil)
}

// probe asks the server without a token, to hear what it asks for.
func (s *server) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := s.HTTP.RoundTrip(req)
	if err != nil {
		return // discovery goes on without a hint
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		s.heard(resp.Header)
	}
}

func (s *server) heard(h http.Header) discovery.Challenge {
	c := discovery.ParseChallenge(h.Values("WWW-Authenticate"))
	if c.Bearer {
		s.mu.Lock()
		s.challenge = c
		s.mu.Unlock()
	}
	return c
}

// Finish ends a login with what the human's browser brings back to a server's
// address. It can be done once.
func (k *Keeper) Finish(ctx context.Context, name string, response url.Values) (Login, error) {
	unknown := &sallyport.Error{Code: sallyport.NotFound, Message: "there is no such login, or it was finished, or it has expired", Hint: "start it again with `sallyport servers login`"}
	state := response.Get("state")
	from, _, ok := strings.Cut(state, ".")
	s := k.server(name)
	if !ok || from != name || s == nil || len(response["state"]) != 1 {
		return Login{}, unknown
	}
	var p pending
	if err := k.Vault.Take(ctx, vault.Place{Server: name, Kind: vault.Login, Name: digest(state)}, &p, k.Now()); sallyport.CodeOf(err) == sallyport.NotFound {
		return Login{}, unknown
	} else if err != nil {
		return Login{}, err
	}
	l := Login{Server: name, For: p.For, Issuer: p.Issuer, Resource: p.Resource}
	g, err := k.settle(ctx, s, p, response)
	if err != nil {
		k.Log.Warn("a login was not finished", "server", name, "for", p.For, "err", err)
		return l, unreached(s, err)
	}
	l.Scopes = g.Scopes
	k.Changed(name, p.For)
	return l, nil
}

func (k *Keeper) settle(ctx context.Context, s *server, p pending, response url.Values) (g grant, err error) {
	if p.URL != s.URL {
		return g, discovery.Refused("start it again", "the server has another url since this login was begun")
	}
	if err := client.CheckIssuer(p.Issuer, p.At.IssInResponse, response); err != nil {
		return g, err
	}
	if e := response.Get("error"); e != "" {
		return g, discovery.Refused("start it again when that is settled", "the authorization server answered %.60q", e)
	}
	if len(response["code"]) != 1 || response.Get("code") == "" {
		return g, discovery.Refused("start it again", "the answer holds no code")
	}
	t, err := s.client.Exchange(ctx, p.At, p.Client, response.Get("code"), p.Verifier, p.Resource)
	if err != nil {
		return g, err
	}
	g = grant{ownership: p.ownership, Issuer: p.Issuer, At: p.At, Client: p.Client, Resource: p.Resource, Asked: p.Scopes, Began: k.Now(), By: p.By}
	g.take(t, k.Now())
	if err := k.confirm(ctx, s, p); err != nil {
		return g, err
	}
	e, err := audit.AdminEntry(k.Vault.Tenant, sallyport.Change{Action: "servers login", By: p.By, Target: s.Server,
		Detail: map[string]any{"for": p.For, "issuer": p.Issuer, "resource": p.Resource, "client": p.Client.Source, "scopes": g.Scopes}})
	if err != nil {
		return g, err
	}
	place := s.place(p.For)
	place.Version = vault.Any
	if _, err := k.Vault.Save(ctx, place, g, &e); err != nil {
		return g, err
	}
	s.see(p.For, g, true, k.Now())
	s.mu.Lock()
	delete(s.rejected, p.For)
	s.mu.Unlock()
	return g, nil
}

// confirm keeps the issuer to which the operator sent a human. What others gave for
// this server is void from then on.
func (k *Keeper) confirm(ctx context.Context, s *server, p pending) error {
	place := vault.Place{Server: s.Server, Kind: vault.Issuer}
	var t trust
	place, err := k.Vault.Load(ctx, place, &t)
	if err != nil || t.Issuer == p.Issuer {
		return err
	}
	if t.Issuer != "" {
		for _, kind := range []string{vault.Grant, vault.Client} {
			err := vault.Each(ctx, k.Vault, s.Server, kind, func(at vault.Place, g grant, err error) {
				if err == nil && g.Issuer != p.Issuer {
					_, _ = k.Vault.Delete(ctx, s.Server, kind, at.Name, nil) // it is not used in any case
				}
			})
			if err != nil {
				return err
			}
		}
		s.mu.Lock()
		clear(s.seen)
		s.mu.Unlock()
	}
	place.Version = vault.Any
	_, err = k.Vault.Save(ctx, place, trust{p.ownership, p.Issuer, p.By}, nil)
	return err
}

// Logout forgets a grant, and takes it back where its issuer offers that.
func (k *Keeper) Logout(ctx context.Context, name string, id Identity, e sallyport.Entry) error {
	s := k.server(name)
	if s == nil {
		return &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("server %.80q has no oauth", name), Hint: "`sallyport servers list` names the servers"}
	}
	var g grant
	p, err := k.Vault.Load(ctx, s.place(id), &g)
	if err != nil {
		return err
	}
	if p.Version == 0 {
		return &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("nothing is held for %s at server %q", id, name), Hint: "`sallyport servers list --json` shows what is"}
	}
	if _, err := k.Vault.Delete(ctx, name, vault.Grant, string(id), &e); err != nil {
		return err
	}
	s.see(id, grant{}, false, k.Now())
	go k.revoke(s, []grant{g})
	k.Changed(name, id)
	return nil
}
