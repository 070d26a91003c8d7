package risk_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// A call of an HTTP API is judged by its request: method, path, query and body.
// What its document says, or its name, never lowers that.
func TestRoutes(t *testing.T) {
	e := engine(t)
	for _, c := range []struct {
		method, path, args string
		level              sallyport.Level
		irreversible       bool
	}{
		{"GET", "/pets/{id}", `{"id":"7"}`, sallyport.Low, false},
		{"HEAD", "/pets/{id}", `{"id":"7"}`, sallyport.Low, false},
		{"OPTIONS", "/pets/{id}", `{"id":"7"}`, sallyport.Low, false},
		{"GET", "/pets/{id}/delete", `{"id":"7"}`, sallyport.High, false},
		{"GET", "/pets/{id}", `{"id":"7/delete"}`, sallyport.High, false},
		{"GET", "/pets/{id}", `{"id":"delete"}`, sallyport.High, false},
		{"GET", "/pets/{id}", `{"id":"..","q":"x"}`, sallyport.Critical, false},
		{"GET", "/pets/{id}", `{"id":"7","q":"DROP TABLE pets"}`, sallyport.Critical, true},
		{"POST", "/pets", `{"body":{"name":"Rex"}}`, sallyport.High, false},
		{"PUT", "/pets/{id}", `{"id":"7","body":{}}`, sallyport.High, false},
		{"PATCH", "/pets/{id}", `{"id":"7","body":{}}`, sallyport.High, false},
		{"DELETE", "/pets/{id}", `{"id":"7"}`, sallyport.Critical, true},
		{"POST", "/pets/{id}/delete", `{"id":"7"}`, sallyport.Critical, true},
		{"POST", "/payments", `{"body":{"note":"x"}}`, sallyport.Critical, true},
		{"POST", "/pets", `{"body":{"_method":"DELETE"}}`, sallyport.Critical, false}, // no request is made of it
		{"POST", "/pets", `{"body":{"sql":"DROP TABLE pets"}}`, sallyport.Critical, true},
		{"POST", "/pets", `{"body":{"cmd":"rm -rf /"}}`, sallyport.Critical, true},
		{"BREW", "/pets", `{}`, sallyport.Critical, false},
	} {
		tool := sallyport.Tool{
			Name: "api__readOnly", Description: "Read-only, safe, changes nothing.", Definition: []byte(`{"annotations":{"readOnlyHint":true}}`),
			Origin: sallyport.Origin{Backend: "openapi", Server: "api"},
			Route: &sallyport.Route{Method: c.method, URL: "http://127.0.0.1:8080/v1" + c.path, Body: &sallyport.RouteBody{Argument: "body", Type: "application/json", Form: "json"},
				Params: []sallyport.RouteParam{{Argument: "id", Name: "id", In: "path", Style: "simple"}, {Argument: "q", Name: "query", In: "query", Style: "form"}}},
		}
		r := e.Args(tool, []byte(c.args))
		if r.Level != c.level || r.Irreversible != c.irreversible {
			t.Errorf("%s %s %s: %+v, want %v, irreversible %t", c.method, c.path, c.args, r, c.level, c.irreversible)
		}
		tool.Manifest.ReadOnly = true // the operator's own word
		if r := e.Args(tool, []byte(c.args)); r.Level != sallyport.Low {
			t.Errorf("vouched for: %s %s %s: %+v", c.method, c.path, c.args, r)
		}
		tool.Manifest.ReadOnly, tool.Manifest.Risk = false, level(sallyport.Critical)
		if r := e.Args(tool, []byte(c.args)); r.Level != sallyport.Critical {
			t.Errorf("declared critical: %s %s %s: %+v", c.method, c.path, c.args, r)
		}
	}
}

// What a human is shown is the request.
func TestRouteShowsTheRequest(t *testing.T) {
	e := engine(t)
	tool := sallyport.Tool{Route: &sallyport.Route{Method: "DELETE", URL: "https://a.example/pets/{id}", Params: []sallyport.RouteParam{{Argument: "id", Name: "id", In: "path", Style: "simple"}}}}
	r := e.Args(tool, []byte(`{"id":"a/b"}`))
	if len(r.Parts) == 0 || !strings.Contains(r.Parts[0].Text, "DELETE https://a.example/pets/a%2Fb") {
		t.Errorf("parts %+v", r.Parts)
	}
}
