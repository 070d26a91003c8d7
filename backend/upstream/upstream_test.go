package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

// eventually waits until ok holds.
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

func TestFO06_CursorsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct {
		tools    int
		degraded string
	}{
		"same-cursor": {1, "pagination"}, "cycle": {3, "pagination"}, "endless-pages": {0, "pagination"},
		"empty-cursor": {2, "pagination"}, "slow-pages": {1, "pagination"}, "legacy": {1, ""},
	} {
		o := options()
		if mode == "slow-pages" {
			o.Listing = 2 * time.Second
		}
		b := open(t, o, server("s", mode))
		await.That(t, mode+" is listed", func() bool {
			st := status(t, b, "s")
			return st.Degraded == want.degraded && st.Tools == want.tools
		})
		if mode == "slow-pages" {
			continue // it hangs from its second page on
		}
		l, err := b.Tools(t.Context(), "s")
		if err != nil || l.Degraded != want.degraded {
			t.Errorf("%s: %d tools, degraded %q, %v; want %+v", mode, len(l.Tools), l.Degraded, err, want)
		}
		if l.Instructions != "Be careful." {
			t.Errorf("%s: instructions %q", mode, l.Instructions)
		}
	}
}

func TestListChangedIsFollowed(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "restless"))
	seen := map[string]bool{}
	await.That(t, "three different lists", func() bool {
		l, err := b.Tools(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		seen[string(l.Tools[0])] = true
		return len(seen) >= 3
	})
}

// gone reports whether no process has this id any more; a zombie counts as gone.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestFO20_ChildThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "stubborn"))
	start := time.Now()
	pid, err := strconv.Atoi(mustText(t, b, "s", "child", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > await.Patience { // the grandchild stays for ten
		t.Errorf("the result took %v", took)
	}
	if gone(pid) {
		t.Fatal("the grandchild is not there: the test can show nothing")
	}
	start = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > await.Patience { // it would stay for an hour
		t.Errorf("Close took %v, the grace is 3 s", took)
	}
	await.That(t, "the whole group is gone", func() bool { return gone(pid) })
}

func TestFO21_ExitsAfterEachReply(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "exit-after"))
	for i := range 3 {
		args := fmt.Sprintf(`{"i":%d}`, i)
		if got := mustText(t, b, "s", "echo", args); got != args {
			t.Errorf("got %s, want %s", got, args)
		}
	}
	if st := status(t, b, "s"); st.Restarts < 2 {
		t.Errorf("%d restarts after three one-shot calls", st.Restarts)
	}
}

// A server that stays down for one reason is told of once.
func TestSaysOnceWhyItIsDown(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer // one server, so one writer, and read when it is closed
	o := options()
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	b := open(t, o, upstream.Config{Name: "s", Argv: []string{"/no/such/program"}, Isolation: "none"})
	await.That(t, "it is tried again", func() bool { return status(t, b, "s").Restarts >= 4 })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "upstream is down"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
}

func TestFO21_ParallelCallsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("s", "exit-after", ledger))
	var wg sync.WaitGroup
	ok := make([]bool, 2)
	for i := range 2 {
		wg.Go(func() {
			_, err := call(t, b, "s", "echo", fmt.Sprintf(`{"i":%d}`, i))
			ok[i] = err == nil
			if err != nil && sallyport.CodeOf(err) != sallyport.Upstream && sallyport.CodeOf(err) != sallyport.Unavailable {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		n := strings.Count(string(text), fmt.Sprintf(`"arguments":{"i":%d}`, i))
		if n > 1 || ok[i] && n != 1 {
			t.Errorf("call %d arrived %d times, ok %t", i, n, ok[i])
		}
	}
}

func TestFO21_HalfAReply(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("half", "half", ledger), server("killed", "suicide"))
	_, err := call(t, b, "half", "echo", `{}`)
	if sallyport.CodeOf(err) != sallyport.Upstream || errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("got %v: want upstream_error that leaves the outcome open", err)
	}
	for _, want := range []string{"upstream_exited", "exit status 1", `about to fail␛[31m`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if text, _ := os.ReadFile(ledger); strings.Count(string(text), "call ") != 1 {
		t.Errorf("the call was repeated: %s", text)
	}
	if _, err := call(t, b, "killed", "echo", `{}`); err == nil || !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), "goodbye") {
		t.Errorf("got %v, want the signal and the last words", err)
	}
}

