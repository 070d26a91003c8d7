package mcpserver

import (
	"net/http"
	"net/url"
	"strings"

	"sallyport.dev/sallyport/wire"
)

// metadataPath is where RFC 9728 puts a protected resource's description; the
// resource's own path follows.
const metadataPath = "/.well-known/oauth-protected-resource"

// serveMetadata answers for the resource at rest: "" and "/mcp" are the
// default one, "/mcp/PROFILE" a profile's.
func (s *Server) serveMetadata(w http.ResponseWriter, r *http.Request, rest string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeError(w, http.StatusMethodNotAllowed, nil, invalidRequest("use GET"))
		return
	}
	if rest == "" || rest == "/" {
		rest = "/mcp"
	}
	profile, ok := s.profileOf(rest)
	if !ok {
		writeError(w, http.StatusNotFound, nil, invalidRequest("there is no such protected resource"))
		return
	}
	b := wire.AppendString([]byte(`{"resource":`), s.resource(profile))
	b = append(b, `,"authorization_servers":[`...)
	for i, as := range s.opts.AuthorizationServers {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(b, as)
	}
	b = append(b, `],"bearer_methods_supported":["header"],"resource_name":"Sallyport"}`...)
	writeJSON(w, http.StatusOK, b)
}

// resource is the canonical URI of a profile's endpoint, the audience of its tokens.
func (s *Server) resource(profile string) string {
	return s.opts.BaseURL + resourcePath(profile)
}

func resourcePath(profile string) string {
	if profile == "" {
		return "/mcp"
	}
	return "/mcp/" + profile
}

// challenge tells a client where to get a token. reason is RFC 6750's error
// code, "" where no token was given.
func (s *Server) challenge(w http.ResponseWriter, profile, reason string) {
	v := `Bearer resource_metadata="` + s.opts.BaseURL + metadataPath + resourcePath(profile) + `"`
	if reason != "" {
		v += `, error="` + reason + `"`
	}
	w.Header().Set("WWW-Authenticate", v)
}

// authorize takes the bearer token out of the request, or answers and reports
// false. Whether the token is any good is for the gateway to say.
func (x *exchange) authorize() bool {
	if tokenInQuery(x.r.URL) {
		x.s.challenge(x.w, x.profile, "invalid_request")
		x.fail(http.StatusBadRequest, invalidRequest("a token does not belong into the URL: send it in the Authorization header, and replace it, for URLs end up in logs"))
		return false
	}
	values := x.r.Header["Authorization"]
	if len(values) > 1 {
		x.s.challenge(x.w, x.profile, "invalid_request")
		x.fail(http.StatusBadRequest, invalidRequest("more than one Authorization header"))
		return false
	}
	scheme, token := "", ""
	if len(values) == 1 {
		scheme, token, _ = strings.Cut(values[0], " ")
	}
	if !strings.EqualFold(scheme, "Bearer") {
		x.s.challenge(x.w, x.profile, "")
		x.fail(http.StatusUnauthorized, &wire.Error{Code: codeUnauthenticated, Message: "a bearer token is needed: send it in the Authorization header"})
		return false
	}
	if token = strings.TrimLeft(token, " "); !validToken(token) {
		x.s.challenge(x.w, x.profile, "invalid_token")
		x.fail(http.StatusUnauthorized, &wire.Error{Code: codeUnauthenticated, Message: "the bearer token is malformed"})
		return false
	}
	x.credential = token
	return true
}

// validToken: RFC 6750's b64token.
func validToken(s string) bool {
	body := strings.TrimRight(s, "=")
	for i := 0; i < len(body); i++ {
		c := body[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/", rune(c)) {
			return false
		}
	}
	return body != "" && len(s) <= 16<<10
}

func tokenInQuery(u *url.URL) bool {
	if u.RawQuery == "" {
		return false
	}
	q := u.RawQuery
	if plain, err := url.QueryUnescape(q); err == nil {
		q = plain
	}
	return strings.Contains(strings.ToLower(q), "access_token")
}
