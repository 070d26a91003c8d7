package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/child"
	"sallyport.dev/sallyport/test/await"
)

const limit = 256 << 10 // MaxMessage in most tests

func options() upstream.Options {
	return upstream.Options{
		Launchers: map[string]upstream.Launcher{"none": child.Launcher{}},
		Environ:   []string{"PATH=" + os.Getenv("PATH"), "HOME=/tmp", "LANG=C.UTF-8", "TZ=UTC", "GW_MASTER=CANARY-A"},
		Probe:     10 * time.Second, MaxMessage: limit, BackOff: 10 * time.Millisecond, Grace: 3 * time.Second, Budget: await.Patience,
	}
}

// server is a configuration of the hostile test server.
func server(name, mode string, args ...string) upstream.Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return upstream.Config{Name: name, Argv: append([]string{self, "hostile", mode}, args...), Isolation: "none"}
}

func open(t testing.TB, o upstream.Options, configs ...upstream.Config) *upstream.Backend {
	t.Helper()
	b := upstream.New(configs, o)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func tool(server, name string) sallyport.Tool {
	return sallyport.Tool{Name: server + "__" + name, Origin: sallyport.Origin{Backend: "upstream", Server: server, Name: name}}
}

func call(t testing.TB, b *upstream.Backend, server, name, args string) (sallyport.Output, error) {
	t.Helper()
	return b.Run(t.Context(), backendtest.Job(tool(server, name), args))
}

func mustText(t testing.TB, b *upstream.Backend, server, name, args string) string {
	t.Helper()
	out, err := call(t, b, server, name, args)
	if err != nil {
		t.Fatalf("%s on %s: %v", name, server, err)
	}
	s, err := backendtest.Text(out)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func status(t testing.TB, b *upstream.Backend, name string) upstream.Status {
	t.Helper()
	for _, s := range b.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no status of %q", name)
	return upstream.Status{}
}

func TestConformanceStdio(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"legacy", "modern"} {
		t.Run(mode, func(t *testing.T) {
			backendtest.Run(t, backendtest.Subject{
				Open: func(t testing.TB) sallyport.Backend {
					return upstream.New([]upstream.Config{server("s", mode)}, options())
				},
				Echo: tool("s", "echo"), Hang: tool("s", "hang"), Fail: tool("s", "fail"), Gone: tool("nowhere", "echo"),
			})
		})
	}
}

func TestErasAreFound(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][2]string{
		"legacy": {"legacy", "2025-11-25"}, "modern": {"modern", "2026-07-28"}, "ancient": {"legacy", "2024-11-05"},
		"deaf": {"legacy", "2025-11-25"}, "probekiller": {"legacy", "2025-11-25"},
	} {
		o := options()
		if mode == "deaf" {
			o.Probe = 500 * time.Millisecond
		}
		b := open(t, o, server("s", mode))
		if got := mustText(t, b, "s", "echo", `{"a":1}`); got != `{"a":1}` {
			t.Errorf("%s: got %s", mode, got)
		}
		if st := status(t, b, "s"); st.Era != want[0] || st.Version != want[1] || st.State != upstream.StateReady || !strings.Contains(string(st.Info), "hostile") {
			t.Errorf("%s: status %+v, want era and version %v", mode, st, want)
		}
	}
}

