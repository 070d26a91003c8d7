package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/oauth/client"
	"sallyport.dev/sallyport/oauth/discovery"
	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/secret/vault"
)

const (
	maxTries  = 2 // refreshes whose answer was lost: the first, and one that looks whether it took effect
	maxAgain  = 2 // more tries at once where an answer says that nothing came of it
	maxAfter  = 5 * time.Minute
	saveFor   = 20 * time.Second
	askedOnce = 100 * time.Millisecond // between looks at what another gateway does
)

// A flight is one renewal that several calls wait for.
type flight struct {
	done  chan struct{}
	token string
	err   error
}

// renew returns a token that is not the stale one. In this process one renewal of
// an identity runs at a time, and it outlives its callers: a refresh token that was
// sent is used up.
func (k *Keeper) renew(ctx context.Context, s *server, id Identity, stale string, scopes []string) (string, error) {
	key := string(id) + "\x00" + stale + "\x00" + strings.Join(scopes, " ")
	s.mu.Lock()
	f := s.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		s.flights[key] = f
		go func() {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewLimit)
			defer cancel()
			f.token, f.err = k.renewal(own, s, id, stale, scopes)
			s.mu.Lock()
			delete(s.flights, key)
			s.mu.Unlock()
			close(f.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return "", outcome.NotSent(ctx.Err())
	}
}

// renewal looks what is stored, and gets a new token where nobody else has or does.
// Among gateways, the one that stores its intention first is the one that asks.
func (k *Keeper) renewal(ctx context.Context, s *server, id Identity, stale string, scopes []string) (string, error) {
	for again := 0; ; {
		var g grant
		p, err := k.Vault.Load(ctx, s.place(id), &g)
		if err != nil {
			return "", err
		}
		now := k.Now()
		s.see(id, g, p.Version != 0, now)
		switch {
		case g.Access != stale && g.fresh(now) && len(g.missing(scopes)) == 0:
			return g.Access, nil
		case s.Grant == ByCode && p.Version == 0:
			return "", s.required(id, "nobody has logged in")
		case s.Grant == ByCode && g.Spent:
			return "", s.required(id, g.Why)
		case p.Holder != "" && now.Before(p.HeldUntil):
			if !pause.For(ctx, askedOnce) {
				return "", outcome.NotSent(ctx.Err())
			}
			continue
		case now.Before(g.After):
			if g.alive(now) && g.Access != stale {
				return g.Access, nil
			}
			return "", s.unavailable(errors.New(g.Why), g.After.Sub(now))
		}
		p, g, err = k.claim(ctx, s, p, g, scopes)
		if sallyport.CodeOf(err) == sallyport.Conflict {
			continue // another was first
		}
		if err != nil {
			return "", err
		}
		tokens, err := s.ask(ctx, g)
		if err == nil {
			return k.keep(ctx, s, p, g, tokens)
		}
		retry, err := k.fail(ctx, s, p, g, again, err)
		switch {
		case retry:
		case sallyport.CodeOf(err) == sallyport.Conflict:
			continue
		case g.alive(k.Now()) && g.Access != stale:
			return g.Access, nil
		default:
			return "", err
		}
		if again++; !pause.For(ctx, k.Pause<<again) {
			return "", outcome.NotSent(ctx.Err())
		}
	}
}

// claim stores that this gateway is about to ask. A claim that nobody took back
// counts as an answer that was lost.
func (k *Keeper) claim(ctx context.Context, s *server, p vault.Place, g grant, scopes []string) (vault.Place, grant, error) {
	if s.Grant == ByCredentials {
		if err := k.prepare(ctx, s, &g); err != nil {
			return p, g, err
		}
		g.Asked = discovery.Union(g.Asked, scopes)
	} else if g.Refresh == "" {
		return p, g, k.spend(ctx, s, p, g, "the token is no longer taken, and it cannot be refreshed")
	} else if g.Tries >= maxTries {
		return p, g, k.spend(ctx, s, p, g, twiceLost)
	}
	g.Tries++
	g.Last = digest(g.Refresh)
	p.Holder, p.HeldUntil = k.Holder, k.Now().Add(k.Lease)
	p, err := k.save(ctx, s, p, g)
	return p, g, err
}

// ask sends the one request.
func (s *server) ask(ctx context.Context, g grant) (client.Tokens, error) {
	if s.Grant == ByCredentials {
		return s.client.OwnCredentials(ctx, g.At, g.Client, g.Resource, g.Asked)
	}
	return s.client.Refresh(ctx, g.At, g.Client, g.Refresh, g.Resource)
}

