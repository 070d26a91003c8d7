// Package discovery finds the authorization server of an MCP server: from the
// challenge in its answer, or from the places where RFC 9728 and RFC 8414 put
// documents. What a server says is believed only as far as it speaks of itself.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sallyport.dev/sallyport"
)

const (
	maxDocument = 256 << 10
	patience    = 10 * time.Second
	maxHops     = 3
	maxServers  = 16 // authorization servers of one resource that are looked at
)

// A Resource is what a protected resource says about itself (RFC 9728), as far as
// it is used here.
type Resource struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
}

// A Server is the metadata of an authorization server (RFC 8414), as far as it is
// used here.
type Server struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`
	RevocationEndpoint    string   `json:"revocation_endpoint,omitempty"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported,omitempty"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported,omitempty"`
	ScopesSupported       []string `json:"scopes_supported,omitempty"`
	GrantTypes            []string `json:"grant_types_supported,omitempty"`
	MetadataDocuments     bool     `json:"client_id_metadata_document_supported,omitempty"`
	IssInResponse         bool     `json:"authorization_response_iss_parameter_supported,omitempty"`
}

// Refused says why something that was found is not used.
func Refused(hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.AuthorizationRequired, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
		Message: fmt.Sprintf(format, args...), Hint: hint,
	}
}

// A Finder fetches documents. HTTP decides which addresses are reached.
type Finder struct{ HTTP http.RoundTripper }

// errAbsent: there is no document at this place.
var errAbsent = errors.New("there is no such document")

// Resource returns what the server at link says about itself. metadata is the
// address that its challenge named, "" if it named none. A server without any
// document is one of 2025-03-26: its own origin is its authorization server.
func (f Finder) Resource(ctx context.Context, link, metadata string) (Resource, error) {
	u, err := url.Parse(link)
	if err != nil {
		return Resource{}, err
	}
	for _, place := range resourcePlaces(u, metadata) {
		var r Resource
		err := f.fetch(ctx, place, &r)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return Resource{}, fmt.Errorf("the protected resource's document: %w", err)
		}
		if !Matches(u, r.Resource) {
			return Resource{}, Refused("the operator of the server must correct its protected-resource document, or the url here must be the one that it names",
				"the server's document at %.200q speaks of another resource, %.200q", place, r.Resource)
		}
		if len(r.AuthorizationServers) == 0 || len(r.AuthorizationServers) > maxServers {
			return Resource{}, Refused("the operator of the server must correct its protected-resource document", "the server's document names %d authorization servers", len(r.AuthorizationServers))
		}
		return r, nil
	}
	return Resource{Resource: Canonical(u), AuthorizationServers: []string{origin(u)}}, nil
}

func resourcePlaces(u *url.URL, metadata string) []string {
	const known = "/.well-known/oauth-protected-resource"
	var places []string
	if metadata != "" && (u.Scheme != "https" || strings.HasPrefix(metadata, "https://")) { // not where anybody on the way could write another one
		places = append(places, metadata)
	}
	if path := strings.TrimSuffix(u.EscapedPath(), "/"); path != "" {
		places = append(places, origin(u)+known+path)
	}
	places = append(places, origin(u)+known)
	return slices.Compact(places)
}

// Matches tells whether a document's resource is the server at u: the same URL,
// but for a slash at the end, or the origin that it is at.
func Matches(u *url.URL, resource string) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Fragment != "" || r.User != nil || r.RawQuery != "" && r.RawQuery != u.RawQuery || r.Host == "" || origin(r) != origin(u) {
		return false
	}
	path := strings.TrimSuffix(r.EscapedPath(), "/")
	return path == "" || path == strings.TrimSuffix(u.EscapedPath(), "/")
}

// Canonical is the identifier of a resource that names none: its URL without a
// fragment, or a slash at the end.
func Canonical(u *url.URL) string {
	s := origin(u) + strings.TrimSuffix(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		s += "?" + u.RawQuery
	}
	return s
}

// origin is the scheme, host and port of a URL in one form.
func origin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else if scheme == "http" {
		host = strings.TrimSuffix(host, ":80")
	}
	return scheme + "://" + host
}

// Origin is the scheme, host and port of a URL, "" of what is none.
func Origin(link string) string {
	u, err := url.Parse(link)
	if err != nil || u.Host == "" {
		return ""
	}
	return origin(u)
}

// Server returns the metadata of the authorization server with an issuer. Its
// document must name that issuer, exactly.
func (f Finder) Server(ctx context.Context, issuer string) (Server, error) {
	if err := Endpoint(issuer); err != nil {
		return Server{}, Refused("the operator of the server must name an authorization server at an https address", "the authorization server %.200q cannot be used: %v", issuer, err)
	}
	for _, place := range serverPlaces(issuer) {
		var s Server
		err := f.fetch(ctx, place, &s)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return Server{}, fmt.Errorf("the metadata of the authorization server %.200q: %w", issuer, err)
		}
		if s.Issuer != issuer {
			return Server{}, Refused("somebody may be between this gateway and the server: ask its operator", "the metadata of the authorization server %.200q is of another issuer, %.200q", issuer, s.Issuer)
		}
		return s, s.check()
	}
	return Server{}, Refused("the operator of the server must publish the metadata of its authorization server", "the authorization server %.200q publishes no metadata", issuer)
}

func serverPlaces(issuer string) []string {
	const as, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if path == "" {
		return []string{origin(u) + as, origin(u) + oidc}
	}
	return []string{origin(u) + as + path, origin(u) + oidc + path, origin(u) + path + oidc}
}

// check refuses endpoints that nothing may be sent to.
func (s Server) check() error {
	if s.TokenEndpoint == "" {
		return Refused("its operator must correct the metadata", "the authorization server %.200q names no token endpoint", s.Issuer)
	}
	for _, link := range []string{s.AuthorizationEndpoint, s.TokenEndpoint, s.RegistrationEndpoint, s.RevocationEndpoint} {
		if link == "" {
			continue
		}
		if err := Endpoint(link); err != nil {
			return Refused("its operator must correct the metadata", "the authorization server %.200q has an endpoint %.200q that cannot be used: %v", s.Issuer, link, err)
		}
	}
	return nil
}

// Endpoint reports why nothing secret may be sent to a URL, or nil: it must be
// https, but on this machine.
func Endpoint(link string) error {
	u, err := url.Parse(link)
	switch {
	case err != nil || u.Host == "":
		return errors.New("it is not a URL")
	case u.User != nil || u.Fragment != "":
		return errors.New("it holds a user or a fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !Loopback(u.Hostname())):
		return errors.New("it is not https")
	}
	return nil
}

// Loopback tells whether a host is this machine by its form.
func Loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// fetch reads one document: names count as they are written, each once, so that all
// who read it read the same. Redirects are followed within its origin only.
func (f Finder) fetch(ctx context.Context, place string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, err := url.Parse(place)
	if err != nil || first.Host == "" || first.User != nil || first.Scheme != "https" && first.Scheme != "http" {
		return Refused("the operator of the server must correct the address", "%.200q is not the address of a document", place)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "sallyport")
	c := &http.Client{Transport: f.HTTP, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) > maxHops || origin(next.URL) != origin(first) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := c.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return fmt.Errorf("%.200q: %w", place, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return errAbsent
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return Refused("its operator must publish the document where it is looked for", "%.200q leads to another place, and is not followed", place)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%.200q answers with HTTP status %d", place, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return fmt.Errorf("%.200q: %w", place, err)
	}
	if len(body) > maxDocument {
		return Refused("its operator must publish a shorter one", "the document at %.200q has more than %d bytes", place, maxDocument)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return Refused("its operator must publish one", "%.200q is not a JSON document of the kind that is looked for", place)
	}
	return nil
}
