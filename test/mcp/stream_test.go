package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/mcpserver"
)

// send makes one request; extra are "Name: value" lines.
func (w *world) send(ctx context.Context, method, token, body string, extra ...string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, w.url+"/mcp", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, line := range extra {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// session opens one and returns its header.
func (w *world) session(token, version string) string {
	w.t.Helper()
	res := w.send(w.t.Context(), "POST", token, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{}}}`)
	return "Mcp-Session-Id: " + res.Header.Get("Mcp-Session-Id")
}

// A reader reads a stream line by line.
type reader struct {
	t     *testing.T
	lines chan string
}

func lines(t *testing.T, res *http.Response) reader {
	t.Helper()
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || ct != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("%d %s %s", res.StatusCode, ct, b)
	}
	r := reader{t, make(chan string, 1000)}
	go func() {
		defer close(r.lines)
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			r.lines <- s.Text()
		}
	}()
	return r
}

// until returns the lines up to one that begins so.
func (r reader) until(prefix string) (seen []string) {
	r.t.Helper()
	for late := time.After(patience); ; {
		select {
		case l, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("the stream ended after %q, before %q", seen, prefix)
			}
			if seen = append(seen, l); strings.HasPrefix(l, prefix) {
				return seen
			}
		case <-late:
			r.t.Fatalf("no %q after %q", prefix, seen)
		}
	}
}

// ends waits for the end of the stream and returns what came before.
func (r reader) ends() (seen []string) {
	r.t.Helper()
	for late := time.After(patience); ; {
		select {
		case l, ok := <-r.lines:
			if !ok {
				return seen
			}
			seen = append(seen, l)
		case <-late:
			r.t.Fatalf("the stream does not end: %q", seen)
		}
	}
}

func fast(o *mcpserver.Options) { o.KeepAlive = 30 * time.Millisecond }

const (
	permitNothing = `@id("none") permit (principal == Agent::"default/nobody", action, resource);`
	permitAll     = `@id("ann") permit (principal == Agent::"default/ann", action, resource);`
)

func (w *world) flip(on bool) {
	if on {
		w.decide(permitAll)
	} else {
		w.decide(permitNothing)
	}
}

// FO-14, FO-15: the stream of a session speaks at once and goes on speaking; a
// client that lost it comes back for the rest, and gets nothing twice.
func TestFO15StreamOfASession(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2025-03-26"} {
		a := newShop(t, "a", true)
		w := newWorld(t, setup{policies: permitNothing, servers: []upstream.Config{a.config}, door: fast}).whole()
		s := w.session("ann", version)
		ctx, hangUp := context.WithCancel(t.Context())
		r := lines(t, w.send(ctx, "GET", "ann", "", s))
		if first := <-r.lines; (first == "id: get-0") != (version == "2025-11-25") { // before that, an empty event broke clients
			t.Errorf("%s begins with %q", version, first)
		}
		for range 3 {
			r.until(": alive")
		}
		w.flip(true)
		id := ""
		for range 3 { // tools, prompts, resources
			seen := r.until("data: {")
			id = seen[len(seen)-3]
		}
		if id != "id: get-3" {
			t.Errorf("the last event is %q", id)
		}
		hangUp()
		w.flip(false)
		time.Sleep(300 * time.Millisecond) // told to nobody, and kept
		r = lines(t, w.send(t.Context(), "GET", "ann", "", s, "Last-Event-ID: get-3"))
		if version == "2025-11-25" {
			if got := <-r.lines; got != "id: get-3" {
				t.Errorf("the resumed stream begins with %q", got)
			}
		}
		ids := map[string]int{}
		for range 3 {
			seen := r.until("data: {")
			ids[seen[len(seen)-3]]++
		}
		if len(ids) != 3 || ids["id: get-4"] != 1 || ids["id: get-6"] != 1 {
			t.Errorf("replayed: %v", ids)
		}
		next := lines(t, w.send(t.Context(), "GET", "ann", "", s))
		for _, l := range r.ends() { // the newer stream takes its place
			if strings.HasPrefix(l, "data: {") {
				t.Errorf("twice: %s", l)
			}
		}
		if res := w.send(t.Context(), "DELETE", "ann", "", s); res.StatusCode != 204 {
			t.Errorf("DELETE: %d", res.StatusCode)
		}
		next.ends()
	}
}

// TO-08: a session's stream is its owner's, and an id of an event opens nothing.
func TestTO08StreamsOfOthers(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}, door: fast}).whole()
	s := w.session("ann", "2025-11-25")
	mine := lines(t, w.send(t.Context(), "GET", "ann", "", s))
	mine.until(": alive")
	other := w.session("alice", "2025-11-25")
	for _, tt := range []struct {
		token, session string
		extra          []string
		want           int
	}{
		{"alice", s, nil, 404}, {"alice", s, []string{"Last-Event-ID: get-0"}, 404}, {"mallory", s, nil, 401},
		{"ann", other, nil, 404}, {"ann", "Mcp-Session-Id: guess", nil, 404}, {"ann", "X: y", nil, 400},
		{"ann", s, []string{"Last-Event-ID: get-7"}, 400}, {"ann", s, []string{"Last-Event-ID: 0"}, 400}, {"ann", s, []string{"Last-Event-ID: get-00"}, 400},
		{"ann", s, []string{"Accept: application/json"}, 406}, {"ann", s, []string{"Mcp-Protocol-Version: 2026-07-28"}, 405},
	} {
		if res := w.send(t.Context(), "GET", tt.token, "", append([]string{tt.session}, tt.extra...)...); res.StatusCode != tt.want {
			t.Errorf("%s, %s, %v: %d, want %d", tt.token, tt.session, tt.extra, res.StatusCode, tt.want)
		}
	}
	w.flip(false)
	mine.until("data: {") // its owner's is as it was
}

// TO-09: a stream does not outlive the right to it; FO-38: a new token of the same
// agent goes on where the old one's ended.
func TestTO09StreamEndsWithTheToken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		door func(*mcpserver.Options)
		flip bool // there would be something to tell
	}{"at a sign of life": {fast, false}, "at a message": {func(o *mcpserver.Options) { o.KeepAlive = time.Hour }, true}} {
		t.Run(name, func(t *testing.T) {
			a := newShop(t, "a", true)
			w := newWorld(t, setup{policies: permitNothing, servers: []upstream.Config{a.config}, door: tt.door}).whole()
			s := w.session("ann1", "2025-11-25")
			legacy := lines(t, w.send(t.Context(), "GET", "ann1", "", s))
			modern := lines(t, w.listen("ann1", `7`, `"toolsListChanged":true`))
			modern.until("data: {")
			time.Sleep(300 * time.Millisecond) // the servers' first lists have been passed on
			w.revoke("ann1")
			if tt.flip {
				w.flip(true)
			}
			for _, l := range append(legacy.ends(), modern.ends()...) {
				if strings.Contains(l, "list_changed") {
					t.Errorf("after the token was revoked: %s", l)
				}
			}
			w.flip(true)
			again := lines(t, w.send(t.Context(), "GET", "ann2", "", s))
			again.until(`data: {"jsonrpc":"2.0","method":"notifications/`)
		})
	}
}

