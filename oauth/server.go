package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
)

// maxForm bounds the body of a token request.
const maxForm = 16 << 10

// A Server is the token endpoint and the two documents that tell about it.
type Server struct {
	config   Config
	metadata []byte
	perAgent *gcra.Table // failures of one client from one address
	perAddr  *gcra.Table // failures from one address
}

// NewServer returns a server.
func NewServer(c Config) (*Server, error) {
	c, err := c.check()
	if err != nil {
		return nil, fmt.Errorf("oauth: %w", err)
	}
	s := &Server{
		config:   c,
		perAgent: gcra.NewTable(gcra.Rate{Every: 6 * time.Second, Burst: 10}, 16384),
		perAddr:  gcra.NewTable(gcra.Rate{Every: time.Second, Burst: 60}, 16384),
	}
	s.metadata, err = json.Marshal(map[string]any{ // RFC 8414
		"issuer":                                c.Issuer,
		"token_endpoint":                        c.Issuer + "/oauth/token",
		"jwks_uri":                              c.Issuer + "/oauth/jwks",
		"grant_types_supported":                 []string{"client_credentials"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},
		"response_types_supported":              []string{},       // no authorization endpoint yet
		"code_challenge_methods_supported":      []string{"S256"}, // MCP clients insist on it, whatever the grant
		"protected_resources":                   c.Resources,      // RFC 9728
	})
	return s, err
}

// Routes adds the endpoints to mux.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.HandleFunc("/oauth/token", s.token)
	mux.HandleFunc("GET /oauth/jwks", func(w http.ResponseWriter, _ *http.Request) {
		document(w, s.config.Keys.JWKS())
	})
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		document(w, s.metadata)
	})
}

func document(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=60")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text)
}

// A refusal is an error answer of RFC 6749, section 5.2.
type refusal struct {
	status      int
	code        string
	description string
	retryAfter  time.Duration
}

func badRequest(code, description string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: code, description: description}
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, &refusal{status: http.StatusMethodNotAllowed, code: "invalid_request", description: "use POST"})
		return
	}
	token, no := s.grant(w, r)
	if no != nil {
		refuse(w, no)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": token.Value,
		"token_type":   "Bearer",
		"expires_in":   int(token.Expires.Sub(s.config.Now()).Seconds()),
	})
}

func refuse(w http.ResponseWriter, no *refusal) {
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="sallyport"`)
	}
	if no.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(1+int(no.retryAfter/time.Second)))
	}
	w.WriteHeader(no.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": no.code, "error_description": no.description})
}

// grant answers one token request.
func (s *Server) grant(w http.ResponseWriter, r *http.Request) (Token, *refusal) {
	form, no := readForm(w, r)
	if no != nil {
		return Token{}, no
	}
	client, secret, no := clientOf(r, form)
	if no != nil {
		return Token{}, no
	}
	switch grant := form.Get("grant_type"); grant {
	case "":
		return Token{}, badRequest("invalid_request", "grant_type is missing: want client_credentials")
	case "client_credentials":
	default:
		return Token{}, badRequest("unsupported_grant_type", "want client_credentials")
	}
	agent, no := s.authenticate(r, client, secret)
	if no != nil {
		return Token{}, no
	}
	if form.Get("scope") != "" {
		return Token{}, badRequest("invalid_scope", "this server has no scopes: leave scope out")
	}
	resource := form.Get("resource")
	if resource != "" && !slices.Contains(s.config.Resources, resource) {
		return Token{}, badRequest("invalid_target", "resource is none of this server's: see protected_resources in its metadata")
	}
	token, err := s.Issue(r.Context(), agent, resource, "")
	if err != nil {
		return Token{}, &refusal{status: http.StatusInternalServerError, code: "server_error", description: "the token could not be made"}
	}
	return token, nil
}

// authenticate checks the client's secret. Every failure looks the same.
func (s *Server) authenticate(r *http.Request, client, secret string) (sallyport.Agent, *refusal) {
	tenant, id := splitClientID(client)
	agent, err := s.config.Agents.Agent(r.Context(), tenant, id)
	if err != nil && sallyport.CodeOf(err) != sallyport.NotFound {
		return agent, &refusal{
			status: http.StatusServiceUnavailable, code: "temporarily_unavailable",
			description: "agents cannot be looked up now", retryAfter: time.Second,
		}
	}
	ok := secretMatches(secret, agent.SecretHash) // also when there is no such agent
	if err != nil || !ok || active(agent) != nil {
		return sallyport.Agent{}, s.failed(client, address(r.RemoteAddr))
	}
	return agent, nil
}

// failed counts a failure and slows who fails down. Only failures wait: a right
// secret, of 256 random bits, cannot be guessed, so nobody's guessing keeps its
// owner out.
func (s *Server) failed(client, addr string) *refusal {
	now, pair := s.config.Now(), client+"\x00"+addr
	if wait := max(s.perAgent.Wait(pair, now), s.perAddr.Wait(addr, now)); wait > 0 {
		return &refusal{
			status: http.StatusTooManyRequests, code: "temporarily_unavailable",
			description: "too many failures: wait", retryAfter: wait,
		}
	}
	s.perAgent.Add(pair, now)
	s.perAddr.Add(addr, now)
	return &refusal{
		status: http.StatusUnauthorized, code: "invalid_client",
		description: "unknown client, wrong secret, or an agent that is not active",
	}
}

// readForm reads the body as a form. Parameters in the URL are refused: URLs
// end up in logs. So are repeated ones (RFC 6749, section 3.2).
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, *refusal) {
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return nil, badRequest("invalid_request", "parameters belong in the body, not in the URL")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, badRequest("invalid_request", "want Content-Type: application/x-www-form-urlencoded")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &refusal{status: http.StatusRequestEntityTooLarge, code: "invalid_request", description: "the body is too large"}
	}
	if err != nil {
		return nil, badRequest("invalid_request", "the body could not be read")
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, badRequest("invalid_request", "the body is not form encoded")
	}
	for name, values := range form {
		if len(values) > 1 {
			code := "invalid_request"
			if name == "resource" {
				code = "invalid_target"
			}
			return nil, badRequest(code, fmt.Sprintf("a parameter is there %d times, want one of each", len(values)))
		}
	}
	return form, nil
}

// clientOf returns the credentials of the request, which must use exactly one
// of the two methods.
func clientOf(r *http.Request, form url.Values) (client, secret string, no *refusal) {
	headers := r.Header.Values("Authorization")
	inForm := form.Has("client_secret")
	switch {
	case len(headers) > 1, len(headers) == 1 && inForm:
		return "", "", badRequest("invalid_request", "use one way of client authentication only")
	case len(headers) == 1:
		user, pass, ok := r.BasicAuth()
		client, err1 := url.QueryUnescape(user) // RFC 6749, section 2.3.1
		secret, err2 := url.QueryUnescape(pass)
		if !ok || err1 != nil || err2 != nil || client == "" {
			return "", "", unauthorized("want Authorization: Basic with client id and secret")
		}
		if id := form.Get("client_id"); id != "" && id != client {
			return "", "", badRequest("invalid_request", "client_id differs from the one in Authorization")
		}
		return client, secret, nil
	case inForm && form.Get("client_id") != "":
		return form.Get("client_id"), form.Get("client_secret"), nil
	}
	return "", "", unauthorized("client authentication is missing: client_secret_basic or client_secret_post")
}

func unauthorized(description string) *refusal {
	return &refusal{status: http.StatusUnauthorized, code: "invalid_client", description: description}
}

// address is what failures are counted by: the address, or for IPv6 the /64
// that one customer usually has. Headers that a client can write are not asked.
func address(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}
