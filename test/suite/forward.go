package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// Behind moves a gateway that does not run yet to another address of the loopback
// interface, so that a forwarder can have its port at 127.0.0.1: what the suite
// writes into Host and Origin is then true for both.
func Behind(g *stage.Gateway) {
	_, port, _ := strings.Cut(g.Listen, ":")
	g.Listen = "127.0.0.2:" + port
	g.URL = "http://" + g.Listen
}

// Forward listens at 127.0.0.1 for clients that have no token, such as the suite,
// and passes everything on to a gateway that was moved Behind, with a token and
// otherwise as it is: Host and Origin are the client's. It returns its own URL.
func Forward(t testing.TB, g *stage.Gateway) string {
	t.Helper()
	_, port, _ := strings.Cut(g.Listen, ":")
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	tokens := &tokens{g: g, of: map[string]string{}}
	// The server closes a request's body once it writes the answer's headers; what
	// then still reads it to its end would end the connection to the gateway.
	whole := func(next http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		}
	}
	server := &http.Server{Handler: whole(&httputil.ReverseProxy{ //nolint:gosec // of a test
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", g.Listen
			if token, err := tokens.get(r.Out.Context(), r.Out.URL.Path); err == nil { // else it is refused
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		FlushInterval: -1,
	})}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + l.Addr().String()
}

// tokens are those of the first agent, by the resource that they are good for.
type tokens struct {
	g *stage.Gateway

	mu sync.Mutex
	of map[string]string
}

func (ts *tokens) get(ctx context.Context, resource string) (string, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if token := ts.of[resource]; token != "" {
		return token, nil
	}
	b, err := os.ReadFile(filepath.Join(ts.g.Data, "agents", "agent.json"))
	var agent struct {
		ID     string `json:"agent"`
		Secret string `json:"client_secret"`
	}
	if err = errors.Join(err, json.Unmarshal(b, &agent)); err != nil {
		return "", err
	}
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {ts.g.URL + resource}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ts.g.URL+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(agent.ID, agent.Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return "", err
	}
	ts.of[resource] = got.Token
	return got.Token, nil
}
