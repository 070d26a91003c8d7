package authz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/httponce"
	"sallyport.dev/sallyport/oauth/discovery"
	"sallyport.dev/sallyport/secret/vault"
)

// Transport puts the tokens of one identity into requests to a server, and into
// none to any other origin. Where the server asks for another token, it tries once
// more with one, if that takes no human.
func (k *Keeper) Transport(name string, id Identity, next http.RoundTripper) http.RoundTripper {
	return &transport{k: k, name: name, id: id, next: next}
}

type transport struct {
	k    *Keeper
	name string
	id   Identity
	next http.RoundTripper
}

// maxBody bounds what is held in memory to be sent again.
const maxBody = 64 << 20

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	s := t.k.server(t.name)
	if s == nil || discovery.Origin(req.URL.String()) != discovery.Origin(s.URL) {
		closeBody(req)
		return nil, outcome.Gone(t.name) // nothing is sent without whom it is for
	}
	body, err := readBody(req)
	if err != nil {
		return nil, outcome.NotSent(err)
	}
	token, err := t.k.token(req.Context(), s, t.id)
	if err != nil {
		return nil, err
	}
	resp, err := t.send(req, body, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	another, err := t.k.refused(req.Context(), s, t.id, token, resp)
	if err != nil {
		drain(resp)
		return nil, err
	}
	if another == "" {
		return resp, nil
	}
	drain(resp)
	resp, err = t.send(req, body, another)
	if err != nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	if err := t.k.refusedAgain(req.Context(), s, t.id, another, resp); err != nil {
		drain(resp)
		return nil, err
	}
	return resp, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer closeBody(req)
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errors.New("the request is too large")
	}
	return body, err
}

// send sends a copy of a request, whose body goes out once only.
func (t *transport) send(req *http.Request, body []byte, token string) (*http.Response, error) {
	own := req.Clone(req.Context())
	own.GetBody = nil
	if body != nil {
		httponce.SetBody(own, body)
	}
	if token != "" {
		own.Header.Set("Authorization", "Bearer "+token)
	}
	return t.next.RoundTrip(own)
}

func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}

// token returns the token for a request, "" where the gateway asks a server for
// itself that it has no login at: some tell without one what they have.
func (k *Keeper) token(ctx context.Context, s *server, id Identity) (string, error) {
	g, present, err := k.look(ctx, s, id)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	r, rejected := s.rejected[id]
	s.mu.Unlock()
	if rejected && r.token == g.Access && k.Now().Before(r.until) {
		return "", r.err
	}
	switch {
	case s.Grant == ByCode && !present && id == Gateway:
		return "", nil
	case g.fresh(k.Now()):
		return g.Access, nil
	case g.Spent:
		return "", s.required(id, g.Why)
	}
	return k.renew(ctx, s, id, "", nil)
}

// refused decides what follows a 401 or 403: another token to try with, an error,
// or neither, where the answer has nothing to do with tokens.
func (k *Keeper) refused(ctx context.Context, s *server, id Identity, token string, resp *http.Response) (string, error) {
	c := s.heard(resp.Header)
	switch {
	case c.Error == "insufficient_scope" && token != "":
		return k.stepUp(ctx, s, id, token, c)
	case resp.StatusCode == http.StatusForbidden:
		return "", nil
	case token == "" && s.Grant == ByCode:
		return "", s.required(id, "nobody has logged in")
	}
	return k.renew(ctx, s, id, token, nil)
}

// stepUp asks for more consent: at once where the gateway is known by itself, else
// by an error that says which scopes are missing. What was asked for already is not
// asked for again: another login would end in the same place.
func (k *Keeper) stepUp(ctx context.Context, s *server, id Identity, token string, c discovery.Challenge) (string, error) {
	g, _, err := k.look(ctx, s, id)
	if err != nil {
		return "", err
	}
	if g.Access != token { // another call has got more
		return k.renew(ctx, s, id, token, nil)
	}
	missing := g.missing(c.Scopes)
	if len(missing) == 0 {
		return "", s.hopeless(id, c)
	}
	if s.Grant == ByCredentials {
		return k.renew(ctx, s, id, token, c.Scopes)
	}
	k.want(ctx, s, id, missing)
	return "", s.required(id, "it wants consent to more: "+strings.Join(missing, " "))
}

// want notes scopes for the next login.
func (k *Keeper) want(ctx context.Context, s *server, id Identity, scopes []string) {
	for range 5 {
		var g grant
		p, err := k.Vault.Load(ctx, s.place(id), &g)
		if err != nil || p.Version == 0 {
			return
		}
		wanted := discovery.Union(g.Wanted, scopes)
		if slices.Equal(wanted, g.Wanted) {
			return
		}
		g.Wanted = wanted
		if _, err = k.save(ctx, s, p, g); sallyport.CodeOf(err) != sallyport.Conflict {
			return // the next refusal says it again
		}
	}
}

// hopeless is the answer where consent does not help.
func (s *server) hopeless(id Identity, c discovery.Challenge) error {
	which := "scopes that it does not name"
	if len(c.Scopes) > 0 {
		which = strings.Join(c.Scopes, " ")
	}
	return &sallyport.Error{
		Code: sallyport.AuthorizationRequired, Step: sallyport.Execute, Err: outcome.NotSent(errors.New("insufficient_scope")),
		Message: fmt.Sprintf("server %q refuses the call: it wants %s, which were asked for and do not suffice, or were not granted to %s", s.Server, which, id),
		Hint:    "another login does not help: the operator of the server must allow it to this account",
	}
}

// refusedAgain ends the matter: no call is authorised more than once.
func (k *Keeper) refusedAgain(ctx context.Context, s *server, id Identity, token string, resp *http.Response) error {
	c := s.heard(resp.Header)
	if c.Error == "insufficient_scope" {
		g, _, err := k.look(ctx, s, id)
		if err == nil && s.Grant == ByCode {
			if missing := g.missing(c.Scopes); len(missing) > 0 {
				k.want(ctx, s, id, missing)
				return s.required(id, "it wants consent to more: "+strings.Join(missing, " "))
			}
		}
		return s.hopeless(id, c)
	}
	if resp.StatusCode == http.StatusForbidden {
		return nil
	}
	var g grant
	if _, err := k.Vault.Load(ctx, vault.Place{Server: s.Server, Kind: vault.Grant, Name: string(id)}, &g); err != nil {
		return err
	}
	why, more := k.explain(ctx, s, g, "it does not take a token that was fetched just now")
	err := s.required(id, why, more...)
	s.mu.Lock()
	s.rejected[id] = rejection{token: token, until: k.Now().Add(rejectAge), err: err}
	s.mu.Unlock()
	return err
}
