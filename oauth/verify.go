package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"sallyport.dev/sallyport"
)

// maxToken bounds a bearer token; ours have about 500 bytes.
const maxToken = 4096

// verifiedTokens bounds the memory of tokens whose signature was checked.
const verifiedTokens = 16384

// A Verifier checks the tokens that a Server with the same configuration
// issued. It is safe for concurrent use.
type Verifier struct {
	config Config
	parser *jwt.Parser
	cache  tokenCache
}

// NewVerifier returns a verifier. Its Agents are asked at every call: give it
// an AgentCache.
func NewVerifier(c Config) (*Verifier, error) {
	c, err := c.check()
	if err != nil {
		return nil, fmt.Errorf("oauth: %w", err)
	}
	return &Verifier{
		config: c,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
			jwt.WithStrictDecoding(),
			jwt.WithIssuer(c.Issuer),
			jwt.WithIssuedAt(),
			jwt.WithLeeway(Skew),
			jwt.WithTimeFunc(c.Now),
		),
	}, nil
}

// For returns the authenticator of one resource: it takes only tokens with
// exactly this audience, or another of its names. A resource that tokens cannot be
// for is an error.
func (v *Verifier) For(resource string, also ...string) (*Audience, error) {
	names := append([]string{resource}, also...)
	for _, name := range names {
		if !slices.Contains(v.config.Resources, name) {
			return nil, fmt.Errorf("oauth: %q is none of the resources %q", name, v.config.Resources)
		}
	}
	return &Audience{v, names}, nil
}

// Profiles implements gateway.Authenticator: each profile ("" is the default
// one) takes only tokens for its own resource.
type Profiles map[string]*Audience

// Authenticate returns who sent the token to a profile. A profile that does
// not exist takes no token.
func (p Profiles) Authenticate(ctx context.Context, profile, bearer string) (sallyport.Principal, error) {
	a := p[profile]
	if a == nil {
		return sallyport.Principal{}, unauthenticated("no token is for this profile", "ask an operator for the right URL", nil)
	}
	return a.Authenticate(ctx, bearer)
}

// An Audience takes the tokens of one resource.
type Audience struct {
	verifier *Verifier
	names    []string // of the resource; the first is its own
}

// A verified token is one whose signature and form were found good. Whether it
// is good now, here, is checked at each use.
type verified struct {
	principal sallyport.Principal // without roles
	audience  []string
	issued    time.Time
	keys      *keySet // the keys at that time
}

// Authenticate returns who sent the token. It returns code Unauthenticated for
// a token that is not good, and Unavailable when the agent cannot be looked up.
func (a *Audience) Authenticate(ctx context.Context, bearer string) (sallyport.Principal, error) {
	v := a.verifier
	t, err := v.verified(bearer)
	if err != nil {
		return sallyport.Principal{}, err
	}
	if !slices.ContainsFunc(t.audience, func(aud string) bool { return slices.Contains(a.names, aud) }) {
		return sallyport.Principal{}, unauthenticated("the token is for another resource",
			fmt.Sprintf("ask for one with resource=%s", a.names[0]), nil)
	}
	agent, err := v.config.Agents.Agent(ctx, t.principal.Tenant, t.principal.ID)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return sallyport.Principal{}, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Authenticate,
			Message: "the agent cannot be looked up now", Hint: "try again", RetryAfter: time.Second, Err: err,
		}
	}
	if err != nil || agent.ID != t.principal.ID || agent.Tenant != t.principal.Tenant {
		return sallyport.Principal{}, unauthenticated("the token's agent does not exist", "ask an operator", errors.Join(sallyport.ErrRevoked, err))
	}
	if err := active(agent); err != nil {
		return sallyport.Principal{}, unauthenticated("the token's agent is not active", "ask an operator", errors.Join(sallyport.ErrRevoked, err))
	}
	if t.issued.Before(agent.NotBefore) {
		return sallyport.Principal{}, unauthenticated("the token was revoked", getAnother, sallyport.ErrRevoked)
	}
	if !v.config.Now().Before(t.principal.Expires.Add(Skew)) { // last: a call that runs outlives its token, but not its agent
		return sallyport.Principal{}, unauthenticated("the token has expired", getAnother, nil)
	}
	who := t.principal
	who.Roles = agent.Roles
	return who, nil
}

