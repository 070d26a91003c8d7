package upstream_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/limit/bulk"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// FO-30: an answer of more than 1 MiB is read no further than that, or in a program no
// further than itself, before there is room for it; a small one needs none.
func TestFO30_LargeAnswersWaitForRoom(t *testing.T) {
	t.Parallel()
	announced := &web{}
	announced.special = func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		body := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + text(string(wire.Member(m.Params, "arguments"))) + `}`
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write([]byte(body))
		return true
	}
	for name, c := range map[string]upstream.Config{
		"announced": {URL: announced.start(t)}, "not announced": {URL: (&web{}).start(t)}, "event": {URL: (&web{sse: true}).start(t)},
		"modern": {URL: (&web{modern: true}).start(t)}, "program": server("s", "legacy"), "HTTP+SSE": {URL: startOlder(t, older())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options()
			c.Name, o.MaxMessage = "s", 8*bulk.Light
			b := open(t, o, c)
			asks, release := make(chan int, 100), make(chan struct{})
			var mu sync.Mutex
			var last int
			run := func(size int) <-chan string {
				job := backendtest.Job(tool("s", "echo"), `{"x":"`+strings.Repeat("x", size)+`"}`)
				job.Room = func(_ context.Context, n int) error {
					mu.Lock()
					last = n
					mu.Unlock()
					if n > bulk.Light {
						asks <- n
						<-release
					}
					return nil
				}
				done := make(chan string, 1)
				go func() {
					out, err := b.Run(t.Context(), job)
					got, _ := backendtest.Text(out)
					done <- strconv.Itoa(len(got)) + errorText(err)
				}()
				return done
			}
			if got := <-run(1000); got != "1008" || len(asks) != 0 {
				t.Errorf("a small one: %s, asked %d times", got, len(asks))
			}
			const large = 3 * bulk.Light
			done := run(large)
			if n := <-asks; n < large || n > o.MaxMessage {
				t.Errorf("room for %d bytes is asked for", n)
			}
			select {
			case got := <-done:
				t.Errorf("it does not wait: %s", got)
			default:
			}
			close(release)
			if got := <-done; got != strconv.Itoa(large+8) {
				t.Errorf("got %s", got)
			}
			mu.Lock()
			defer mu.Unlock()
			if last < large || last > large+1000 {
				t.Errorf("it keeps room for %d bytes", last)
			}
		})
	}
}

// FO-30: what a server sends before its answer keeps no room while the answer is waited for.
func TestFO30_RoomIsForTheAnswer(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	srv := &web{special: func(w http.ResponseWriter, _ *http.Request, m wire.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		w.Header().Set("Content-Type", wire.TypeSSE)
		_, _ = w.Write(wire.AppendEvent(nil, "other", []byte(strings.Repeat("x", 2*bulk.Light))))
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = w.Write(wire.AppendEvent(nil, "", []byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+text(`{}`)+`}`)))
		return true
	}}
	o := options()
	o.MaxMessage = 8 * bulk.Light
	b := open(t, o, upstream.Config{Name: "s", URL: srv.start(t)})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var most, last atomic.Int64
	job := backendtest.Job(tool("s", "echo"), `{}`)
	job.Room = func(_ context.Context, n int) error {
		most.Store(max(most.Load(), int64(n)))
		last.Store(int64(n))
		return nil
	}
	done := make(chan error, 1)
	go func() { _, err := b.Run(t.Context(), job); done <- err }()
	await.That(t, "room was had, and given back", func() bool { return most.Load() > bulk.Light && last.Load() == 0 })
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
