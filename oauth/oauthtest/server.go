// Package oauthtest is an authorization server for tests, which keeps a ledger of
// what it was asked, and can be slow, fail, lose answers and lie; and what an MCP
// server says that trusts it.
package oauthtest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Fault is what becomes of one request to the token endpoint.
type Fault struct {
	Status int           // instead of an answer, before anything is done
	To     string        // where a redirect leads
	Lose   bool          // do it, and hang up instead of answering
	Drop   bool          // hang up before anything is done
	Slow   time.Duration // before anything is done
}

// A Server is an authorization server at which everybody consents at once. Its
// fields may be changed under Lock.
type Server struct {
	sync.Mutex
	URL    string
	Prefix string // of the issuer's path

	Issuer     string // in the metadata; "" is right
	NoPKCE     bool
	NoRegister bool
	Documents  bool
	Announce   bool   // that responses name the issuer
	Iss        string // in responses: "" is right, "-" none
	Scopes     []string
	Life       time.Duration         // of access tokens
	Grant      func([]string) string // scope of tokens; nil is what was asked for
	Fault      func(grant string, n int) Fault
	Methods    []string

	asked   []url.Values
	clients map[string]string // secret by client id
	codes   map[string]url.Values
	refresh map[string]*family
	access  map[string]Access
	n       int
	reuses  int
	authN   int
	regN    int
	auth    []http.Header
}

type family struct {
	client, scope, resource string
	live                    string // refresh token that has not been used
	dead                    bool
}

// An Access is a token as the server knows it.
type Access struct {
	Client, Scope, Resource string
	Expires                 time.Time
	family                  *family
}