const getAnother = "get a new one: POST /oauth/token, or `sallyport token`"

func unauthenticated(message, hint string, err error) error {
	return &sallyport.Error{
		Code: sallyport.Unauthenticated, Step: sallyport.Authenticate, Message: message, Hint: hint, Err: err,
	}
}

// verified checks what does not change for the worse: form, signature, issuer,
// and that the token is good already. The result is remembered for as long as
// the keys stay the same.
func (v *Verifier) verified(bearer string) (*verified, error) {
	if len(bearer) > maxToken {
		return nil, unauthenticated("the token is too long", getAnother, nil)
	}
	keys, sum := v.config.Keys.set.Load(), sha256.Sum256([]byte(bearer))
	if t := v.cache.get(sum); t != nil && t.keys == keys {
		return t, nil
	}
	t, err := v.parse(bearer, keys)
	if err != nil {
		return nil, unauthenticated("the token is not good", getAnother, err)
	}
	if now := v.config.Now(); now.Before(t.principal.Expires) {
		v.cache.put(sum, t, now)
	}
	return t, nil
}

// endless are claims whose end is not looked at: Authenticate does that, last.
type endless struct{ claims }

// GetExpirationTime implements jwt.Claims.
func (endless) GetExpirationTime() (end *jwt.NumericDate, err error) { return end, err }

func (v *Verifier) parse(bearer string, keys *keySet) (*verified, error) {
	// Go's base64 skips line breaks, which would give one token many spellings.
	if strings.ContainsFunc(bearer, notTokenRune) {
		return nil, errors.New("characters that no token has")
	}
	var c endless
	_, err := v.parser.ParseWithClaims(bearer, &c, func(t *jwt.Token) (any, error) {
		if t.Header["typ"] != tokenType {
			return nil, fmt.Errorf("type %v, want %s", t.Header["typ"], tokenType)
		}
		if len(t.Header) != 3 { // alg, typ, kid: nothing that we would have to understand
			return nil, errors.New("unknown members in the header")
		}
		kid, _ := t.Header["kid"].(string)
		key, ok := keys.public[kid]
		if !ok {
			return nil, errors.New("unknown key")
		}
		return key, nil
	})
	if err != nil {
		return nil, err
	}
	if c.Subject == "" || c.Tenant == "" || c.ID == "" || c.IssuedAt == nil || c.ExpiresAt == nil || len(c.Audience) == 0 ||
		c.ClientID != ClientID(c.Tenant, c.Subject) || c.IssuedMicros/1e6 != c.IssuedAt.Unix() {
		return nil, errors.New("claims are missing or contradict each other")
	}
	t := &verified{
		principal: sallyport.Principal{
			Tenant: c.Tenant, ID: c.Subject, TokenID: c.ID, Expires: c.ExpiresAt.Time,
		},
		audience: c.Audience, issued: time.UnixMicro(c.IssuedMicros), keys: keys,
	}
	if c.Act != nil {
		t.principal.Actor = c.Act.Subject
	}
	return t, nil
}

func notTokenRune(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// A tokenCache remembers verified tokens by the sha256 of their text. Its zero
// value is empty.
type tokenCache struct {
	mu sync.RWMutex
	m  map[[sha256.Size]byte]*verified
}

func (c *tokenCache) get(sum [sha256.Size]byte) *verified {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.m[sum]
}

// put adds t. When the cache is full, expired tokens go, or else some others.
func (c *tokenCache) put(sum [sha256.Size]byte, t *verified, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[[sha256.Size]byte]*verified)
	}
	if len(c.m) >= verifiedTokens {
		for k, old := range c.m {
			if !now.Before(old.principal.Expires) {
				delete(c.m, k)
			}
		}
		for k := range c.m {
			if len(c.m) < verifiedTokens*3/4 {
				break
			}
			delete(c.m, k)
		}
	}
	c.m[sum] = t
}
