package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	oauth "sallyport.dev/sallyport/oauth/client"
	"sallyport.dev/sallyport/oauth/discovery"
)

// hidden is a credential, and how it is called where it stood.
type hidden struct{ value, name string }

// credentials adds what the operator gave for this API. It is read from the
// secret store now, so a changed secret counts from the next call on.
func (o *outgoing) credentials(ctx context.Context) error {
	o.header = http.Header{}
	for name, v := range o.api.Header {
		plain, err := o.api.b.o.Secrets(ctx, v)
		if err != nil {
			return o.api.locked(err)
		}
		if err := o.set(name, plain); err != nil {
			return err
		}
		if plain != v { // there is a secret in it
			o.hide(plain, name)
		}
	}
	for _, part := range o.api.alternative(o.job.Tool.Route) {
		plain, err := o.api.b.o.Secrets(ctx, o.api.Auth[part.Scheme])
		if err != nil {
			return o.api.locked(err)
		}
		if err := o.apply(ctx, part, plain); err != nil {
			return err
		}
	}
	return nil
}

// alternative is the first one of which the operator gave every part. One without
// any is that of callers who have no credential.
func (a *api) alternative(r *sallyport.Route) []sallyport.RouteAuth {
	for _, parts := range r.Auth {
		if len(parts) > 0 && !slices.ContainsFunc(parts, func(p sallyport.RouteAuth) bool { return a.Auth[p.Scheme] == "" }) {
			return parts
		}
	}
	return nil
}

func (a *api) locked(err error) error {
	return outcome.Unavailable(err, fmt.Sprintf("the credential for server %q cannot be read", a.Name), "the operator sets the secret that its auth and headers name")
}

// apply adds one part of a credential.
func (o *outgoing) apply(ctx context.Context, part sallyport.RouteAuth, value string) error {
	o.hide(value, part.Scheme)
	switch part.Kind {
	case "header":
		return o.set(part.Name, value)
	case "query":
		if u, err := url.Parse(o.URL); err != nil || u.Query().Has(part.Name) {
			return o.twice(part.Name)
		}
		o.query = append(o.query, url.QueryEscape(part.Name)+"="+url.QueryEscape(value))
	case "cookie":
		if strings.ContainsAny(value, "; ,\"\\") || !printable(value) {
			return o.api.locked(errors.New("it cannot stand in a cookie"))
		}
		for pair := range strings.SplitSeq(o.Cookie, "; ") {
			if name, _, _ := strings.Cut(pair, "="); name == part.Name {
				return o.twice(part.Name)
			}
		}
		o.cookie = append(o.cookie, part.Name+"="+value)
	case "basic":
		user, password, ok := strings.Cut(value, ":")
		if !ok {
			return o.api.locked(errors.New("basic needs USER:PASSWORD"))
		}
		packed := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		o.hide(packed, part.Scheme)
		o.hide(password, part.Scheme)
		return o.set("Authorization", "Basic "+packed)
	case "bearer":
		return o.set("Authorization", "Bearer "+value)
	case "oauth2":
		token, err := o.api.token(ctx, part, value)
		if err != nil {
			return err
		}
		_, secret, _ := strings.Cut(value, ":")
		o.hide(token, part.Scheme)
		o.hide(secret, part.Scheme)
		return o.set("Authorization", "Bearer "+token)
	default:
		return o.api.locked(fmt.Errorf("a credential of kind %q", part.Kind))
	}
	return nil
}

// twice is the error of a call that brings what only the gateway sends.
func (o *outgoing) twice(name string) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
		Message: fmt.Sprintf("the arguments set %q, which is the credential's", name), Hint: "leave it out",
	}
}

