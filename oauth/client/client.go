// Package client speaks to authorization servers as an OAuth 2.1 client:
// registration, the authorization code with PKCE, refreshing, and credentials of
// the client's own. It keeps nothing.
package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sallyport.dev/sallyport/httponce"
	"sallyport.dev/sallyport/oauth/discovery"
)

const (
	maxAnswer = 256 << 10
	patience  = 20 * time.Second
	maxToken  = 16 << 10
)

// How a client proves who it is at the token endpoint.
const (
	MethodNone  = "none"
	MethodBasic = "client_secret_basic"
	MethodPost  = "client_secret_post"
	MethodJWT   = "private_key_jwt"
)

// A Registration is a client as one issuer knows it. It is never shown to another.
type Registration struct {
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	Secret   string `json:"secret,omitempty"`
	Key      string `json:"key,omitempty"`    // PEM of a private key, instead of a secret
	Method   string `json:"method,omitempty"` // "" is chosen by what the issuer supports
	Source   string `json:"source"`           // configured, document or registered
	Redirect string `json:"redirect,omitempty"`
}

// Tokens are what a token endpoint gave.
type Tokens struct {
	Access  string        `json:"access_token"`
	Refresh string        `json:"refresh_token"`
	Type    string        `json:"token_type"`
	Scope   string        `json:"scope"`
	Life    time.Duration `json:"-"` // 0 is not known
}

// A Failure is an answer that is no token, or none at all.
type Failure struct {
	Status int    // of HTTP, 0 where no answer came
	Code   string // RFC 6749's, e.g. invalid_grant
	Sent   bool   // the request may have been acted on
	Err    error
}

func (f *Failure) Error() string {
	switch {
	case f.Code != "":
		return fmt.Sprintf("the authorization server answered %s (HTTP status %d)", f.Code, f.Status)
	case f.Status != 0:
		return fmt.Sprintf("the authorization server answered with HTTP status %d: %v", f.Status, f.Err)
	case f.Sent:
		return fmt.Sprintf("the authorization server was asked, and its answer was lost: %v", f.Err)
	}
	return fmt.Sprintf("the authorization server was not reached: %v", f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// A Client sends requests. HTTP decides which addresses are reached.
type Client struct {
	HTTP http.RoundTripper
	Now  func() time.Time // nil means time.Now
}

// Secret returns an unguessable text, for states and PKCE.
func Secret() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// AuthorizationURL is where a human consents.
func AuthorizationURL(s discovery.Server, r Registration, state, verifier, resource string, scopes []string) (string, error) {
	if s.AuthorizationEndpoint == "" {
		return "", discovery.Refused("its operator must correct the metadata", "the authorization server %.200q names no authorization endpoint", s.Issuer)
	}
	if !slices.Contains(s.ChallengeMethods, "S256") {
		return "", discovery.Refused("its operator must switch it on", "the authorization server %.200q does not say that it checks PKCE with S256, so nobody is sent there", s.Issuer)
	}
	u, err := url.Parse(s.AuthorizationEndpoint)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(verifier))
	q := u.Query()
	for k, v := range map[string]string{
		"response_type": "code", "client_id": r.ClientID, "redirect_uri": r.Redirect, "state": state, "resource": resource,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
	} {
		q.Set(k, v)
	}
	if len(scopes) > 0 {
		q.Set("scope", strings.Join(scopes, " "))
	}
	if slices.Contains(scopes, "offline_access") {
		q.Set("prompt", "consent") // OpenID Connect gives no refresh token without it
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// CheckIssuer compares the iss of an authorization response with the issuer that
// the human was sent to (RFC 9207), byte by byte. It goes before all else that the
// response says, its error included.
func CheckIssuer(issuer string, announced bool, response url.Values) error {
	iss, given := response["iss"]
	switch {
	case given && (len(iss) != 1 || iss[0] != issuer):
		return discovery.Refused("do not repeat it before its operator was asked: the answer may come from an attacker", "the answer comes from another authorization server, %.200q, than the one that was asked, %.200q", strings.Join(iss, " "), issuer)
	case !given && announced:
		return discovery.Refused("do not repeat it before its operator was asked: the answer may come from an attacker", "the answer does not say which authorization server it is from, and %.200q says that it always does", issuer)
	}
	return nil
}

// Exchange turns a code into tokens.
func (c Client) Exchange(ctx context.Context, s discovery.Server, r Registration, code, verifier, resource string) (Tokens, error) {
	return c.token(ctx, s, r, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {r.Redirect}, "resource": {resource},
	})
}

// Refresh turns a refresh token into tokens. An answer without a new refresh token
// leaves the old one in force.
func (c Client) Refresh(ctx context.Context, s discovery.Server, r Registration, refresh, resource string) (Tokens, error) {
	t, err := c.token(ctx, s, r, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}, "resource": {resource}})
	if err == nil && t.Refresh == "" {
		t.Refresh = refresh
	}
	return t, err
}