func (w *world) listen(token, id, filter string) *http.Response {
	return w.send(w.t.Context(), "POST", token, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"notifications":{%s}}}`, id, filter),
		"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen")
}

// A modern stream says first what it will tell, tells that and nothing else, each
// with the id of its request, and ends with a result.
func TestListen(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", false)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}, door: fast}).whole()
	data := func(r reader) string { seen := r.until("data: {"); return seen[len(seen)-1] }
	r := lines(t, w.listen("ann", `"x1"`, `"promptsListChanged":true,"resourceSubscriptions":["sallyport:a/file:///readme","sallyport:z/x:1","sallyport:a/file:///readme"]`))
	meta := `{"_meta":{"io.modelcontextprotocol/subscriptionId":"x1"},`
	if got, want := data(r), `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`+meta+`"notifications":{"promptsListChanged":true,"resourceSubscriptions":["sallyport:a/file:///readme"]}}}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	tools := lines(t, w.listen("ann", `9007199254740993`, `"toolsListChanged":true`))
	data(tools)
	w.flip(false)
	if got := data(r); got != `data: {"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"x1"}}}` {
		t.Error(got)
	}
	if got := data(tools); got != `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":9007199254740993}}}` {
		t.Error(got)
	}
	w.door.Close()
	end := r.ends()
	if len(end) < 2 || end[len(end)-2] != `data: {"jsonrpc":"2.0","id":"x1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"x1"}}}` {
		t.Errorf("it ends with %q", end)
	}
	for _, l := range end[:len(end)-2] {
		if strings.HasPrefix(l, "data: ") {
			t.Errorf("not asked for: %s", l)
		}
	}
}

