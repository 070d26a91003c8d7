package mcpserver

import (
	"net/http"
	"strings"
	"time"

	"sallyport.dev/sallyport/mcpserver/bearer"
	"sallyport.dev/sallyport/mcpserver/proxied"
	"sallyport.dev/sallyport/mcpserver/refusal"
	"sallyport.dev/sallyport/wire"
)

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
	writeJSON(w, http.StatusOK, proxied.Document(s.opts.Resource(r, profile), s.opts.AuthorizationServers))
}

// challenge tells a client where to get a token. reason is RFC 6750's error
// code, "" where no token was given.
func (x *exchange) challenge(reason string) {
	x.w.Header().Set("WWW-Authenticate", proxied.Challenge(x.s.opts.Resource(x.r, x.profile), reason))
}

// authorize takes the bearer token out of the request, or answers and reports
// false. Whether the token is any good is for the gateway to say.
func (x *exchange) authorize() bool {
	if bearer.InQuery(x.r.URL) {
		x.challenge("invalid_request")
		x.fail(http.StatusBadRequest, invalidRequest("a token does not belong into the URL: send it in the Authorization header, and replace it, for URLs end up in logs"))
		return false
	}
	values := x.r.Header["Authorization"]
	if len(values) > 1 {
		x.challenge("invalid_request")
		x.fail(http.StatusBadRequest, invalidRequest("more than one Authorization header"))
		return false
	}
	scheme, token := "", ""
	if len(values) == 1 {
		scheme, token, _ = strings.Cut(values[0], " ")
	}
	token = strings.TrimLeft(token, " ")
	if (!strings.EqualFold(scheme, "Bearer") || !bearer.Valid(token)) && x.flooded() {
		return false
	}
	if !strings.EqualFold(scheme, "Bearer") {
		x.challenge("")
		x.fail(http.StatusUnauthorized, &wire.Error{Code: codeUnauthenticated, Message: "a bearer token is needed: send it in the Authorization header"})
		return false
	}
	if !bearer.Valid(token) {
		x.challenge("invalid_token")
		x.fail(http.StatusUnauthorized, &wire.Error{Code: codeUnauthenticated, Message: "the bearer token is malformed"})
		return false
	}
	x.credential = token
	return true
}

// flooded counts a request without a good credential. It answers, and reports
// true, where too many come from its address.
func (x *exchange) flooded() bool {
	wait := x.s.strangers.Add(x.r.RemoteAddr, time.Now())
	if wait == 0 {
		return false
	}
	x.w.Header().Set("Retry-After", itoa(refusal.Seconds(wait)))
	x.w.Header().Set("Connection", "close")
	x.fail(http.StatusTooManyRequests, &wire.Error{Code: codeRateLimited, Message: "too many requests without a valid token come from your address: send one with a valid token, or wait"})
	return true
}
