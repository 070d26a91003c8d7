package mcp

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/mcpserver"
)

// FO-08: the tools of a server that is down stay listed, and the list says so; the
// others' work, calls of its own say why they do not, and when it is back nothing
// is left of it.
func TestFO08ServerThatIsDownStaysListed(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frail := func() *httptest.Server {
		s := sdk.NewServer(&sdk.Implementation{Name: "b", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "link", InputSchema: map[string]any{"type": "object"}}, link)
		h := httptest.NewUnstartedServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
		_ = h.Listener.Close()
		h.Listener = l
		h.Start()
		return h
	}
	b := frail()
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config, {Name: "b", URL: b.URL}}, door: func(o *mcpserver.Options) {
		o.ListTTL = 1 // clients keep nothing
	}, behind: func(o *upstream.Options) {
		o.Budget, o.BackOff = 200*time.Millisecond, 10*time.Millisecond
	}}).whole()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		c := w.client("ann", "", version, nil)
		list := func() (names, meta string) {
			res, err := c.ListTools(t.Context(), &sdk.ListToolsParams{})
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range res.Tools {
				names += tool.Name + " "
			}
			down, _ := res.Meta["dev.sallyport/unavailable"].([]any)
			for _, d := range down {
				meta += d.(string) + " "
			}
			return names, meta
		}
		if names, down := list(); names != "a__link b__link " || down != "" {
			t.Fatalf("%s: %q, down %q", version, names, down)
		}
		b.CloseClientConnections()
		b.Close()
		w.eventually("it is down", func() bool {
			_, _ = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "b__link"}) // who calls it notices first
			_, down := list()
			return down == "b "
		})
		if names, _ := list(); names != "a__link b__link " {
			t.Errorf("%s: while it is down: %q", version, names)
		}
		if res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "a__link"}); err != nil || res.IsError {
			t.Errorf("%s: the other one: %+v, %v", version, res, err)
		}
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "b__link"})
		if err != nil || !res.IsError || !strings.Contains(res.Content[0].(*sdk.TextContent).Text, `server "b" is not available`) || !strings.Contains(res.Content[0].(*sdk.TextContent).Text, "Retry after") {
			t.Errorf("%s: its own: %+v, %v", version, res, err)
		}
		if l, err = net.Listen("tcp", strings.TrimPrefix(b.URL, "http://")); err != nil {
			t.Fatal(err)
		}
		b = frail()
		w.eventually("it is back", func() bool { _, down := list(); return down == "" })
		w.eventually("it is called", func() bool { // a call waits for a connection for as long as Budget
			res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "b__link"})
			return err == nil && !res.IsError
		})
	}
	b.CloseClientConnections()
	b.Close()
}