func TestRequestsCarryTheCall(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"legacy", "modern"} {
		b := open(t, options(), server("s", mode))
		job := backendtest.Job(tool("s", "params"), `{"n":1.0}`)
		job.CallID, job.Key, job.Trace = "c-1", `k"1`, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		out, err := b.Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := backendtest.Text(out)
		for _, want := range []string{
			`{"name":"params","arguments":{"n":1.0},"_meta":{`, `"dev.sallyport/callId":"c-1"`, `"dev.sallyport/idempotencyKey":"k\"1"`,
			`"traceparent":"00-4bf9`, `"progressToken":`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s lacks %s", mode, got, want)
			}
		}
		if modern := strings.Contains(got, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`); modern != (mode == "modern") || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

func TestFO08_OneBadServerHurtsNoOther(t *testing.T) {
	t.Parallel()
	o := options()
	o.Listing, o.Probe = time.Second, time.Second // what hangs is given up soon; what fails for want of time is tried again
	var mu sync.Mutex
	listed := map[string]int{}
	o.OnListing = func(l upstream.Listing) {
		mu.Lock()
		defer mu.Unlock()
		listed[l.Server] = len(l.Tools)
	}
	b := open(t, o)
	bad := upstream.Config{Name: "bad", Argv: []string{"x"}, URL: "http://x"}
	steps := []upstream.Config{
		server("good1", "legacy"), bad, server("hangs", "list-hangs"), server("fails", "list-fails"), server("dead", "probekiller-cold"),
		{Name: "missing", Argv: []string{"/no/such/program"}, Isolation: "none"},
		{Name: "closed", URL: "http://127.0.0.1:1/mcp"},
		{Name: "badname!", Argv: []string{"x"}, Isolation: "none"}, {Name: "uid", Argv: []string{"x"}, Isolation: "uid"},
		server("good2", "modern"),
	}
	refused := 0
	for _, c := range steps {
		if err := b.Add(c); err != nil {
			refused++
			if !strings.Contains(err.Error(), strconv.Quote(c.Name)) {
				t.Errorf("%v does not name %q", err, c.Name)
			}
		}
	}
	if refused != 3 {
		t.Errorf("%d configurations were refused, want 3", refused)
	}
	for _, s := range []string{"good1", "good2", "hangs", "fails"} {
		if got := mustText(t, b, s, "echo", `{"a":1}`); got != `{"a":1}` {
			t.Errorf("%s: %s", s, got)
		}
	}
	await.That(t, "the good ones are listed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return listed["good1"] == 1 && listed["good2"] == 1
	})
	await.That(t, "each bad one says what is wrong", func() bool {
		for _, s := range []string{"bad", "hangs", "fails", "dead", "missing", "closed", "badname!", "uid"} {
			if status(t, b, s).Error == "" {
				return false
			}
		}
		return true
	})
	for _, s := range b.Status() {
		t.Logf("%-9s %-9s %s", s.Name, s.State, s.Error)
	}
	o.Budget = 100 * time.Millisecond
	hasty := open(t, o, upstream.Config{Name: "missing", Argv: []string{"/no/such/program"}, Isolation: "none"})
	if _, err := call(t, hasty, "missing", "echo", `{}`); sallyport.CodeOf(err) != sallyport.Unavailable || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("call to a missing program: %v", err)
	}
	b.Remove("good1")
	if _, err := call(t, b, "good1", "echo", `{}`); !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("call to a removed server: %v", err)
	}
}

func TestFO27_NumbersAndUnknownFieldsPassExactly(t *testing.T) {
	t.Parallel()
	args := `{"a":9007199254740993,"b":9223372036854775807,"c":-9223372036854775808,"d":18446744073709551615,"e":1e400,"f":0.1,"g":1.0,"h":-0,"i":12345678901234567890.123456789}`
	reply := `{"content":[{"type":"text","text":"x","vendor":1.0}], "structuredContent":` + args + `, "vendorResult" : {"n":9007199254740993},"_meta":{"z":-0}}`
	b := open(t, options(), server("echo", "legacy"), server("raw", "raw", `{"jsonrpc":"2.0","vendor":1,"id":ID,"result":`+reply+`}`))
	if got := mustText(t, b, "echo", "echo", args); got != args {
		t.Errorf("arguments: got  %s\nwant %s", got, args)
	}
	out, err := call(t, b, "raw", "echo", `{}`)
	if err != nil || string(out.Content) != reply {
		t.Errorf("result: got  %s, %v\nwant %s", out.Content, err, reply)
	}
}

func TestCancelIsToldAndProgressArrives(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("s", "legacy", ledger))
	ctx, cancel := context.WithCancel(t.Context())
	job := backendtest.Job(tool("s", "hang"), `{}`)
	got := make(chan sallyport.Notice, 1)
	job.Notify = func(n sallyport.Notice) {
		got <- n
		cancel()
	}
	if _, err := b.Run(ctx, job); err != context.Canceled {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	if n := <-got; n.Method != "notifications/progress" || !strings.Contains(string(n.Params), `"progress":1`) {
		t.Errorf("notice = %s %s", n.Method, n.Params)
	}
	await.That(t, "the server hears of it", func() bool {
		text, _ := os.ReadFile(ledger)
		return strings.Contains(string(text), `notifications/cancelled {"requestId":`)
	})
}