// TO-14: one principal's streams are bounded, and take nobody else's place.
func TestTO14StreamsAreBounded(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}}).whole()
	refused := 0
	for range 140 {
		if res := w.listen("ann", `1`, ``); res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "" {
			refused++
		}
	}
	if refused != 12 {
		t.Errorf("%d of 140 streams were refused", refused)
	}
	if res := w.listen("alice", `1`, ``); res.StatusCode != 200 {
		t.Errorf("alice gets %d", res.StatusCode)
	}
}

// TO-14: a stream that would follow more resources than one may is refused before any of
// them is looked at, and before anybody has compared them all.
func TestTO14StreamsFollowSoMany(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}}).whole()
	recorded := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.entries) }
	before := recorded()
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, `"sallyport:a/x:%d",`, i)
	}
	res := w.listen("ann", `1`, `"resourceSubscriptions":[`+strings.TrimSuffix(many.String(), ",")+`]`)
	b, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(b), `"code":-32602`) || !strings.Contains(string(b), "more than 1000 resources") {
		t.Errorf("%d %.300s, %v", res.StatusCode, b, err)
	}
	if n := recorded() - before; n != 0 {
		t.Errorf("%d operations are on record", n)
	}
}

// FO-11: an answer comes where it was asked for, and nowhere else.
func TestFO11AnswersAreNotOnTheStream(t *testing.T) {
	t.Parallel()
	a := newShop(t, "a", true)
	w := newWorld(t, setup{policies: permitAll, servers: []upstream.Config{a.config}, door: fast}).whole()
	s := w.session("ann", "2025-11-25")
	r := lines(t, w.send(t.Context(), "GET", "ann", "", s))
	r.until(": alive")
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__link","_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"sallyport:a/file:///readme"}}`,
	} {
		b, err := io.ReadAll(w.send(t.Context(), "POST", "ann", body, s).Body)
		if err != nil || !strings.Contains(string(b), `"result":`) {
			t.Errorf("%s: %s, %v", body, b, err)
		}
	}
	w.flip(false)
	for _, l := range r.until("data: {") {
		if strings.Contains(l, `"id"`) || strings.Contains(l, "result") {
			t.Errorf("on the stream: %s", l)
		}
	}
}

// To listen costs what a list does, so it is admitted as one, in both eras.
func TestListenerIsAdmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policies: permitAll, door: fast})
	session := func(token string) string {
		res := w.send(t.Context(), "POST", token, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		defer res.Body.Close()
		return res.Header.Get("Mcp-Session-Id")
	}
	for token, status := range map[string]int{"ann": http.StatusOK, "avid": http.StatusTooManyRequests} {
		ctx, cancel := context.WithCancel(t.Context())
		old := w.send(ctx, "GET", token, "", "Mcp-Session-Id: "+session(token), "Mcp-Protocol-Version: 2025-06-18")
		modern := w.listen(token, "1", `"toolsListChanged":true`)
		if old.StatusCode != status || modern.StatusCode != status {
			t.Errorf("%s: %s, %s", token, old.Status, modern.Status)
		}
		cancel()
		old.Body.Close()
		modern.Body.Close()
	}
}