// New starts one.
func New(t testing.TB) *Server {
	s := &Server{Life: time.Hour, Announce: true, clients: map[string]string{}, codes: map[string]url.Values{}, refresh: map[string]*family{}, access: map[string]Access{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// ID is the issuer.
func (s *Server) ID() string { return s.URL + s.Prefix }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	switch path := r.URL.Path; {
	case path == "/.well-known/oauth-authorization-server"+s.Prefix:
		s.metadata(w)
	case path == "/authorize":
		s.authorize(w, r)
	case path == "/register":
		s.register(w)
	case path == "/token":
		s.token(w, r)
	case path == "/revoke":
		s.revoke(r.Form.Get("token"))
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) metadata(w http.ResponseWriter) {
	s.Lock()
	defer s.Unlock()
	m := map[string]any{
		"issuer": s.ID(), "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "revocation_endpoint": s.URL + "/revoke",
		"authorization_response_iss_parameter_supported": s.Announce, "client_id_metadata_document_supported": s.Documents,
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic", "client_secret_post", "private_key_jwt"},
	}
	if s.Methods != nil {
		m["token_endpoint_auth_methods_supported"] = s.Methods
	}
	if s.Issuer != "" {
		m["issuer"] = s.Issuer
	}
	if !s.NoPKCE {
		m["code_challenge_methods_supported"] = []string{"S256"}
	}
	if !s.NoRegister {
		m["registration_endpoint"] = s.URL + "/register"
	}
	if s.Scopes != nil {
		m["scopes_supported"] = s.Scopes
	}
	reply(w, 200, m)
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *Server) register(w http.ResponseWriter) {
	s.Lock()
	defer s.Unlock()
	s.regN++
	id := "client-" + rand.Text()
	s.clients[id] = ""
	reply(w, 201, map[string]any{"client_id": id, "token_endpoint_auth_method": "none"})
}

// Know registers a client by hand.
func (s *Server) Know(id, secret string) {
	s.Lock()
	defer s.Unlock()
	s.clients[id] = secret
}

// Knows tells whether a client is one of the server's.
func (s *Server) Knows(id string) bool {
	s.Lock()
	defer s.Unlock()
	_, ok := s.clients[id]
	return ok
}

// Forget has the server not know its clients any more.
func (s *Server) Forget() {
	s.Lock()
	defer s.Unlock()
	clear(s.clients)
}

func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	s.authN++
	q := r.URL.Query()
	code := rand.Text()
	s.codes[code] = q
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "bad request", 400)
		return
	}
	v := url.Values{"code": {code}, "state": {q.Get("state")}}
	switch s.Iss {
	case "":
		v.Set("iss", s.ID())
	case "-":
	default:
		v.Set("iss", s.Iss)
	}
	back.RawQuery = v.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	s.n++
	s.asked = append(s.asked, r.PostForm)
	s.auth = append(s.auth, r.Header.Clone())
	var f Fault
	if s.Fault != nil {
		f = s.Fault(r.PostForm.Get("grant_type"), s.n)
	}
	s.Unlock()
	time.Sleep(f.Slow)
	if f.To != "" {
		w.Header().Set("Location", f.To)
	}
	if f.Status != 0 {
		http.Error(w, "as asked", f.Status)
		return
	}
	if f.Drop {
		hangUp(w)
		return
	}
	s.Lock()
	status, answer := s.answer(r)
	s.Unlock()
	if f.Lose {
		hangUp(w)
		return
	}
	reply(w, status, answer)
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

func refusal(code string) (int, any) { return 400, map[string]string{"error": code} }

func (s *Server) answer(r *http.Request) (int, any) {
	form := r.PostForm
	client := form.Get("client_id")
	if id, secret, ok := r.BasicAuth(); ok {
		client = id
		if s.clients[id] != secret {
			return refusal("invalid_client")
		}
	}
	if _, known := s.clients[client]; !known && !strings.HasPrefix(client, "https://") {
		return refusal("invalid_client")
	}
	switch form.Get("grant_type") {
	case "authorization_code":
		q, ok := s.codes[form.Get("code")]
		delete(s.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if !ok || q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || q.Get("redirect_uri") != form.Get("redirect_uri") || q.Get("client_id") != client || q.Get("resource") != form.Get("resource") {
			return refusal("invalid_grant")
		}
		return s.issue(&family{client: client, scope: q.Get("scope"), resource: q.Get("resource")})
	case "refresh_token":
		f := s.refresh[form.Get("refresh_token")]
		switch {
		case f == nil || f.dead || f.client != client:
			return refusal("invalid_grant")
		case f.live != form.Get("refresh_token"): // used before: somebody stole it
			f.dead = true
			s.reuses++
			return refusal("invalid_grant")
		}
		return s.issue(f)
	case "client_credentials":
		return s.issue(&family{client: client, scope: form.Get("scope"), resource: form.Get("resource")})
	}
	return refusal("unsupported_grant_type")
}

func (s *Server) issue(f *family) (int, any) {
	scope := f.scope
	if s.Grant != nil {
		scope = s.Grant(strings.Fields(scope))
	}
	access := "access-" + rand.Text()
	f.live = "refresh-" + rand.Text()
	s.refresh[f.live] = f
	s.access[access] = Access{Client: f.client, Scope: scope, Resource: f.resource, Expires: time.Now().Add(s.Life), family: f}
	return 200, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": s.Life.Seconds(), "scope": scope, "refresh_token": f.live}
}

func (s *Server) revoke(token string) {
	s.Lock()
	defer s.Unlock()
	if f := s.refresh[token]; f != nil {
		f.dead = true
	}
}

// Check returns what a token is good for.
func (s *Server) Check(token string) (Access, bool) {
	s.Lock()
	defer s.Unlock()
	a, ok := s.access[token]
	return a, ok && time.Now().Before(a.Expires) && !a.family.dead
}

// Expire has every access token expire now.
func (s *Server) Expire() {
	s.Lock()
	defer s.Unlock()
	for k, a := range s.access {
		a.Expires = time.Now().Add(-time.Second)
		s.access[k] = a
	}
}

// Asked returns the requests of one grant type at the token endpoint.
func (s *Server) Asked(grant string) (out []url.Values) {
	s.Lock()
	defer s.Unlock()
	for _, f := range s.asked {
		if f.Get("grant_type") == grant {
			out = append(out, f)
		}
	}
	return out
}

// Counts tells how often somebody was sent to consent, registered, and used a
// refresh token twice.
func (s *Server) Counts() (consents, registrations, reuses int) {
	s.Lock()
	defer s.Unlock()
	return s.authN, s.regN, s.reuses
}

// Live tells how many grants are alive.
func (s *Server) Live() (n int) {
	s.Lock()
	defer s.Unlock()
	seen := map[*family]bool{}
	for _, f := range s.refresh {
		if !f.dead && !seen[f] {
			n++
		}
		seen[f] = true
	}
	return n
}

// Consent opens an address as a browser does, and returns what the authorization
// server sends the human back with.
func Consent(t testing.TB, link string) *url.URL {
	t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("%s answers %s and sends nobody back", link, resp.Status)
	}
	return back
}
