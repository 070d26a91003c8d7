package openapi_test

import (
	"errors"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi"
)

// A document that is read again: a broken one leaves what was there, an equal one
// changes nothing, another one counts, and calls of what is gone are refused.
func TestReload(t *testing.T) {
	p := startPeer(t)
	lists := 0
	w := open(t, p, func(_ *openapi.Config, o *openapi.Options) {
		take := o.OnListing
		o.OnListing = func(l openapi.Listing) { lists++; take(l) }
	})
	text := strings.NewReplacer("BASE", p.base, "TOKEN", "/token").Replace(peerDocument)
	old := w.tool("search")
	for _, broken := range []string{"{", `{"openapi":"3.1.0"}`, strings.Replace(text, `"paths"`, `"path"`, 1)} {
		if err := w.Reload("peer", broken); err == nil {
			t.Errorf("%.40s is taken", broken)
		}
		if s := w.Status()[0]; s.State != openapi.StateReady || s.Error == "" {
			t.Errorf("%.40s: %+v", broken, s)
		}
	}
	if _, err := w.call(t, "search", `{}`); err != nil || lists != 1 {
		t.Errorf("after a broken document: %v, %d lists", err, lists)
	}
	for range 2 {
		if err := w.Reload("peer", text); err != nil || w.Status()[0].Error != "" {
			t.Fatal(err, w.Status())
		}
	}
	if lists != 2 { // the text is another one than at first, and then the same
		t.Errorf("%d lists, want 2", lists)
	}
	if err := w.Reload("peer", strings.ReplaceAll(text, p.base, p.other)); err != nil || w.tool("search").Origin.Endpoint != p.other {
		t.Errorf("%v, endpoint %s", err, w.tool("search").Origin.Endpoint)
	}
	before := len(p.saw(t))
	if _, err := w.Run(t.Context(), sallyport.Job{Tool: old, Args: []byte(`{}`)}); !errors.Is(err, sallyport.ErrNotExecuted) || sallyport.CodeOf(err) != sallyport.Conflict || len(p.saw(t)) != before {
		t.Errorf("a call that was decided before: %v", err)
	}
	if err := w.Reload("none", text); err == nil {
		t.Error("an API that is not there is read again")
	}
}

func TestRefused(t *testing.T) {
	w := open(t, startPeer(t), nil)
	w.Refuse("bad", errors.New("no such file"))
	if s := w.Status(); len(s) != 2 || s[0].Name != "bad" || s[0].State != openapi.StateRefused || s[0].Error != "no such file" {
		t.Errorf("%+v", s)
	}
	if err := w.Add(openapi.Config{Name: "peer"}); err == nil || !strings.Contains(err.Error(), "name is taken") {
		t.Errorf("a second one of the name: %v", err)
	}
	w.Remove("bad")
	if s := w.Status(); len(s) != 1 {
		t.Errorf("%+v", s)
	}
}

// No argument stands in for, or beside, the credential.
func TestArgumentsAreNoCredentials(t *testing.T) {
	p := startPeer(t)
	for _, c := range []struct{ scheme, in, args, want string }{
		{"query", "query", `{"o":{"api_key":"mine"}}`, "which is the credential's"},
		{"query", "query", `{"o":{"API_KEY":"mine"}}`, ""},
		{"cookie", "cookie", `{"o":{"sid":"mine"}}`, "which is the credential's"},
		{"cookie", "cookie", `{"o":{"a":"b"}}`, ""},
	} {
		w := open(t, p, func(cfg *openapi.Config, _ *openapi.Options) {
			cfg.Document = strings.Replace(cfg.Document, `{"name":"q","in":"query"}`, `{"name":"o","in":"`+c.in+`","schema":{"type":"object"}}`, 1)
			cfg.Auth = map[string]string{c.scheme: "$k"}
		})
		before := len(p.saw(t))
		_, err := w.call(t, "search", c.args)
		refused := err != nil && strings.Contains(err.Error(), "which is the credential's") && errors.Is(err, sallyport.ErrNotExecuted)
		if refused != (c.want != "") || refused != (len(p.saw(t)) == before) {
			t.Errorf("%s %s: %v", c.scheme, c.args, err)
		}
	}
}
