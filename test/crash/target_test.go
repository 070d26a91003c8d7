package crash

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The process that the gateway's calls act on: an MCP server over HTTP, and the
// receiver of a webhook. It is never killed, so that it knows what was executed:
// each effect is a line of a file, before it is answered.

func actsOf(dir string) string    { return filepath.Join(dir, "acts") }
func addressOf(dir string) string { return filepath.Join(dir, "address") }

// targetTools act, each in a way of its own.
var targetTools = []string{
	"keyed",   // once for each idempotency key
	"queried", // each time; the file can be asked
	"blind",   // each time; nobody may look
	"lost",    // as queried, and the answer never arrives
	"risky",   // as queried, and a human must approve
	"refuse",  // never
}

type target struct {
	mu   sync.Mutex // guards what is below
	acts *os.File
	keys map[string]bool

	conns map[net.Conn]bool // open ones
}

func playTarget(dir string) error {
	f, err := os.OpenFile(actsOf(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(addressOf(dir), []byte("http://"+l.Addr().String()), 0o600); err != nil {
		return err
	}
	fmt.Println("ready")
	go func() { // ends with the test, which holds the other end of stdin
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	tg := &target{acts: f, keys: map[string]bool{}, conns: map[net.Conn]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", tg.mcp)
	mux.HandleFunc("/hook", tg.hook)
	mux.HandleFunc("/settled", tg.settled)
	return (&http.Server{Handler: mux, ConnState: tg.track}).Serve(l)
}

func (tg *target) track(c net.Conn, s http.ConnState) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	if tg.conns[c] = true; s == http.StateClosed {
		delete(tg.conns, c)
	}
}

// settled answers when all that dead gateways had sent was read and carried out:
// a connection whose other end has gone stays in CLOSE_WAIT until then. Those that
// nobody had accepted yet came before this one.
func (tg *target) settled(w http.ResponseWriter, _ *http.Request) {
	for tg.orphans() > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (tg *target) orphans() (n int) {
	const closeWait = 8
	tg.mu.Lock()
	defer tg.mu.Unlock()
	for c := range tg.conns {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			continue // closed
		}
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && info.State == closeWait {
				n++
			}
		})
	}
	return n
}

// act writes a line down. With a key, only the first time.
func (tg *target) act(key string, words ...string) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	if key != "" && tg.keys[key] {
		return
	}
	tg.keys[key] = true
	if _, err := fmt.Fprintln(tg.acts, strings.Join(words, " ")); err != nil {
		fmt.Fprintln(os.Stderr, "target:", err)
		os.Exit(1)
	}
}

func (tg *target) hook(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Type   string
		Ticket struct{ ID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	tg.act("", "told", m.Type, m.Ticket.ID)
}

func (tg *target) mcp(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments struct{ Op string }
			Meta      struct {
				Key string `json:"dev.sallyport/idempotencyKey"`
			} `json:"_meta"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	reply := func(kind, text string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, kind, text)
	}
	switch m.Method {
	case "initialize":
		reply("result", `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"target","version":"1"}}`)
	case "tools/list":
		var all []string
		for _, name := range targetTools {
			all = append(all, fmt.Sprintf(`{"name":%q,"description":"acts","inputSchema":{"type":"object","properties":{"op":{"type":"string"}}}}`, name))
		}
		reply("result", `{"tools":[`+strings.Join(all, ",")+`]}`)
	case "tools/call":
		if m.Params.Name == "refuse" {
			reply("result", `{"isError":true,"content":[{"type":"text","text":"no"}]}`)
			return
		}
		key := ""
		if m.Params.Name == "keyed" {
			key = m.Params.Meta.Key
		}
		time.Sleep(time.Millisecond)
		tg.act(key, "effect", m.Params.Arguments.Op)
		if m.Params.Name == "lost" {
			panic(http.ErrAbortHandler)
		}
		time.Sleep(time.Millisecond)
		reply("result", `{"content":[{"type":"text","text":"acted"}]}`)
	default:
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		reply("error", `{"code":-32601,"message":"no such method"}`)
	}
}

// acts are the lines so far.
func acts(t testing.TB, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(actsOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}