// keep stores tokens before anything uses them. Where another gateway took this
// one for gone, what it did with the same refresh token cannot be newer.
func (k *Keeper) keep(ctx context.Context, s *server, p vault.Place, g grant, t client.Tokens) (string, error) {
	old := g.Access
	g.take(t, k.Now())
	p.Holder, p.HeldUntil = "", time.Time{}
	for deadline := time.Now().Add(saveFor); ; {
		_, err := k.save(ctx, s, p, g)
		if err == nil {
			return g.Access, nil
		}
		if sallyport.CodeOf(err) == sallyport.Conflict {
			var other grant
			var at vault.Place
			at, err = k.Vault.Load(ctx, s.place(Identity(p.Name)), &other)
			switch {
			case err != nil:
			case at.Version == 0 || other.Last != g.Last || !other.Began.Equal(g.Began): // removed, or a new login
				return "", s.unavailable(errors.New("the grant was changed by another"), time.Second)
			case other.alive(k.Now()) && other.Access != old:
				return other.Access, nil // it asked later, and so has the newer one
			default:
				p.Version = at.Version
				continue
			}
		}
		if time.Now().After(deadline) || !pause.For(ctx, k.Pause) {
			k.Log.Error("a new token could not be stored, and is not used", "server", s.Server, "for", p.Name, "err", err)
			return "", s.unavailable(err, time.Second)
		}
	}
}

// fail stores what a refusal means, and says whether to try again now.
func (k *Keeper) fail(ctx context.Context, s *server, p vault.Place, g grant, again int, cause error) (retry bool, err error) {
	p.Holder, p.HeldUntil = "", time.Time{}
	f, ok := errors.AsType[*client.Failure](cause)
	lost := ok && f.Status == 0 && f.Sent
	switch {
	case ok && s.Grant == ByCode && slices.Contains([]string{"invalid_grant", "invalid_client", "unauthorized_client"}, f.Code):
		if f.Code == "invalid_client" && g.Client.Source == "registered" {
			if _, err := k.Vault.Delete(ctx, s.Server, vault.Client, g.Issuer, nil); err != nil {
				k.Log.Warn("a registration that its issuer does not know any more could not be forgotten", "server", s.Server, "err", err)
			}
		}
		return false, k.spend(ctx, s, p, g, "the authorization server answered "+f.Code)
	case lost && s.Grant == ByCode && g.Tries >= maxTries:
		return false, k.spend(ctx, s, p, g, twiceLost)
	case lost && s.Grant == ByCode:
		retry = true // Tries stands
	default:
		g.Tries = 0
		retry = again < maxAgain && (!ok || f.Status == 0 || f.Status >= 500)
	}
	if !retry {
		g.Fails++
		g.Why, g.After = brief(cause), k.Now().Add(min(time.Second<<min(g.Fails, 10), maxAfter))
	}
	k.Log.Warn("no token could be fetched", "server", s.Server, "for", p.Name, "again", retry, "err", cause)
	if _, err := k.save(ctx, s, p, g); err != nil {
		return false, err
	}
	return retry, s.unavailable(cause, max(time.Second, g.After.Sub(k.Now())))
}

const twiceLost = "the answer to a refresh was lost, and so was that to the next try"

// spend stores that only a login helps, tells the record, and returns that as an
// error.
func (k *Keeper) spend(ctx context.Context, s *server, p vault.Place, g grant, why string) error {
	id := Identity(p.Name)
	why, more := k.explain(ctx, s, g, why)
	g.Spent, g.Why, g.Access, g.Refresh, g.Tries = true, why, "", "", 0
	p.Holder, p.HeldUntil = "", time.Time{}
	e, err := audit.AdminEntry(k.Vault.Tenant, sallyport.Change{Action: "reauth_required", By: "gateway", Target: s.Server, Detail: map[string]string{"for": p.Name, "issuer": g.Issuer, "why": why}})
	if err == nil {
		_, err = k.Vault.Save(ctx, p, g, &e)
	}
	if sallyport.CodeOf(err) == sallyport.Conflict {
		return err
	}
	if err == nil {
		s.see(id, g, true, k.Now())
	}
	k.Log.Warn("reauth_required", "server", s.Server, "for", p.Name, "why", why, "err", err)
	return s.required(id, why, more...)
}

// explain adds to a reason that the server names another authorization server now,
// and what the operator gives the command to confirm that.
func (k *Keeper) explain(ctx context.Context, s *server, g grant, why string) (string, []string) {
	r, err := s.finder.Resource(ctx, s.URL, s.lastChallenge().ResourceMetadata)
	if err != nil || g.Issuer == "" || slices.Contains(r.AuthorizationServers, g.Issuer) {
		return why, nil
	}
	return fmt.Sprintf("it names another authorization server now, %.200q, and %.200q was confirmed", r.AuthorizationServers[0], g.Issuer), []string{"--issuer", r.AuthorizationServers[0]}
}

func (s *server) lastChallenge() discovery.Challenge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.challenge
}
