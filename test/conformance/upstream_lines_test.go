package conformance

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

func longLines(t *testing.T, w *world) {
	const limit = 2 << 20
	for _, n := range []int{64<<10 - 1, 64 << 10, 1 << 20, limit - 1, limit} {
		if a := w.must(t, "a__size", fmt.Sprintf(`{"n":%d}`, n), ""); a.IsError || len(a.Text) < n-200 {
			t.Errorf("%d bytes: %d came, error %t", n, len(a.Text), a.IsError)
		}
	}
	before := peak(t, w.PID())
	restarts := w.server(t, "a").Restarts
	if a := w.must(t, "a__size", fmt.Sprintf(`{"n":%d}`, limit+1), ""); !strings.Contains(string(a.Result), "response_too_large") {
		t.Errorf("one byte more: %s", a)
	}
	if a := w.must(t, "a__echo", `{}`, ""); a.Text != `{}` || w.server(t, "a").Restarts != restarts {
		t.Errorf("after that: %s, %d restarts", a, w.server(t, "a").Restarts-restarts)
	}
	if a := w.must(t, "a__endless", `{}`, ""); !a.IsError {
		t.Errorf("a line without end: %s", a)
	}
	if a := w.must(t, "a__echo", `{}`, ""); a.Text != `{}` {
		t.Errorf("after that: %s", a)
	}
	if grown := peak(t, w.PID()) - before; grown > 64<<10 {
		t.Errorf("the gateway grew by %d MiB", grown>>10)
	}
}

// peak is a process's largest resident size in KiB.
func peak(t *testing.T, pid int) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

var malformed = map[string]string{
	"null result":   `{"jsonrpc":"2.0","id":ID,"result":null}`,
	"text result":   `{"jsonrpc":"2.0","id":ID,"result":"x"}`,
	"no content":    `{"jsonrpc":"2.0","id":ID,"result":{}}`,
	"null content":  `{"jsonrpc":"2.0","id":ID,"result":{"content":null}}`,
	"null item":     `{"jsonrpc":"2.0","id":ID,"result":{"content":[null]}}`,
	"unknown type":  `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"hologram"}]}}`,
	"no message":    `{"jsonrpc":"2.0","id":ID,"error":{"code":1}}`,
	"null error":    `{"jsonrpc":"2.0","id":ID,"error":null}`,
	"duplicate":     `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"content":[]}}`,
	"too deep":      `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}}`,
	"odd structure": `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":[1],"isError":"yes"}}`,
}

func malformedReplies(t *testing.T, w *world) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	healthy := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if a, err := w.call("1", "a__echo", `{}`, ""); err != nil || a.Text != `{}` {
				t.Errorf("the healthy server meanwhile: %s, %v", a, err)
			}
			healthy++
		}
	})
	for name, reply := range malformed {
		if a := w.must(t, "b__raw", `{"reply":`+str(reply)+`}`, ""); !a.IsError || a.Text == "" {
			t.Errorf("%s: %s", name, a)
		}
	}
	close(stop)
	wg.Wait()
	if healthy == 0 {
		t.Error("the healthy server was not called")
	}
	if strings.Contains(w.Log(), "panic") {
		t.Error("something panicked")
	}
}
