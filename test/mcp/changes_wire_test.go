package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/wire"
)

// changing is a server whose list of tools grows, and whose resource changes. It keeps
// what it is asked to tell of, and what else is sent on its streams it is told by say.
type changing struct {
	modern bool

	mu    sync.Mutex
	tools string
	got   []string
	ears  []chan string // the streams that are open
	tags  []string      // of each: members of what is said on it
}

func (s *changing) say(method, params string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ear := range s.ears {
		all := strings.Trim(params+","+s.tags[i], ",")
		select {
		case ear <- `{"jsonrpc":"2.0","method":"` + method + `","params":{` + all + `}}`:
		default:
		}
	}
}

func (s *changing) open(w http.ResponseWriter, r *http.Request, tag, first string) {
	ear := make(chan string, 100)
	s.mu.Lock()
	s.ears, s.tags = append(s.ears, ear), append(s.tags, tag)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for ear <- first; ; {
		select {
		case msg := <-ear:
			if _, err := w.Write(wire.AppendEvent(nil, "message", []byte(msg))); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (s *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && !s.modern {
		s.open(w, r, "", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"hello"}}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if err != nil || !m.IsRequest() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := ""
	s.mu.Lock()
	tools := s.tools
	if strings.Contains(m.Method, "subscri") {
		s.got = append(s.got, string(body))
	}
	s.mu.Unlock()
	const can = `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`
	switch {
	case m.Method == "server/discover" && s.modern:
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + can + `,"ttlMs":0,"cacheScope":"private"}`
	case m.Method == "initialize" && !s.modern:
		w.Header().Set("Mcp-Session-Id", "up")
		result = `{"protocolVersion":"2025-11-25","capabilities":` + can + `,"serverInfo":{"name":"up","version":"1"}}`
	case m.Method == "tools/list":
		result = `{"resultType":"complete","tools":[` + tools + `],"ttlMs":0,"cacheScope":"private"}`
	case m.Method == "resources/list":
		result = `{"resultType":"complete","resources":[{"uri":"file:///a","name":"a"}],"ttlMs":0,"cacheScope":"private"}`
	case m.Method == "resources/subscribe" && !s.modern:
		result = `{}`
	case m.Method == "subscriptions/listen" && s.modern:
		tag := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}`
		s.open(w, r, tag, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":`+string(wire.Member(m.Params, "notifications"))+`,`+tag+`}}`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if result == "" {
		_, _ = w.Write(wire.AppendError(nil, m.ID, &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found"}))
		return
	}
	_, _ = w.Write(wire.AppendResult(nil, m.ID, json.RawMessage(result)))
}

// TestChangesWire: what crosses both wires, in each pairing of eras, when a client asks to
// hear of tools and of a resource, and both change. (testdata/changes)
func TestChangesWire(t *testing.T) {
	t.Parallel()
	const one, two = `{"name":"one","inputSchema":{"type":"object"}}`, `{"name":"two","inputSchema":{"type":"object"}}`
	for _, client := range []string{"modern", "legacy"} {
		for _, up := range []string{"modern", "legacy"} {
			t.Run(client+"-"+up, func(t *testing.T) {
				srv := &changing{modern: up == "modern", tools: one}
				h := httptest.NewServer(srv)
				t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
				w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{{Name: "s", URL: h.URL}}}).whole()
				w.eventually("the server is heard", func() bool { srv.mu.Lock(); defer srv.mu.Unlock(); return len(srv.ears) > 0 })
				var r reader
				if client == "modern" {
					r = lines(t, w.listen("ann", `"x"`, `"toolsListChanged":true,"resourceSubscriptions":["sallyport:s/file:///a"]`))
				} else {
					session := w.session("ann", "2025-11-25")
					r = lines(t, w.send(t.Context(), "GET", "ann", "", session))
					b, _ := io.ReadAll(w.send(t.Context(), "POST", "ann", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"sallyport:s/file:///a"}}`, session).Body)
					if !strings.Contains(string(b), `"result"`) {
						t.Fatalf("%s", b)
					}
				}
				w.eventually("the server was asked", func() bool {
					srv.mu.Lock()
					defer srv.mu.Unlock()
					return strings.Contains(strings.Join(srv.got, ""), "file:///a") && (up == "legacy" || len(srv.ears) == len(srv.got))
				})
				srv.mu.Lock()
				srv.tools = one + "," + two
				srv.mu.Unlock()
				srv.say("notifications/tools/list_changed", "")
				seen := r.until(`data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"`)
				srv.say("notifications/resources/updated", `"uri":"file:///a"`)
				seen = append(seen, r.until(`data: {"jsonrpc":"2.0","method":"notifications/resources/updated"`)...)
				srv.mu.Lock()
				defer srv.mu.Unlock()
				compareChanges(t, "testdata/changes/"+client+"-"+up+".txtar", seen, srv.got)
			})
		}
	}
}

func compareChanges(t *testing.T, file string, seen, got []string) {
	t.Helper()
	text := ""
	for _, l := range seen {
		if strings.HasPrefix(l, "id: ") || strings.HasPrefix(l, "data: ") {
			text += strings.TrimSpace(l) + "\n"
		}
	}
	asked := ""
	for _, l := range got {
		asked += upstreamID.ReplaceAllString(l, `"$1":$${ID},$2`) + "\n"
	}
	a := &txtar.Archive{Files: []txtar.File{{Name: "= client", Data: []byte(text)}, {Name: "= upstream", Data: []byte(asked)}}}
	if *update {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != string(txtar.Format(a)) {
		t.Errorf("%v\n%s\nwant:\n%s", err, txtar.Format(a), want)
	}
}
