package mcp

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

var update = flag.Bool("update", false, "write what crosses the wires into testdata; read the difference before you commit it")

// TestBridgeWire plays testdata/bridge/*.txtar: what crosses both wires when a server
// asks in the middle of a call, for each pairing of eras.
//
// "client" and "upstream" name their revisions and what the client can be asked;
// "says" is what the upstream answers to each tools/call, or request about a task, on a line each ("ask" before
// it: a request of its own on the call's stream, whose response it awaits). Each
// "> name" is a message of the client, the "< name" after it what it gets, and
// "= upstream" what the upstream got. ${STATE}, ${ASK}, ${CALL} and ${ID} stand for
// what differs from run to run.
func TestBridgeWire(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bridge/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			playWires(t, a)
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A scripted upstream says what it is told to, and keeps what it gets.
type scripted struct {
	modern bool
	tasks  bool // it makes tasks of calls
	says   []string

	mu      sync.Mutex
	got     []string
	replies chan string
}

func (s *scripted) keep(body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, string(body))
}

func (s *scripted) next() (line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, s.says = s.says[0], s.says[1:]
	return line
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if r.Method != http.MethodPost || err != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + result + `}`))
	}
	switch {
	case m.IsResponse():
		s.keep(body)
		w.WriteHeader(http.StatusAccepted)
		s.replies <- string(body)
	case m.IsNotification():
		if m.Method != "notifications/initialized" {
			s.keep(body)
		}
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover" && s.modern:
		answer(`"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "initialize" && !s.modern:
		w.Header().Set("Mcp-Session-Id", "up")
		can := `"tools":{}`
		if s.tasks {
			can += `,"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`
		}
		answer(`"result":{"protocolVersion":"2025-11-25","capabilities":{` + can + `},"serverInfo":{"name":"up","version":"1"}}`)
	case m.Method == "tools/list":
		how := ""
		if s.tasks && !s.modern {
			how = `,"execution":{"taskSupport":"required"}`
		}
		answer(`"result":{"resultType":"complete","tools":[{"name":"ask","inputSchema":{"type":"object"}` + how + `}],"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "tools/call" || strings.HasPrefix(m.Method, "tasks/"):
		s.keep(body)
		s.play(w, m)
	default:
		answer(`"error":{"code":-32601,"message":"method not found"}`)
	}
}

func (s *scripted) play(w http.ResponseWriter, m wire.Message) {
	w.Header().Set("Content-Type", "text/event-stream")
	write := func(text string) {
		_, _ = w.Write(wire.AppendEvent(nil, "message", []byte(text)))
		w.(http.Flusher).Flush()
	}
	for {
		line := s.next()
		ask, ok := strings.CutPrefix(line, "ask ")
		if !ok {
			write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + line + `}`)
			return
		}
		write(ask)
		if strings.Contains(ask, `"id"`) {
			<-s.replies
		}
	}
}

// Wires are a client on one of them.
type wires struct {
	w       *world
	version string
	session string
	stream  *bufio.Reader // of the call that is under way
	close   func()
	names   map[string]string // that stand for what differs
}

func playWires(t *testing.T, a *txtar.Archive) {
	section := func(name string) string {
		for _, f := range a.Files {
			if f.Name == name {
				return strings.TrimSpace(string(f.Data))
			}
		}
		t.Fatalf("there is no %q", name)
		return ""
	}
	up := &scripted{modern: section("upstream") == "modern", tasks: strings.Contains(section("says"), `"taskId"`), says: strings.Split(section("says"), "\n"), replies: make(chan string, 10)}
	h := httptest.NewServer(up)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	c := &wires{w: newWorld(t, setup{servers: []upstream.Config{{Name: "s", URL: h.URL}}, door: calmly}).whole(), names: map[string]string{}, close: func() {}}
	defer func() { c.close() }()
	var can string
	c.version, can, _ = strings.Cut(section("client"), " ")
	if !wire.Modern(c.version) {
		c.open(t, can)
	}
	for i := range a.Files {
		f := &a.Files[i]
		name, sends := strings.CutPrefix(f.Name, "> ")
		var got string
		switch {
		case sends:
			got = c.send(t, strings.ReplaceAll(strings.TrimSpace(string(f.Data)), "${CAN}", can))
			f = &a.Files[i+1]
			if f.Name != "< "+name {
				t.Fatalf("%q is not followed by \"< %s\"", "> "+name, name)
			}
		case f.Name == "= upstream":
			up.mu.Lock()
			got = strings.Join(up.got, "\n")
			up.mu.Unlock()
		default:
			continue
		}
		got = c.normal(got) + "\n"
		if *update {
			f.Data = []byte(got)
		} else if got != string(f.Data) {
			t.Errorf("%s:\n%s\nwant:\n%s", f.Name, got, f.Data)
		}
	}
}

// calmly has no answer become a stream because the machine is slow.
func calmly(o *mcpserver.Options) { o.StreamAfter = time.Minute }

func (c *wires) post(t *testing.T, body string) *http.Response {
	t.Helper()
	resp, err := c.do(context.Background(), body)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (c *wires) do(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.w.url+"/mcp", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Authorization", "Bearer ann")
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("Mcp-Protocol-Version", c.version)
	if c.session != "" {
		h.Set("Mcp-Session-Id", c.session)
	}
	if m, err := wire.ParseMessage([]byte(body)); err == nil && wire.Modern(c.version) {
		h.Set("Mcp-Method", m.Method)
		name, _ := wire.String(wire.Member(m.Params, "name"))
		h.Set("Mcp-Name", name)
	}
	return http.DefaultClient.Do(req)
}

func (c *wires) open(t *testing.T, can string) {
	resp := c.post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+c.version+`","capabilities":`+can+`,"clientInfo":{"name":"t","version":"1"}}}`)
	c.session = resp.Header.Get("Mcp-Session-Id")
	_ = resp.Body.Close()
}

