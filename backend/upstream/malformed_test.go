package upstream_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/test/await"
)

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
