package mcp

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/wire"
)

// as makes a gateway an upstream of another.
func (w *world) as(name string) upstream.Config {
	return upstream.Config{Name: name, URL: w.url + "/mcp", Header: http.Header{"Authorization": {"Bearer ann"}}}
}

func (w *world) statusOf(name string) upstream.Status {
	for _, s := range w.behind.Status() {
		if s.Name == name {
			return s
		}
	}
	return upstream.Status{}
}

// FO-18: a chain of gateways works; a cycle of them is found by whoever would close
// it, and takes nothing else along.
func TestFO18LoopsAreFound(t *testing.T) {
	t.Parallel()
	shop := newShop(t, "shop", true)
	inner := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{shop.config}}).whole()
	outer := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{inner.as("inner")}}).whole()
	c := outer.client("ann", "", "2025-11-25", nil)
	const address = "sallyport:inner/sallyport:shop/file:///readme"
	if part, err := read(t, c, address); err != nil || part.URI != address {
		t.Errorf("through two gateways: %+v, %v", part, err)
	}
	if res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "inner__shop__link"}); err != nil || res.Content[0].(*sdk.ResourceLink).URI != address {
		t.Errorf("%+v, %v", res, err)
	}
	for name, loop := range map[string]upstream.Config{"itself": inner.as("itself"), "back": outer.as("back")} {
		if err := inner.behind.Add(loop); err != nil {
			t.Fatal(err)
		}
		inner.eventually("the loop is found", func() bool { return inner.statusOf(name).Error != "" })
		if st := inner.statusOf(name); st.State == upstream.StateReady || !strings.Contains(st.Error, "leads back to this gateway") {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if _, err := read(t, c, address); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// FO-18: a cycle through something that says nothing of who is behind it is found by
// what it shows: the list does not grow, and no call goes around.
func TestFO18LoopThroughAnother(t *testing.T) {
	t.Parallel()
	shop := newShop(t, "shop", true)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{shop.config}}).whole()
	c := w.as("back")
	c.URL = mum(t, w.url) + "/mcp"
	if err := w.behind.Add(c); err != nil {
		t.Fatal(err)
	}
	w.eventually("the loop is found", func() bool {
		_, _ = w.behind.Tools(t.Context(), "back") // as it does each time that it hears of a change, and now and then
		return strings.Contains(w.statusOf("back").Error, "leads back to this gateway")
	})
	for range 5 {
		_, _ = w.behind.Tools(t.Context(), "back")
	}
	ann := w.client("ann", "", "2026-07-28", nil)
	list, err := ann.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) > 2 {
		t.Errorf("%d tools, %v", len(list.Tools), err)
	}
	res, err := ann.CallTool(t.Context(), &sdk.CallToolParams{Name: "back__shop__link"})
	if err == nil && !res.IsError {
		t.Errorf("a call went around: %+v", res)
	}
	if res, err := ann.CallTool(t.Context(), &sdk.CallToolParams{Name: "shop__link"}); err != nil || res.IsError {
		t.Errorf("the other server: %+v, %v", res, err)
	}
}

// mum is a proxy that takes away what gateways tell each other.
func mum(t *testing.T, to string) string {
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	p := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
				return nil
			}
			b, err := io.ReadAll(r.Body)
			b = bytes.ReplaceAll(b, []byte(wire.MetaReaches), bytes.Repeat([]byte("x"), len(wire.MetaReaches)))
			r.Body = io.NopCloser(bytes.NewReader(b))
			return err
		},
	}
	h := httptest.NewServer(p)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h.URL
}
