package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/wire"
)

// sessionsOfOne is how many sessions one agent may have.
const sessionsOfOne = 60

// TestMemoryIsFlat holds the memory of a gateway against what it was, over many
// calls and with many idle sessions. With SALLYPORT_SOAK=1 (make soak) they are
// 100,000 calls and 1,000 sessions.
func TestMemoryIsFlat(t *testing.T) {
	calls, sessions := 3_000, 120
	if os.Getenv("SALLYPORT_SOAK") != "" {
		calls, sessions = 100_000, 1_000
	}
	_, upstream := spawn(t, "", stage.Program(t, "sallyport"), "bench", "echo")
	g := stage.New(t)
	g.Write("sallyport.yaml", g.Config(fmt.Sprintf("servers:\n  echo: {url: %q}\nlimits: {rate: 100000, burst: 100000, bytes: 8GiB}\n", upstream+"/mcp")))
	g.Write("tools/echo.yaml", "server: echo\ntool: echo\nread_only: true\n")
	g.Start("echo")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	token, fresh := g.Token(""), time.Now()
	work := func(n int) (peak int) {
		for i := range n {
			if time.Since(fresh) > 5*time.Minute {
				token, fresh = g.Token(""), time.Now()
			}
			shot(t, client, g.URL+"/mcp", token, "echo__echo")
			if i%100 == 0 {
				peak = max(peak, resident(t, g.PID()))
			}
		}
		return peak
	}
	work(calls / 4) // caches fill, and the heap finds its size
	before := work(calls / 4)
	after := work(calls / 2)
	t.Logf("%d calls: %d MiB at most in the second quarter, %d MiB in the second half", calls, before>>10, after>>10)
	if after > before*6/5+16<<10 {
		t.Errorf("the memory grew with the calls: from %d to %d KiB", before, after)
	}
	for i := range sessions {
		if i%sessionsOfOne == 0 {
			agent := fmt.Sprint("idle", i/sessionsOfOne)
			g.Must("", "agents", "add", agent, "--role", "agent")
			token = g.Token(agent)
		}
		initialize(t, client, g.URL+"/mcp", token)
	}
	token = g.Token("")
	with := work(calls / 4)
	t.Logf("with %d idle sessions: %d MiB at most", sessions, with>>10)
	if with > after*6/5+16<<10 {
		t.Errorf("idle sessions cost memory: from %d to %d KiB for %d of them", after, with, sessions)
	}
}

// resident is the memory of a process, in KiB.
func resident(t testing.TB, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// initialize opens a session of an earlier revision, which nobody uses.
func initialize(t testing.TB, c *http.Client, url, token string) {
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"idle","version":"1"}}}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": wire.TypeJSON, "Accept": wire.TypeJSON + ", " + wire.TypeSSE, "Authorization": "Bearer " + token} {
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get(wire.HeaderSessionID) == "" {
		t.Fatal(resp.Status)
	}
}