func TestFO22_LongLines(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "legacy"))
	for _, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, limit - 1, limit} {
		out, err := call(t, b, "s", "big", fmt.Sprintf(`{"size":%d}`, size))
		if err != nil || len(out.Content) < size-200 {
			t.Errorf("%d bytes: got %d, %v", size, len(out.Content), err)
		}
	}
	restarts := status(t, b, "s").Restarts
	for _, size := range []int{limit + 1, limit + 64<<10, 3 * limit} {
		_, err := call(t, b, "s", "big", fmt.Sprintf(`{"size":%d}`, size))
		if err == nil || !strings.Contains(err.Error(), "response_too_large") || errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%d bytes: %v, want response_too_large", size, err)
		}
		if got := mustText(t, b, "s", "echo", `{"a":1}`); got != `{"a":1}` {
			t.Errorf("after %d bytes: %s", size, got)
		}
	}
	if n := status(t, b, "s").Restarts; n != restarts {
		t.Errorf("the server was restarted %d times for long lines that ended", n-restarts)
	}
	if _, err := call(t, b, "s", "big", `{"size":-1}`); sallyport.CodeOf(err) != sallyport.Upstream {
		t.Errorf("a line without end: %v", err)
	}
	if got := mustText(t, b, "s", "echo", `{"a":1}`); got != `{"a":1}` {
		t.Errorf("after a line without end: %s", got)
	}
}

func TestFO23_LifeIsNotThatOfARequest(t *testing.T) {
	t.Parallel()
	o := options()
	o.Connect, o.Budget = 2*time.Second, await.Patience // on a slow machine it is tried again
	c := server("s", "legacy")
	c.Lazy = true
	b := open(t, o, c)
	if st := status(t, b, "s"); st.State != upstream.StateIdle {
		t.Errorf("state = %s before the first call to a lazy server", st.State)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.Run(ctx, backendtest.Job(tool("s", "echo"), `{}`)); err != nil {
		t.Fatal(err)
	}
	restarts := status(t, b, "s").Restarts
	cancel()                            // the request that started it
	time.Sleep(2200 * time.Millisecond) // beyond the connect deadline
	if got := mustText(t, b, "s", "echo", `{"a":1}`); got != `{"a":1}` {
		t.Error(got)
	}
	if n := status(t, b, "s").Restarts - restarts; n != 0 {
		t.Errorf("%d restarts", n)
	}
}

func TestFO24_MalformedReplies(t *testing.T) {
	t.Parallel()
	replies := map[string]string{
		"null result":       `{"jsonrpc":"2.0","id":ID,"result":null}`,
		"text result":       `{"jsonrpc":"2.0","id":ID,"result":"x"}`,
		"no content":        `{"jsonrpc":"2.0","id":ID,"result":{}}`,
		"null content":      `{"jsonrpc":"2.0","id":ID,"result":{"content":null}}`,
		"null item":         `{"jsonrpc":"2.0","id":ID,"result":{"content":[null]}}`,
		"unknown type":      `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"hologram"}]}}`,
		"no type":           `{"jsonrpc":"2.0","id":ID,"result":{"content":[{}]}}`,
		"text without text": `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":null}]}}`,
		"empty resource":    `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"resource","resource":null}]}}`,
		"isError text":      `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":"yes"}}`,
		"input required":    `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required","content":[]}}`,
		"error no message":  `{"jsonrpc":"2.0","id":ID,"error":{"code":1}}`,
		"error null":        `{"jsonrpc":"2.0","id":ID,"error":null}`,
		"neither":           `{"jsonrpc":"2.0","id":ID}`,
		"both":              `{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":1,"message":"x"}}`,
		"no version":        `{"id":ID,"result":{"content":[]}}`,
		"bad UTF-8":         "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}}",
		"duplicate":         `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"content":[]}}`,
		"too deep":          `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}`,
	}
	b := open(t, options(), server("healthy", "legacy"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	calls := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got := mustText(t, b, "healthy", "echo", `{"a":1}`); got != `{"a":1}` {
				t.Error(got)
			}
			calls++
		}
	})
	for name, reply := range replies {
		server := server(strings.ReplaceAll(name, " ", "_"), "raw", reply)
		server.Name = strings.ReplaceAll(server.Name, "-", "_")
		if err := b.Add(server); err != nil {
			t.Fatal(err)
		}
		out, err := call(t, b, server.Name, "echo", `{}`)
		if err != nil || !out.IsError || !out.Unclear && !strings.HasPrefix(name, "error") {
			t.Errorf("%s: %s, %v; want a tool error that does not say whether it acted", name, out.Content, err)
			continue
		}
		if text, err := backendtest.Text(out); err != nil || !strings.Contains(text, "cannot be used") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		b.Remove(server.Name)
	}
	if err := b.Add(server("mortal", "mortal")); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, b, "mortal", "echo", `{}`); err != nil && sallyport.CodeOf(err) == sallyport.Internal {
		t.Errorf("died before the first call: %v", err)
	}
	close(stop)
	wg.Wait()
	if calls == 0 {
		t.Error("the healthy server was not called meanwhile")
	}
}

