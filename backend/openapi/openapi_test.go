package openapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// A world is a backend with the peer's API as the server "peer".
type world struct {
	*openapi.Backend
	peer *peer

	mu    sync.Mutex
	tools map[string]sallyport.Tool
	keys  map[string]string // the secret store
}

func loopback() *egress.Broker {
	return &egress.Broker{Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func open(t testing.TB, p *peer, alter func(*openapi.Config, *openapi.Options)) *world {
	t.Helper()
	w := &world{peer: p, tools: map[string]sallyport.Tool{}, keys: map[string]string{"k": canaryKey}}
	o := openapi.Options{
		Dial: loopback().DialContext, MaxBody: 1 << 20, BackOff: 20 * time.Millisecond,
		Secrets: func(_ context.Context, v string) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			name, ok := strings.CutPrefix(v, "$")
			if !ok {
				return v, nil
			}
			s, ok := w.keys[name]
			if !ok {
				return "", fmt.Errorf("there is no secret %q", name)
			}
			return s, nil
		},
		OnListing: func(l openapi.Listing) {
			w.mu.Lock()
			defer w.mu.Unlock()
			clear(w.tools)
			for _, raw := range l.Tools {
				name, _ := wire.String(wire.Member(raw, "name"))
				w.tools[name] = sallyport.Tool{
					Name: l.Server + "__" + name, Definition: raw, InputSchema: wire.Member(raw, "inputSchema"), OutputSchema: wire.Member(raw, "outputSchema"), Route: l.Routes[name],
					Origin: sallyport.Origin{Backend: openapi.Key, Server: l.Server, Name: name, Endpoint: l.Endpoint, Credential: l.Credential},
				}
			}
		},
	}
	c := openapi.Config{Name: "peer", Document: strings.NewReplacer("BASE", p.base, "TOKEN", p.base+"/token").Replace(peerDocument)}
	if alter != nil {
		alter(&c, &o)
	}
	w.Backend = openapi.New(o)
	t.Cleanup(func() { w.Close() })
	if err := w.Add(c); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) tool(name string) sallyport.Tool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tools[name]
}

func (w *world) call(t testing.TB, name, args string) (sallyport.Output, error) {
	t.Helper()
	return w.do(t, backendtest.Job(w.tool(name), args))
}

func (w *world) do(t testing.TB, job sallyport.Job) (sallyport.Output, error) {
	t.Helper()
	if job.Tool.Name == "" {
		t.Fatal("there is no such tool")
	}
	var err error
	if job.Args, err = sallyport.Canonical(job.Args); err != nil {
		t.Fatal(err)
	}
	return w.Run(t.Context(), job)
}

// wrapped has the suite's arguments as the body of a request: that is where an
// API takes whatever comes.
type wrapped struct{ *world }

func (w wrapped) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if job.Tool.Origin.Name == "echo" {
		job.Args = json.RawMessage(`{"body":` + string(job.Args) + `}`)
	}
	return w.world.Run(ctx, job)
}

func TestConformance(t *testing.T) {
	p := startPeer(t)
	w := open(t, p, nil)
	gone := w.tool("fail")
	gone.Origin.Server = "gone"
	backendtest.Run(t, backendtest.Subject{
		Open: func(t testing.TB) sallyport.Backend { return wrapped{open(t, p, nil)} },
		Echo: w.tool("echo"), Hang: w.tool("hang"), Fail: w.tool("fail"), Gone: gone,
	})
}

