package oauth

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"sallyport.dev/sallyport"
)

// tokenType is the header of an access token (RFC 9068): other tokens that the
// same key may sign one day are not taken for one.
const tokenType = "at+jwt"

// claims are what a token says (RFC 9068, RFC 8693 for act). Roles are not
// among them.
type claims struct {
	jwt.RegisteredClaims
	ClientID string `json:"client_id"`
	Tenant   string `json:"tenant"`
	// IssuedMicros is iat in microseconds: a token and the rotation that ends
	// it may fall into the same second.
	IssuedMicros int64  `json:"iat_us"`
	Act          *actor `json:"act,omitempty"`
}

// An actor is the operator who obtained the token for the agent.
type actor struct {
	Subject string `json:"sub"`
}

// A Token is an access token as it was issued.
type Token struct {
	Value   string
	ID      string // jti
	Expires time.Time
}

// Issue makes a token with which agent may use resource ("" is the default
// one). actor is the operator who asks for it on the agent's behalf, "" if the
// agent itself asks. The caller has checked who asks; whether the agent may
// act now is checked here. Codes: Denied, Invalid.
func (s *Server) Issue(_ context.Context, agent sallyport.Agent, resource, operator string) (Token, error) {
	if resource == "" {
		resource = s.config.Resources[0]
	}
	if !slices.Contains(s.config.Resources, resource) {
		return Token{}, &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Authenticate,
			Message: fmt.Sprintf("no resource of this gateway is called %q", resource),
			Hint:    "tokens can be for " + strings.Join(s.config.Resources, ", ") + "; a new profile needs a restart",
		}
	}
	if err := active(agent); err != nil || agent.ID == "" || agent.Tenant == "" {
		return Token{}, &sallyport.Error{
			Code: sallyport.Denied, Step: sallyport.Authenticate,
			Message: fmt.Sprintf("agent %q gets no token: it is not active", agent.ID),
			Hint:    "see `sallyport agents list`", Err: err,
		}
	}
	now := s.config.Now()
	// Cut to what the token can say, so that Token.Expires is what counts.
	expires := now.Add(Lifetime).Truncate(time.Second)
	c := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: s.config.Issuer, Subject: agent.ID, Audience: jwt.ClaimStrings{resource},
			ExpiresAt: jwt.NewNumericDate(expires), IssuedAt: jwt.NewNumericDate(now), ID: rand.Text(),
		},
		ClientID: ClientID(agent.Tenant, agent.ID), Tenant: agent.Tenant, IssuedMicros: now.UnixMicro(),
	}
	if operator != "" {
		c.Act = &actor{operator}
	}
	keys := s.config.Keys.set.Load()
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	t.Header["typ"], t.Header["kid"] = tokenType, keys.kid
	value, err := t.SignedString(keys.signer)
	if err != nil {
		return Token{}, &sallyport.Error{
			Code: sallyport.Internal, Step: sallyport.Authenticate, Message: "the token could not be signed", Err: err,
		}
	}
	return Token{Value: value, ID: c.ID, Expires: expires}, nil
}
