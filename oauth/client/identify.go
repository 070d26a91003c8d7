package client

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"sallyport.dev/sallyport/oauth/discovery"
)

// method chooses how the client proves who it is.
func (r Registration) method(s discovery.Server) string {
	supported := s.AuthMethods
	if supported == nil {
		supported = []string{MethodBasic} // RFC 8414
	}
	switch {
	case r.Method != "":
		return r.Method
	case r.Key != "":
		return MethodJWT
	case r.Secret == "":
		return MethodNone
	}
	for _, m := range []string{MethodBasic, MethodPost, MethodNone} {
		if slices.Contains(supported, m) {
			return m
		}
	}
	return MethodBasic
}

// identify adds to a request who the client is.
func (c Client) identify(req *http.Request, s discovery.Server, r Registration, form url.Values) error {
	switch m := r.method(s); m {
	case MethodNone:
		form.Set("client_id", r.ClientID)
	case MethodBasic:
		req.SetBasicAuth(url.QueryEscape(r.ClientID), url.QueryEscape(r.Secret))
	case MethodPost:
		form.Set("client_id", r.ClientID)
		form.Set("client_secret", r.Secret)
	case MethodJWT:
		assertion, err := c.assertion(s.Issuer, r)
		if err != nil {
			return err
		}
		form.Set("client_id", r.ClientID)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	default:
		return discovery.Refused("register the client with another method", "the authorization server %.200q wants clients to identify by %.40q, which is not known here", s.Issuer, m)
	}
	return nil
}

// assertion signs who the client is (RFC 7523), for this issuer alone.
func (c Client) assertion(issuer string, r Registration) (string, error) {
	key, method, err := ParseKey(r.Key)
	if err != nil {
		return "", err
	}
	now := time.Now()
	if c.Now != nil {
		now = c.Now()
	}
	return jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": r.ClientID, "sub": r.ClientID, "aud": issuer, "jti": Secret(),
		"iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(),
	}).SignedString(key)
}

// ParseKey reads a private key in PEM, and says how it signs.
func ParseKey(text string) (crypto.PrivateKey, jwt.SigningMethod, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, nil, errors.New("the private key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		if ec, ecErr := x509.ParseECPrivateKey(block.Bytes); ecErr == nil {
			key, err = ec, nil
		} else if r, rErr := x509.ParsePKCS1PrivateKey(block.Bytes); rErr == nil {
			key, err = r, nil
		}
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		m := map[int]jwt.SigningMethod{256: jwt.SigningMethodES256, 384: jwt.SigningMethodES384, 521: jwt.SigningMethodES512}[k.Curve.Params().BitSize]
		if m != nil {
			return k, m, nil
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() >= 2048 {
			return k, jwt.SigningMethodRS256, nil
		}
	case ed25519.PrivateKey:
		return k, jwt.SigningMethodEdDSA, nil
	}
	if err == nil {
		err = errors.New("want one of EC, Ed25519 or RSA with 2048 bits or more")
	}
	return nil, nil, fmt.Errorf("the private key cannot be used: %w", err)
}

// A Document says who the client is, to whom it registers with.
type Document struct {
	ClientID        string   `json:"client_id,omitempty"`
	Name            string   `json:"client_name"`
	Redirects       []string `json:"redirect_uris"`
	GrantTypes      []string `json:"grant_types"`
	ResponseTypes   []string `json:"response_types"`
	AuthMethod      string   `json:"token_endpoint_auth_method"`
	ApplicationType string   `json:"application_type"`
	Scope           string   `json:"scope,omitempty"`
}

// Describe returns the document of a client that comes back to redirect.
func Describe(redirect string) Document {
	d := Document{
		Name: "Sallyport", Redirects: []string{redirect}, GrantTypes: []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"}, AuthMethod: MethodNone, ApplicationType: "web",
	}
	if u, err := url.Parse(redirect); err == nil && discovery.Loopback(u.Hostname()) {
		d.ApplicationType = "native"
	}
	return d
}

// Register makes the client known to an issuer (RFC 7591).
func (c Client) Register(ctx context.Context, s discovery.Server, d Document) (Registration, error) {
	for _, m := range []string{MethodNone, MethodBasic, MethodPost} {
		if slices.Contains(s.AuthMethods, m) {
			d.AuthMethod = m
			break
		}
	}
	if s.AuthMethods == nil {
		d.AuthMethod = MethodBasic // RFC 8414's default
	}
	body, err := json.Marshal(d)
	if err != nil {
		return Registration{}, err
	}
	req, err := http.NewRequest(http.MethodPost, s.RegistrationEndpoint, nil) //nolint:noctx // send sets it
	if err != nil {
		return Registration{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	status, answer, err := c.send(ctx, req, string(body))
	if err != nil {
		return Registration{}, err
	}
	if status != http.StatusCreated && status != http.StatusOK {
		return Registration{}, failureOf(status, answer)
	}
	var got struct {
		ClientID string `json:"client_id"`
		Secret   string `json:"client_secret"`
		Method   string `json:"token_endpoint_auth_method"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.ClientID == "" || len(got.ClientID)+len(got.Secret) > maxToken {
		return Registration{}, &Failure{Status: status, Sent: true, Err: errors.New("the answer is not a registration")}
	}
	return Registration{Issuer: s.Issuer, ClientID: got.ClientID, Secret: got.Secret, Method: got.Method, Source: "registered", Redirect: d.Redirects[0]}, nil
}

// Revoke tells an issuer that a token is not needed any more (RFC 7009).
func (c Client) Revoke(ctx context.Context, s discovery.Server, r Registration, token string) error {
	form := url.Values{"token": {token}}
	req, err := http.NewRequest(http.MethodPost, s.RevocationEndpoint, nil) //nolint:noctx // send sets it
	if err != nil {
		return err
	}
	if err := c.identify(req, s, r, form); err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, answer, err := c.send(ctx, req, form.Encode())
	if err == nil && status != http.StatusOK {
		err = failureOf(status, answer)
	}
	return err
}
