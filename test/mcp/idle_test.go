package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

// A load balancer with an idle cut, shrunk by configuration: 60 s are 1.2 s here, a
// call of 150 s takes 3 s, and signs of life come more often, for a busy machine.
const (
	idleCut  = 1200 * time.Millisecond
	slowCall = 3 * time.Second
	sign     = 100 * time.Millisecond
)

// balancer forwards connections to an address, and cuts each on which nobody has
// said a word for too long. It counts the cuts.
func balancer(t *testing.T, to string) (address string, cuts *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	cuts = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				up, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer func() { _ = up.Close() }()
				between(c, up, cuts)
			}()
		}
	}()
	return l.Addr().String(), cuts
}

func between(a, b net.Conn, cuts *atomic.Int64) {
	var said atomic.Int64
	said.Store(time.Now().UnixNano())
	over := make(chan struct{}, 2)
	pass := func(from, to net.Conn) {
		defer func() { over <- struct{}{} }()
		buf := make([]byte, 16<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				said.Store(time.Now().UnixNano())
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	go pass(a, b)
	go pass(b, a)
	look := time.NewTicker(idleCut / 10)
	defer look.Stop()
	for idle := 0; idle < 2; { // twice: this process may have been the one that slept
		select {
		case <-over:
			return
		case <-look.C:
			if idle++; time.Since(time.Unix(0, said.Load())) <= idleCut {
				idle = 0
			}
		}
	}
	cuts.Add(1)
}

// slow is a server whose tool says nothing for a long time. How it is spoken to is
// the rest of its fields' matter.
type slow struct {
	runs, resumed atomic.Int64
	alive         bool // it says that it lives, by comments
	endless       bool // it takes as long as somebody waits, for calls that are to be cut
	resumes       bool // what it says can be read later
	modern        bool
}

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.ParseMessage(body)
	w.Header().Set("Content-Type", wire.TypeSSE)
	answer := func(id, result string) {
		_, _ = w.Write(wire.AppendEvent(nil, "message", []byte(`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`)))
	}
	switch {
	case r.Method == http.MethodGet && s.resumes && strings.HasPrefix(r.Header.Get(wire.HeaderLastEventID), "call-"):
		s.resumed.Add(1)
		time.Sleep(slowCall / 3)
		answer(strings.TrimPrefix(r.Header.Get(wire.HeaderLastEventID), "call-"), `{"content":[{"type":"text","text":"resumed"}]}`)
	case r.Method != http.MethodPost:
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.IsNotification():
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover" && s.modern:
		answer(string(m.ID), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "initialize" && !s.modern:
		answer(string(m.ID), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"slow","version":"1"}}`)
	case m.Method == "tools/list":
		answer(string(m.ID), `{"tools":[{"name":"wait","inputSchema":{"type":"object"}}]}`)
	case m.Method == "tools/call":
		s.runs.Add(1)
		s.call(w, r.Context(), string(m.ID))
		answer(string(m.ID), `{"content":[{"type":"text","text":"done"}]}`)
	default:
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeMethodNotFound, Message: "no such method"}))
	}
}

func (s *slow) call(w http.ResponseWriter, ctx context.Context, id string) {
	if s.resumes {
		_, _ = fmt.Fprintf(w, "id: call-%s\nretry: 50\ndata:\n\n", id)
		w.(http.Flusher).Flush()
	}
	lasts := slowCall
	if s.endless {
		lasts = patience
	}
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(sign) {
		if s.alive {
			_, _ = w.Write(wire.AppendComment(nil, "alive"))
			w.(http.Flusher).Flush()
		}
	}
}

func (s *slow) behind(t *testing.T) (c upstream.Config, cuts *atomic.Int64) {
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	address, cuts := balancer(t, strings.TrimPrefix(h.URL, "http://"))
	return upstream.Config{Name: "slow", URL: "http://" + address}, cuts
}

// via is a client whose connections go to an address, whatever their URL says.
func via(address string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}}
}

func callSlow(t *testing.T, c *http.Client, url, name string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Authorization": "Bearer ann", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name} {
		req.Header.Set(k, v)
	}
	res, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return string(b) + err.Error()
	}
	return string(b)
}

// FO-14: a long call without a word outlives an idle cut in front of the gateway
// and one behind it.
func TestFO14IdleCutsOnBothSides(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slow  *slow
		wants string
		cuts  bool // it cannot be kept alive, so it is cut
	}{
		"a server that says that it lives": {&slow{alive: true}, `"text":"done"`, false},
		"the same, modern":                 {&slow{alive: true, modern: true}, `"text":"done"`, false},
		"a stream that can be resumed":     {&slow{resumes: true, endless: true}, `"text":"resumed"`, true},
		"one that cannot":                  {&slow{modern: true, endless: true}, `"code":"upstream_error"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, behind := tt.slow.behind(t)
			w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{c}, door: often}).whole()
			front, cut := balancer(t, strings.TrimPrefix(w.url, "http://"))
			if got := callSlow(t, via(front), w.url, "slow__wait"); !strings.Contains(got, tt.wants) {
				t.Errorf("%s", got)
			}
			if tt.slow.runs.Load() != 1 {
				t.Errorf("the tool ran %d times", tt.slow.runs.Load())
			}
			if cut.Load() != 0 || tt.cuts && behind.Load() == 0 { // a connection that is kept for later may be cut, too
				t.Errorf("%d cuts in front, %d behind", cut.Load(), behind.Load())
			}
		})
	}
}