func (o *outgoing) set(name, value string) error {
	if !printable(value) {
		return o.api.locked(errors.New("it holds what cannot stand in a header"))
	}
	o.header.Set(name, value)
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func (o *outgoing) hide(value, name string) {
	if len(value) >= 4 { // a shorter one would be found everywhere
		o.hidden = append(o.hidden, hidden{value, name})
	}
}

// mask replaces credentials in what an API says, as they are and in the forms in
// which a server that repeats requests writes them. The path masks stored secrets
// in more forms; these are made of them.
func mask(s string, all []hidden) string {
	for _, h := range all {
		quoted, err := json.Marshal(h.value)
		if err != nil {
			continue
		}
		for _, form := range []string{
			h.value, strings.Trim(string(quoted), `"`), strings.ReplaceAll(h.value, "/", `\/`), url.QueryEscape(h.value), url.PathEscape(h.value),
			base64.StdEncoding.EncodeToString([]byte(h.value)), base64.RawURLEncoding.EncodeToString([]byte(h.value)), hex.EncodeToString([]byte(h.value)),
		} {
			s = strings.ReplaceAll(s, form, "[masked: credential "+h.name+"]")
		}
	}
	return s
}

// tokens are the access tokens of an API, each until it ends.
type tokens struct {
	mu   sync.Mutex // held while one is fetched, so that it is fetched once
	kept map[string]token
}

type token struct {
	value string
	until time.Time
}

func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.kept)
}

// early is how long before its end a token is not used any more.
const early = 30 * time.Second

// token gets an access token with the client's credentials. (RFC 6749, 4.4) The
// document does not choose who sees them: it is the API's own origin, or what the
// operator named.
func (a *api) token(ctx context.Context, part sallyport.RouteAuth, value string) (string, error) {
	target, err := a.tokenURL(part.TokenURL)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(target + "\x00" + strings.Join(part.Scopes, " ") + "\x00" + value))
	key := hex.EncodeToString(sum[:])
	a.keys.mu.Lock()
	defer a.keys.mu.Unlock()
	if t, ok := a.keys.kept[key]; ok && time.Now().Before(t.until) {
		return t.value, nil
	}
	t, err := a.askToken(ctx, target, part.Scopes, value)
	if err != nil {
		return "", outcome.Unavailable(err, fmt.Sprintf("server %q: no token can be had", a.Name), "the operator looks at its auth and token_url: "+err.Error())
	}
	if a.keys.kept == nil {
		a.keys.kept = map[string]token{}
	}
	a.keys.kept[key] = t
	return t.value, nil
}

func (a *api) tokenURL(said string) (string, error) {
	if a.TokenURL != "" {
		return a.TokenURL, nil
	}
	a.mu.Lock()
	base, err := url.Parse(a.doc.Base)
	a.mu.Unlock()
	if err != nil {
		return "", err
	}
	to, err := url.Parse(said)
	if err == nil {
		to = base.ResolveReference(to)
	}
	if err != nil || said == "" || to.Scheme != base.Scheme || !strings.EqualFold(to.Host, base.Host) || to.User != nil {
		return "", outcome.Unavailable(errors.New("token_url"), fmt.Sprintf("server %q: its document has tokens fetched at another origin than the API's", a.Name),
			"the operator names the place with token_url, if it is right")
	}
	return to.String(), nil
}

func (a *api) askToken(ctx context.Context, target string, scopes []string, value string) (token, error) {
	id, secret, ok := strings.Cut(value, ":")
	if !ok {
		return token{}, errors.New("the credential must be CLIENT_ID:CLIENT_SECRET")
	}
	ctx, cancel := context.WithTimeout(ctx, a.b.o.Fetch)
	defer cancel()
	got, err := oauth.Client{HTTP: a.b.client.Transport}.OwnCredentials(ctx, discovery.Server{TokenEndpoint: target},
		oauth.Registration{ClientID: id, Secret: secret, Method: oauth.MethodBasic}, "", scopes)
	if err != nil {
		return token{}, err
	}
	life := cmp.Or(got.Life, time.Minute)
	return token{got.Access, time.Now().Add(life - min(early, life/2))}, nil
}
