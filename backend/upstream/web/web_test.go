package web_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/wire"
)

// server is a server that answers requests as it is told.
type server struct {
	answer func(w http.ResponseWriter, r *http.Request, m wire.Message)

	mu    sync.Mutex
	other []string // what came besides requests
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if r.Method == http.MethodPost && err == nil && m.IsRequest() || r.Method == http.MethodGet {
		s.answer(w, r, m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = append(s.other, string(body))
	w.WriteHeader(http.StatusAccepted)
}

// got reports whether something came besides requests.
func (s *server) got(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.other, "\n"), text)
}

// newLink is a link to a server, with sessions or without.
func newLink(t *testing.T, modern bool, h http.Handler, header http.Header) *web.Link {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return at(srv.URL+"/mcp", modern, header)
}

// at is a link to an address.
func at(url string, modern bool, header http.Header) *web.Link {
	return web.New(web.Options{
		Server: "s", URL: url, Way: web.Transport(nil), Most: 256 << 10, Given: given.New(given.Values{Header: header}, nil),
		Modern: func() bool { return modern }, Version: func() string { return "" }, Room: new(asked.Room), Heard: func(wire.Message) {},
		ID: func() int64 { return 1 << 40 },
	})
}

// call calls a tool that is named for what it does.
func call(ctx context.Context, l *web.Link, name string, notify func(sallyport.Notice)) (wire.Message, error) {
	return l.Exchange(ctx, link.Request{ID: 1, Method: "tools/call", Name: name, Params: params(name), Notify: notify})
}

func params(name string) json.RawMessage {
	return append(wire.AppendString([]byte(`{"name":`), name), '}')
}

func unheard(sallyport.Notice) {}
