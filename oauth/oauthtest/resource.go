package oauthtest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// A Resource is the part of an MCP server that asks for tokens.
type Resource struct {
	AS    *Server
	URL   string // of the MCP endpoint
	Needs string // scopes of a call
	Quiet bool   // no resource_metadata in challenges
	At    string // where the document is; "" is the path suffix
	Names string // resource in the document; "" is URL
	Lists []string

	mu     sync.Mutex
	tokens []string
}

// Guard answers for requests without a good token, and for the document, and
// reports whether it did.
func (p *Resource) Guard(w http.ResponseWriter, r *http.Request) bool {
	at := p.At
	if at == "" {
		at = "/.well-known/oauth-protected-resource" + strings.TrimSuffix(pathOf(p.URL), "/")
	}
	if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/.well-known/") || r.URL.Path == at {
		if r.URL.Path != at {
			http.NotFound(w, r)
			return true
		}
		names, lists := p.Names, p.Lists
		if names == "" {
			names = p.URL
		}
		if lists == nil {
			lists = []string{p.AS.ID()}
		}
		reply(w, 200, map[string]any{"resource": names, "authorization_servers": lists})
		return true
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	p.mu.Lock()
	p.tokens = append(p.tokens, token)
	needs := p.Needs
	p.mu.Unlock()
	challenge := fmt.Sprintf(`Bearer scope=%q`, needs)
	if !p.Quiet {
		challenge += fmt.Sprintf(`, resource_metadata=%q`, p.origin()+at)
	}
	a, ok := p.AS.Check(token)
	if !ok || strings.TrimSuffix(a.Resource, "/") != strings.TrimSuffix(p.resource(), "/") {
		w.Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	for _, sc := range strings.Fields(needs) {
		if !slices.Contains(strings.Fields(a.Scope), sc) {
			w.Header().Set("WWW-Authenticate", challenge+`, error="insufficient_scope"`)
			w.WriteHeader(http.StatusForbidden)
			return true
		}
	}
	return false
}

func (p *Resource) resource() string {
	if p.Names != "" {
		return p.Names
	}
	return p.URL
}

func (p *Resource) origin() string { return strings.TrimSuffix(p.URL, pathOf(p.URL)) }

func pathOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Path
}

// Need changes which scopes a call needs.
func (p *Resource) Need(scopes string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Needs = scopes
}

// Tokens are those that came, "" for none.
func (p *Resource) Tokens() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tokens)
}
