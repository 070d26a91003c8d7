package mcp

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/limit"
	"sallyport.dev/sallyport/limit/gcra"
	"sallyport.dev/sallyport/mcpserver"
)

const permitFour = `@id("some") permit (principal in Role::"agent", action, resource);`

// FO-41: what one agent may have does not depend on who shares its address, and
// not on how many addresses it has; a flood of those who have no credential is
// stopped for them, and for nobody else.
func TestFO41LimitsAreOfThePrincipal(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{policies: permitFour, servers: []upstream.Config{a.config}, door: func(o *mcpserver.Options) {
		o.Strangers = gcra.PerSecond(1, 20)
	}})
	w.gateway.Limiter = limit.New(limit.Config{Rate: 0.001, Burst: 10})
	w.whole()
	call := func(c *http.Client, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a__link","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "a__link"} {
			req.Header.Set(k, v)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer func() { _ = res.Body.Close() }()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(b) + " retry-after=" + res.Header.Get("Retry-After")
	}
	if code, said := call(http.DefaultClient, "axe"); code != 200 { // who calls a tool first pays for looking it up
		t.Fatal(code, said)
	}
	var refused, wrong, ok atomic.Int64
	var all sync.WaitGroup
	for _, stranger := range []string{"", "bad", "not a token", "b" + strings.Repeat("x", 500)} {
		all.Go(func() { // a flood of those without a credential
			for range 200 {
				switch code, said := call(http.DefaultClient, stranger); code {
				case 429:
					refused.Add(1)
					if strings.HasSuffix(said, "retry-after=") {
						t.Error("no Retry-After")
					}
				case 401:
				default:
					wrong.Add(1)
				}
			}
		})
	}
	all.Go(func() { // ten times what it may
		for range 100 {
			if code, _ := call(http.DefaultClient, "ann"); code == 200 {
				ok.Add(1)
			}
		}
	})
	for _, quiet := range []string{"abe", "ada"} { // half of what they may, from the same address
		all.Go(func() {
			for range 5 {
				if code, said := call(http.DefaultClient, quiet); code != 200 {
					t.Errorf("%s: %d %s", quiet, code, said)
				}
			}
		})
	}
	all.Wait()
	if refused.Load() < 700 || wrong.Load() != 0 {
		t.Errorf("of 800 requests without a credential %d were told to go away, %d something odd", refused.Load(), wrong.Load())
	}
	if ok.Load() != 10 {
		t.Errorf("ann had %d calls, and may have 10", ok.Load())
	}
	// One agent from three addresses has no more than from one.
	got := 0
	for i := range 30 {
		from := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.0.%d", 2+i%3))}}).DialContext}}
		if code, _ := call(from, "amy"); code == 200 {
			got++
		}
		from.CloseIdleConnections()
	}
	if got != 10 {
		t.Errorf("from three addresses amy had %d calls, and may have 10", got)
	}
	// A stranger from another address is not concerned.
	other := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.9")}}).DialContext}}
	defer other.CloseIdleConnections()
	if code, _ := call(other, ""); code != 401 {
		t.Errorf("from another address: %d", code)
	}
}
