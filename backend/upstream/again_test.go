package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// results is the address of a server that answers each method with a result, if it is
// not nil.
func results(t *testing.T, of func(method string) []byte) (url string) {
	t.Helper()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := wire.ParseMessage(body)
		if err != nil || m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer := wire.Message{ID: m.ID, Result: of(m.Method)}
		switch {
		case m.Method == "initialize":
			answer.Result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case answer.Result == nil:
			answer.Error = &wire.Error{Code: wire.CodeMethodNotFound, Message: "no"}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Append(nil))
	}))
	t.Cleanup(ts.Close)
	return ts.URL
}

// TO-01: a server that is called is listed again after a while, though it says nothing;
// what it says then is passed on where it is something else.
func TestTO01_SilentChangesAreFound(t *testing.T) {
	t.Parallel()
	var description atomic.Value
	var lists, told atomic.Int32
	description.Store("kind")
	url := results(t, func(method string) []byte {
		switch method {
		case "tools/list":
			lists.Add(1)
			return fmt.Appendf(nil, `{"tools":[{"name":"t","description":%q,"inputSchema":{"type":"object"}}]}`, description.Load())
		case "tools/call":
			return []byte(`{"content":[]}`)
		}
		return nil
	})
	changed := make(chan struct{})
	b := upstream.New(nil, upstream.Options{Again: time.Nanosecond, Refresh: time.Hour, BackOff: time.Millisecond, OnListing: func(l upstream.Listing) {
		told.Add(1)
		if strings.Contains(string(l.Tools[0]), "unkind") {
			close(changed)
		}
	}})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Add(upstream.Config{Name: "s", URL: url}); err != nil {
		t.Fatal(err)
	}
	call := func() {
		t.Helper()
		if _, err := b.Run(t.Context(), sallyport.Job{Tool: sallyport.Tool{Name: "s__t", Origin: sallyport.Origin{Server: "s", Name: "t"}}, Kind: sallyport.CallTool, Args: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	await.That(t, "it is listed, and again when it is called", func() bool { call(); return lists.Load() > 2 })
	if n := told.Load(); n != 1 {
		t.Errorf("what is as it was is passed on %d times", n)
	}
	description.Store("unkind")
	await.That(t, "the change is found", func() bool {
		call()
		select {
		case <-changed:
			return true
		default:
			return false
		}
	})
}

// TO-06: a tool whose schema is nested without measure is told of, cut, for the catalogue to
// refuse; the others of its server are what they are. A result of that kind cannot be used.
func TestTO06_OneDeepToolSpoilsNoOther(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"properties":{"a":`, 3000) + "{}" + strings.Repeat("}}", 3000)
	good := `{"name":"good","inputSchema":{"type":"object"},"n":1.0}`
	url := results(t, func(method string) []byte {
		switch method {
		case "tools/list":
			return []byte(`{"tools":[{"name":"deep","inputSchema":` + deep + `},` + good + `]}`)
		case "tools/call":
			return []byte(`{"content":[],"x":` + deep + `}`)
		}
		return nil
	})
	told := make(chan upstream.Listing, 1)
	b := upstream.New(nil, upstream.Options{OnListing: func(l upstream.Listing) { told <- l }})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Add(upstream.Config{Name: "s", URL: url}); err != nil {
		t.Fatal(err)
	}
	var l upstream.Listing
	select {
	case l = <-told:
	case <-time.After(await.Patience):
		t.Fatalf("nothing is listed: %+v", b.Status())
	}
	if len(l.Tools) != 2 || string(l.Tools[1]) != good || wire.Validate(l.Tools[0]) != nil || !strings.Contains(string(l.Tools[0]), "nested too deep") {
		t.Errorf("%d tools, the last %.200s", len(l.Tools), l.Tools[len(l.Tools)-1])
	}
	out, err := b.Run(t.Context(), sallyport.Job{Tool: sallyport.Tool{Name: "s__good", Origin: sallyport.Origin{Server: "s", Name: "good"}}, Kind: sallyport.CallTool, Args: []byte(`{}`)})
	if err != nil || !out.IsError || !strings.Contains(string(out.Content), "cannot be used") {
		t.Errorf("a call: %.200s, %v", out.Content, err)
	}
}