// send sends a message, and returns what comes up to the next question, or the end.
func (c *wires) send(t *testing.T, body string) string {
	t.Helper()
	for name, value := range c.names {
		body = strings.ReplaceAll(body, name, value)
	}
	resp := c.post(t, body)
	out := strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Content-Type"))) + "\n"
	if resp.StatusCode == http.StatusAccepted {
		_ = resp.Body.Close()
	} else {
		c.close()
		c.stream, c.close = bufio.NewReader(resp.Body), func() { _ = resp.Body.Close() }
	}
	for {
		line, err := c.stream.ReadString('\n')
		if !strings.HasPrefix(line, ":") && line != "\n" {
			out += line
		}
		if err != nil || strings.Contains(line, `"id":"ask-`) {
			return strings.TrimRight(out, "\n")
		}
	}
}

var differs = []struct {
	name string
	is   *regexp.Regexp
}{
	{"${STATE}", regexp.MustCompile(`"requestState":"([A-Za-z0-9_-]{80,})"`)},
	{"${ASK}", regexp.MustCompile(`"id":"(ask-[A-Z0-9]+)"`)},
	{"${CALL}", regexp.MustCompile(`"(call_[a-z0-9]{20,})"`)},
	{"${KEY}", regexp.MustCompile(`"dev.sallyport/idempotencyKey":"([^"]+)"`)},
	{"${TRACE}", regexp.MustCompile(`"traceparent":"([^"]+)"`)},
	{"${ELICITATION}", regexp.MustCompile(`"elicitationId":"([A-Z0-9]{26})"`)},
}

// upstreamID is what the gateway numbers its own requests with.
var upstreamID = regexp.MustCompile(`"(id|progressToken)":[0-9]+,("method":"(?:tools/call|tasks/[a-z]+|subscriptions/listen|resources/subscribe)"|"dev\.sallyport)`)

func (c *wires) normal(text string) string {
	for _, d := range differs {
		for _, m := range d.is.FindAllStringSubmatch(text, -1) {
			c.names[d.name] = m[1]
			text = strings.ReplaceAll(text, m[1], d.name)
		}
	}
	return strings.TrimRight(upstreamID.ReplaceAllString(text, `"$1":$${ID},$2`), "\n")
}
