package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver"
)

// echoGateway does nothing but give a result of about 1 KB.
type echoGateway struct{ *fakeGateway }

var benchResult = json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 1000) + `"}]}`)

func (echoGateway) Call(context.Context, sallyport.Request) (sallyport.Result, error) {
	return sallyport.Result{CallID: "0123456789abcdef", Content: benchResult}, nil
}

func (g echoGateway) Await(ctx context.Context, r sallyport.Request, _ time.Duration, _ func(*sallyport.Error)) (sallyport.Result, error) {
	return g.Call(ctx, r)
}

func benchServer(b *testing.B) http.Handler {
	s, err := mcpserver.New(mcpserver.Options{Gateway: echoGateway{newFakeGateway()}, BaseURL: "http://127.0.0.1:7450", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func benchCall() (string, http.Header) {
	body, lines := modern("1", "tools/call", `"name":"echo","arguments":{"text":"`+strings.Repeat("y", 700)+`","n":[1,2,3]}`)
	h := http.Header{}
	lines = append(lines, "Authorization: Bearer alice", "Content-Type: application/json", "Accept: application/json, text/event-stream")
	for _, l := range lines {
		k, v, _ := strings.Cut(l, ": ")
		h.Set(k, v)
	}
	return body, h
}

// The door's own work for one call of 1 KB, without the network.
func BenchmarkDoor(b *testing.B) {
	s := benchServer(b)
	body, h := benchCall()
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{Port: 7450}))
	b.ReportAllocs()
	for b.Loop() {
		r, _ := http.NewRequestWithContext(ctx, "POST", "/mcp", strings.NewReader(body))
		r.Header, r.Host = h, "127.0.0.1:7450"
		w := discard{h: http.Header{}}
		if s.ServeHTTP(&w, r); w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(s int)           { d.status = s }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// One call over loopback, beside a handler that only reads and writes.
func BenchmarkOverHTTP(b *testing.B) {
	floor := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(benchResult)
	})
	for name, h := range map[string]http.Handler{"door": benchServer(b), "floor": floor} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewServer(h)
			defer s.Close()
			body, header := benchCall()
			for b.Loop() {
				r, _ := http.NewRequestWithContext(context.Background(), "POST", s.URL+"/mcp", bytes.NewReader([]byte(body)))
				r.Header = header
				res, err := s.Client().Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if _, err = io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
					b.Fatal(res.StatusCode, err)
				}
				res.Body.Close()
			}
		})
	}
}