func TestFO25_Environment(t *testing.T) {
	t.Setenv("GW_MASTER2", "CANARY-B") // in this process, not in Options.Environ
	one, two := server("one", "legacy"), server("two", "legacy")
	one.Env = []string{"X=1", "EMPTY=", "EQ=a=b=c", "LINES=a\nb\r", "UNI=é𝄞", "HOME=/elsewhere"}
	two.Env = []string{"Y=2"}
	b := open(t, options(), one, two)
	base := []string{"LANG=C.UTF-8", "PATH=" + os.Getenv("PATH"), "TZ=UTC"}
	for name, want := range map[string][]string{
		"one": append(slices.Clone(base), one.Env...), "two": append(slices.Clone(base), "HOME=/tmp", "Y=2"),
	} {
		out, err := call(t, b, name, "env", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		var r struct{ StructuredContent struct{ Env []string } }
		if err := json.Unmarshal(out.Content, &r); err != nil {
			t.Fatal(err)
		}
		got := r.StructuredContent.Env
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got  %q\nwant %q", name, got, want)
		}
	}
	for _, bad := range []string{"NAME", "=x", "A=\x00"} {
		c := server("bad", "legacy")
		c.Env = []string{bad}
		if b.Add(c) == nil {
			t.Errorf("%q was accepted", bad)
		}
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

func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "legacy"), server("r", "raw", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no \u001b[2Jtools"}}`))
	_, err := call(t, b, "s", "unknown", `{}`)
	if sallyport.CodeOf(err) != sallyport.Upstream || errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), "-32602: unknown tool") {
		t.Errorf("invalid params: %v", err)
	}
	_, err = call(t, b, "r", "echo", `{}`)
	if !errors.Is(err, sallyport.ErrNotExecuted) || strings.Contains(err.(*sallyport.Error).Message, "\x1b") {
		t.Errorf("method not found: %v", err)
	}
	changed := tool("s", "echo")
	changed.Origin.Endpoint = "another command"
	if _, err := b.Run(t.Context(), backendtest.Job(changed, `{}`)); sallyport.CodeOf(err) != sallyport.Conflict || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("another endpoint than approved: %v", err)
	}
}

func TestPeerRequestsAndNoise(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("s", "legacy", ledger))
	job := backendtest.Job(tool("s", "noise"), `{}`)
	job.Notify = func(n sallyport.Notice) { t.Errorf("got %s %s, which belongs to nobody", n.Method, n.Params) }
	if _, err := b.Run(t.Context(), job); err != nil {
		t.Error(err)
	}
	mustText(t, b, "s", "ask", `{}`)
	await.That(t, "both requests are answered", func() bool {
		text, _ := os.ReadFile(ledger)
		return strings.Contains(string(text), `{"jsonrpc":"2.0","id":"p","result":{}}`) && strings.Contains(string(text), `"id":7,"error":{"code":-32601`)
	})
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

func TestRemoveEndsTheProcess(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "legacy"))
	pid, _ := strconv.Atoi(mustText(t, b, "s", "child", `{}`))
	b.Remove("s")
	await.That(t, "its children are gone", func() bool { return gone(pid) })
	if len(b.Status()) != 0 {
		t.Errorf("status = %v", b.Status())
	}
	if pid > 1 && syscall.Kill(pid, 0) == nil && !gone(pid) {
		t.Error("still there")
	}
}
