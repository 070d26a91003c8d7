package mcp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/wire"
)

// A patient is a server of either era whose calls last until they are cancelled in the
// way of its era, or let go.
type patient struct {
	modern  bool
	started chan string // "name id" of each call
	release chan struct{}

	mu        sync.Mutex
	names     map[string]string // of calls, by id
	cancelled []string          // names
	alien     []string          // ids that were cancelled and are no call's
}

func (p *patient) gone(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name, ok := p.names[id]; ok {
		p.cancelled = append(p.cancelled, name)
	} else {
		p.alien = append(p.alien, id)
	}
}

func (p *patient) lost() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(p.cancelled, p.alien...), " ")
}

func (p *patient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + result + `}`))
	}
	switch {
	case r.Method != http.MethodPost || err != nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "notifications/cancelled":
		p.gone(string(wire.Member(m.Params, "requestId")))
		w.WriteHeader(http.StatusAccepted)
	case m.IsNotification():
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover" && p.modern:
		answer(`"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "initialize" && !p.modern:
		w.Header().Set("Mcp-Session-Id", "up")
		answer(`"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"up","version":"1"}}`)
	case m.Method == "tools/list":
		answer(`"result":{"resultType":"complete","tools":[{"name":"wait","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "tools/call":
		p.wait(r.Context(), m)
		answer(`"result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}`)
	default:
		answer(`"error":{"code":-32601,"message":"method not found"}`)
	}
}

func (p *patient) wait(ctx context.Context, m wire.Message) {
	name, _ := wire.String(wire.Path(m.Params, "arguments", "name"))
	p.mu.Lock()
	p.names[string(m.ID)] = name
	p.mu.Unlock()
	p.started <- name
	select {
	case <-p.release:
	case <-ctx.Done():
		if p.modern {
			p.gone(string(m.ID))
		}
	}
}

// FO-33: a call that its client cancels, in the way of the client's era, is cancelled at
// its server in the way of the server's era, under the server's id; one beside it with
// an id that reads the same goes on, and ids that are nobody's are ignored.
func TestFO33_CancelledInAllPairs(t *testing.T) {
	t.Parallel()
	every(t, func(t *testing.T, version string, modern bool) {
		p := &patient{modern: modern, started: make(chan string, 9), release: make(chan struct{}), names: map[string]string{}}
		h := httptest.NewServer(p)
		t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
		w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{{Name: "s", URL: h.URL}}, door: calmly}).whole()
		c := &wires{w: w, version: version}
		if !wire.Modern(version) {
			c.open(t, "{}")
		}
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		answers := make(chan string, 2)
		for id, ctx := range map[string]context.Context{`1`: ctx, `"1"`: t.Context()} {
			go func() { answers <- c.call(ctx, id) }()
		}
		<-p.started
		<-p.started
		for _, id := range []string{`2`, `"x"`, `null`, `1.0`} {
			c.cancel(t, id)
		}
		if wire.Modern(version) {
			c.cancel(t, "1") // there is nothing to cancel but by hanging up
			time.Sleep(50 * time.Millisecond)
			if got := p.lost(); got != "" {
				t.Errorf("cancelled by others' ids: %s", got)
			}
			hangUp()
		} else {
			c.cancel(t, "1")
		}
		w.eventually("the server hears of it", func() bool { return p.lost() != "" })
		close(p.release)
		got := <-answers + <-answers
		if strings.Count(got, `"text":"done"`) != 1 || !strings.Contains(got, `"id":"1","result":{"resultType":"complete","content":[{"type":"text","text":"done"`) {
			t.Errorf("answers: %s", got)
		}
		if lost := p.lost(); lost != "1" {
			t.Errorf("the server was told to cancel %q", lost)
		}
	})
}

func (c *wires) call(ctx context.Context, id string) string {
	meta := ""
	if wire.Modern(c.version) {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	body := `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"s__wait","arguments":{"name":` + string(wire.Quote(id)) + `}` + meta + `}}`
	resp, err := c.do(ctx, body)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func (c *wires) cancel(t *testing.T, id string) {
	t.Helper()
	resp := c.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("cancelling %s: %d", id, resp.StatusCode)
	}
}