// OwnCredentials fetches a token for the client itself (SEP-1046), for a resource if
// one is named.
func (c Client) OwnCredentials(ctx context.Context, s discovery.Server, r Registration, resource string, scopes []string) (Tokens, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if resource != "" {
		form.Set("resource", resource)
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	t, err := c.token(ctx, s, r, form)
	t.Refresh = "" // it is asked again as it was asked now
	return t, err
}

func (c Client) token(ctx context.Context, s discovery.Server, r Registration, form url.Values) (Tokens, error) {
	if r.Issuer != s.Issuer {
		return Tokens{}, discovery.Refused("log in again", "the client is registered at %.200q, and not shown to %.200q", r.Issuer, s.Issuer)
	}
	req, err := http.NewRequest(http.MethodPost, s.TokenEndpoint, nil) //nolint:noctx // send sets it
	if err != nil {
		return Tokens{}, err
	}
	if err := c.identify(req, s, r, form); err != nil {
		return Tokens{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, body, err := c.send(ctx, req, form.Encode())
	if err != nil {
		return Tokens{}, err
	}
	return parseTokens(status, body)
}

func parseTokens(status int, body []byte) (Tokens, error) {
	if status != http.StatusOK {
		return Tokens{}, failureOf(status, body)
	}
	var t Tokens
	var more struct {
		Seconds jsontext.Value `json:"expires_in"` // some write it as a text
	}
	if err := errors.Join(json.Unmarshal(body, &t), json.Unmarshal(body, &more)); err != nil {
		return t, &Failure{Status: status, Sent: true, Err: errors.New("the answer is not what the protocol says")}
	}
	switch {
	case !usable(t.Access):
		return t, &Failure{Status: status, Sent: true, Err: errors.New("there is no usable access token in the answer")}
	case t.Type != "" && !strings.EqualFold(t.Type, "Bearer"): // not every server says
		return t, &Failure{Status: status, Sent: true, Err: fmt.Errorf("a token of the type %.40q cannot be used here", t.Type)}
	}
	if n, err := strconv.ParseFloat(strings.Trim(string(more.Seconds), `"`), 64); err == nil && n > 0 {
		t.Life = time.Duration(min(n, 10*365*24*3600) * float64(time.Second))
	}
	return t, nil
}

// usable: RFC 6750's b64token, so that it makes one header line.
func usable(s string) bool {
	return s != "" && len(s) <= maxToken && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") == ""
}

// failureOf reads RFC 6749's error. Its description is the server's, and not shown.
func failureOf(status int, body []byte) error {
	var said struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &said) // what is no JSON says nothing
	f := &Failure{Status: status, Sent: true, Err: errors.New("it gave no reason")}
	if len(said.Error) <= 64 && strings.Trim(said.Error, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == "" {
		f.Code = said.Error
	}
	return f
}

// send posts a body once. No redirect is followed: the body holds credentials.
func (c Client) send(ctx context.Context, req *http.Request, body string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "sallyport")
	httponce.SetBody(req, []byte(body))
	resp, sent, err := httponce.Do(httponce.Client(c.HTTP), req.WithContext(ctx))
	if err != nil {
		return 0, nil, &Failure{Sent: sent, Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, &Failure{Sent: true, Err: err}
	}
	return resp.StatusCode, answer, nil
}