func often(o *mcpserver.Options) { o.KeepAlive, o.StreamAfter = sign, sign }

// The control: without signs of life the balancer in front cuts the call.
func TestFO14WithoutSignsOfLife(t *testing.T) {
	t.Parallel()
	c, _ := (&slow{alive: true, endless: true}).behind(t)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{c}, door: func(o *mcpserver.Options) { o.KeepAlive, o.StreamAfter = time.Hour, time.Hour }}).whole()
	front, cut := balancer(t, strings.TrimPrefix(w.url, "http://"))
	if got := callSlow(t, via(front), w.url, "slow__wait"); strings.Contains(got, "done") || cut.Load() == 0 {
		t.Errorf("%d cuts, and yet: %s", cut.Load(), got)
	}
}

// A stream that nobody writes to stays open through the cut, and its signs of life
// are no events: who comes back has missed none of them.
func TestFO14StandingStreamOutlivesTheCut(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}, door: often}).whole()
	front, cut := balancer(t, strings.TrimPrefix(w.url, "http://"))
	s := w.session("ann", "2025-11-25")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(s, ": ")
	for k, v := range map[string]string{"Authorization": "Bearer ann", "Accept": wire.TypeSSE, wire.HeaderSessionID: id} {
		req.Header.Set(k, v)
	}
	res, err := via(front).Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	in := bufio.NewScanner(res.Body)
	ids, comments := map[string]bool{}, 0
	for end := time.Now().Add(slowCall); time.Now().Before(end) && in.Scan(); {
		switch line := in.Text(); {
		case strings.HasPrefix(line, "id:"):
			ids[line] = true
		case strings.HasPrefix(line, ":"):
			comments++
		}
	}
	if in.Err() != nil || comments < 5 || len(ids) > 1 {
		t.Errorf("%d signs of life, ids %v, %v", comments, ids, in.Err())
	}
	if cut.Load() != 0 {
		t.Errorf("%d cuts", cut.Load())
	}
}

// Signs of life prolong nothing: the call's own deadline stands.
func TestFO14SignsOfLifeKeepNoDeadlineOff(t *testing.T) {
	t.Parallel()
	srv := &slow{alive: true, endless: true}
	c, _ := srv.behind(t)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{c}, door: often})
	w.gateway.Limits.Timeout = slowCall / 3
	w.whole()
	begun := time.Now()
	if got := callSlow(t, http.DefaultClient, w.url, "slow__wait"); !strings.Contains(got, `"code":"timeout"`) {
		t.Errorf("after %v: %s", time.Since(begun), got)
	}
}

// The stream of a server that speaks HTTP+SSE would be cut between calls: the
// gateway asks now and then whether the server is there, which keeps it.
func TestFO14OlderServerBehindTheCut(t *testing.T) {
	t.Parallel()
	srv := sdk.NewServer(&sdk.Implementation{Name: "older", Version: "1"}, nil)
	srv.AddTool(&sdk.Tool{Name: "link", InputSchema: map[string]any{"type": "object"}}, link)
	var streams atomic.Int64
	older := sdk.NewSSEHandler(func(*http.Request) *sdk.Server { streams.Add(1); return srv }, nil)
	h := httptest.NewServer(older)
	t.Cleanup(func() { h.CloseClientConnections() })
	address, _ := balancer(t, strings.TrimPrefix(h.URL, "http://"))
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{{Name: "older", URL: "http://" + address}}, behind: func(o *upstream.Options) { o.Pulse = sign }}).whole()
	time.Sleep(2 * idleCut)
	if n := streams.Load(); n != 1 || w.statusOf("older").Restarts != 0 {
		t.Errorf("%d streams, %+v", n, w.statusOf("older"))
	}
	c := w.client("ann", "", "2025-11-25", nil)
	if res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "older__link"}); err != nil || len(res.Content) != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}