func text(t testing.TB, out sallyport.Output) string {
	t.Helper()
	s, err := backendtest.Text(out)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is sent is what the arguments say, and nothing else.
func TestRequest(t *testing.T) {
	p := startPeer(t)
	w := open(t, p, nil)
	job := backendtest.Job(w.tool("removeUser"), `{"id":"a/b ü"}`)
	job.Key = "key-1"
	out, err := w.do(t, job)
	if err != nil || out.IsError {
		t.Fatal(text(t, out), err)
	}
	if _, err := w.call(t, "search", `{"q":"x&_method=DELETE","X-Tag":"t","c":"v;w"}`); err != nil {
		t.Fatal(err)
	}
	saw := p.saw(t)
	if len(saw) != 2 {
		t.Fatalf("%d requests: %+v", len(saw), saw)
	}
	del, get := saw[0], saw[1]
	if del.Method != "DELETE" || del.Target != "/v1/users/a%2Fb%20%C3%BC" || del.Header.Get("Idempotency-Key") != "key-1" || del.Body != "" || "http://"+del.Host+"/v1" != p.base {
		t.Errorf("DELETE arrives as %+v", del)
	}
	if get.Target != "/v1/search?q=x%26_method%3DDELETE" || get.Header.Get("X-Tag") != "t" || get.Header.Get("Cookie") != "c=v%3Bw" || get.Header.Get("Idempotency-Key") != "" {
		t.Errorf("GET arrives as %+v", get)
	}
	for _, name := range []string{"X-Api-Key", "Authorization", "X-Forwarded-For", "Accept-Encoding"} {
		if v := get.Header.Get(name); v != "" {
			t.Errorf("%s: %s is sent", name, v)
		}
	}
}

// Each kind of credential arrives where the document says, from the secret store.
func TestCredentials(t *testing.T) {
	p := startPeer(t)
	for _, c := range []struct {
		scheme, value, secret string
		arrived               func(seen) bool
	}{
		{"key", "$k", canaryKey, func(s seen) bool { return s.Header.Get("X-Api-Key") == canaryKey }},
		{"query", "$k", canaryKey, func(s seen) bool { return strings.HasSuffix(s.Target, "?q=a&api_key="+canaryKey) }},
		{"cookie", "$k", canaryKey, func(s seen) bool { return s.Header.Get("Cookie") == "c=b; sid="+canaryKey }},
		{"basic", "$k", "user:pass-word", func(s seen) bool { return s.Header.Get("Authorization") == "Basic dXNlcjpwYXNzLXdvcmQ=" }},
		{"bearer", "$k", canaryKey, func(s seen) bool { return s.Header.Get("Authorization") == "Bearer "+canaryKey }},
		{"oauth", "$k", "id:s3cret-s3cret", func(s seen) bool { return strings.HasPrefix(s.Header.Get("Authorization"), "Bearer tok-") }},
	} {
		w := open(t, p, func(cfg *openapi.Config, _ *openapi.Options) { cfg.Auth = map[string]string{c.scheme: c.value} })
		w.keys["k"] = c.secret
		for range 2 {
			out, err := w.call(t, "search", `{"q":"a","c":"b"}`)
			if err != nil || out.IsError {
				t.Fatalf("%s: %s, %v", c.scheme, out.Content, err)
			}
		}
		saw := p.saw(t)
		if last := saw[len(saw)-1]; !c.arrived(last) {
			t.Errorf("%s arrives as %+v", c.scheme, last)
		}
		// It does not come back, in no form in which a server repeats it.
		out, err := w.call(t, "leak", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{c.secret, "dXNlcjpwYXNzLXdvcmQ", "pass-word", "s3cret-s3cret", "tok-"} {
			if strings.Contains(string(out.Content), form) {
				t.Errorf("%s: the answer holds %s: %s", c.scheme, form, out.Content)
			}
		}
		if !strings.Contains(string(out.Content), "[masked: credential "+c.scheme+"]") {
			t.Errorf("%s: nothing is masked in %s", c.scheme, out.Content)
		}
	}
	if n := p.to(t, "/v1/token"); n != 1 {
		t.Errorf("%d tokens were fetched for three calls, want 1", n)
	}
}

// A credential that no operation asks for, such as a misspelt one, is told.
func TestCredentialThatNothingAsksFor(t *testing.T) {
	p := startPeer(t)
	for scheme, told := range map[string]bool{"key": false, "kei": true} {
		w := open(t, p, func(cfg *openapi.Config, _ *openapi.Options) { cfg.Auth = map[string]string{scheme: "$k"} })
		said := strings.Join(w.Status()[0].Warnings, "\n")
		if strings.Contains(said, `"`+scheme+`" goes nowhere: operations ask for `) != told {
			t.Errorf("%s: %s", scheme, said)
		}
	}
}

// FO-26: a changed secret counts from the next call on; a missing one stops the
// call before it is sent.
func TestFO26_RotatedCredential(t *testing.T) {
	p := startPeer(t)
	w := open(t, p, func(c *openapi.Config, _ *openapi.Options) { c.Auth = map[string]string{"key": "$k"} })
	for _, v := range []string{"first-secret", "second-secret"} {
		w.keys["k"] = v
		if _, err := w.call(t, "search", `{}`); err != nil {
			t.Fatal(err)
		}
		saw := p.saw(t)
		if got := saw[len(saw)-1].Header.Get("X-Api-Key"); got != v {
			t.Errorf("%s is sent, want %s", got, v)
		}
	}
	delete(w.keys, "k")
	before := len(p.saw(t))
	_, err := w.call(t, "search", `{}`)
	if !errors.Is(err, sallyport.ErrNotExecuted) || len(p.saw(t)) != before || strings.Contains(err.Error(), "second-secret") {
		t.Errorf("without its secret: %v, %d requests", err, len(p.saw(t))-before)
	}
	w.keys["k"] = "bad\r\nX-Evil: 1"
	if _, err := w.call(t, "search", `{}`); !errors.Is(err, sallyport.ErrNotExecuted) || len(p.saw(t)) != before || !strings.Contains(err.Error(), "the credential for server") {
		t.Errorf("a secret with a line break: %v", err)
	}
}

// What an API answers, and what comes of it.
func TestAnswers(t *testing.T) {
	p := startPeer(t)
	w := open(t, p, nil)
	for _, c := range []struct {
		name, args string
		isError    bool
		want       string // in the result
	}{
		{"number", `{}`, false, `"structuredContent":{"n":9007199254740993.10,"big":1e400}`},
		{"search", `{}`, false, `{"content":[{"type":"text","text":"{\"path\":\"/v1/search\"}"}],"_meta":{"dev.sallyport/httpStatus":200}}`},
		{"text", `{}`, false, `plain é`},
		{"image", `{}`, false, `{"type":"image","mimeType":"image/png","data":"iVBORw=="}`},
		{"empty", `{}`, false, `204 No Content`},
		{"notes", `{}`, false, `[{"type":"text","text":"201 Created"},{"type":"text","text":"Location: /v1/users/7\nLink: <https://a.example/2?api_key=canary-key-5f2c1d>; rel=\"next\""}]`},
		{"fail", `{}`, true, `HTTP 422 Unprocessable Entity\n{\"message\"`},
		{"status", `{"code":"500"}`, true, `[cut after 16384 bytes]`},
		{"status", `{"code":"404"}`, true, `"dev.sallyport/httpStatus":404`},
	} {
		out, err := w.call(t, c.name, c.args)
		if err != nil || out.IsError != c.isError || !strings.Contains(string(out.Content), c.want) {
			t.Errorf("%s: %.300s, isError %t, %v; want %s", c.name, out.Content, out.IsError, err, c.want)
		}
		if err := wire.Validate(out.Content); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// FO-30: an answer beyond the bound, and a packed one, are not taken in.
	for name, want := range map[string]string{"huge": "response_too_large", "packed": "packed", "cut": "before its answer was complete"} {
		if out, err := w.call(t, name, `{}`); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %.100s, %v", name, out.Content, err)
		}
	}
}

// A connection that was never made had no effect; one that broke may have had
// one, and the request is not sent again.
func TestOutcomes(t *testing.T) {
	p := startPeer(t)
	w := open(t, p, nil)
	for _, key := range []string{"", "key-1"} { // Go's client repeats requests with a key, if they let it
		before := p.to(t, "/drop")
		for range 2 { // the second one on a connection that was kept
			if _, err := w.call(t, "search", `{}`); err != nil {
				t.Fatal(err)
			}
			job := backendtest.Job(w.tool("drop"), `{}`)
			job.Key = key
			_, err := w.do(t, job)
			if err == nil || errors.Is(err, sallyport.ErrNotExecuted) || sallyport.CodeOf(err) != sallyport.Upstream {
				t.Errorf("a dropped connection: %v", err)
			}
		}
		if n := p.to(t, "/drop") - before; n != 2 {
			t.Errorf("key %q: %d requests arrived for 2 calls", key, n)
		}
	}
	nobody := open(t, p, func(c *openapi.Config, _ *openapi.Options) { c.Base = "http://127.0.0.1:1" })
	_, err := nobody.call(t, "drop", `{}`)
	if !errors.Is(err, sallyport.ErrNotExecuted) || sallyport.CodeOf(err) != sallyport.Unavailable || strings.Contains(sallyportMessage(err), "127.0.0.1") {
		t.Errorf("nobody there: %v", err)
	}
}

func sallyportMessage(err error) string {
	e, _ := errors.AsType[*sallyport.Error](err)
	return e.Message + e.Hint
}

// A document that is fetched: again until it is there, without credentials, from
// its own origin; it does not choose another one for the operator's credential.
func TestFetchedDocument(t *testing.T) {
	p := startPeer(t)
	ready := func(w *world) (s openapi.Status) {
		await.That(t, "it is judged", func() bool { s = w.Status()[0]; return s.State != openapi.StateStarting })
		return s
	}
	fetched := func(from string, auth map[string]string, base string) openapi.Status {
		return ready(open(t, p, func(c *openapi.Config, _ *openapi.Options) {
			*c = openapi.Config{Name: "peer", URL: from, Auth: auth, Base: base, Header: map[string]string{}}
		}))
	}
	if s := fetched(p.base+"/doc", map[string]string{"key": "$k"}, ""); s.State != openapi.StateReady || s.Tools < 15 || s.Base != p.base {
		t.Errorf("%+v", s)
	}
	for _, s := range p.saw(t) {
		if len(s.Header["X-Api-Key"]) > 0 {
			t.Error("the credential is sent for the document")
		}
	}
	if s := fetched(p.base+"/docmoved", nil, ""); s.State != openapi.StateDown || !strings.Contains(s.Error, "redirects to another origin are not followed") {
		t.Errorf("moved elsewhere: %+v", s)
	}
	if s := fetched(p.base+"/status/404", nil, ""); s.State != openapi.StateDown || !strings.Contains(s.Error, "answers 404") {
		t.Errorf("not there: %+v", s)
	}
}
