package openapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/proc"
)

// The peer is an HTTP API in a process of its own. It writes down each request,
// as it came over the wire, before it answers: what a test asks of the ledger
// does not come from what is tested.

const (
	envPeer   = "SALLYPORT_TEST_PEER" // its ledger
	canaryKey = "canary-key-5f2c1d"
)

func TestMain(m *testing.M) {
	if ledger := os.Getenv(envPeer); ledger != "" {
		servePeer(ledger)
		return
	}
	os.Exit(m.Run())
}

// A seen request is one line of the ledger.
type seen struct {
	Port   string      `json:"port"`
	Method string      `json:"method"`
	Target string      `json:"target"` // as on the request line
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

// servePeer serves on two ports, which are two origins, until its standard input
// is closed.
func servePeer(ledger string) {
	f, err := os.OpenFile(ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	var addrs []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		addrs = append(addrs, l.Addr().String())
		_, port, _ := net.SplitHostPort(l.Addr().String())
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			line, _ := json.Marshal(seen{port, r.Method, r.RequestURI, r.Host, r.Header, string(body)})
			f.Write(append(line, '\n'))
			answer(w, r, body, addrs)
		})
		go http.Serve(l, h)
	}
	fmt.Println(strings.Join(addrs, " "))
	io.Copy(io.Discard, os.Stdin)
}

// answer plays an API whose paths say how it behaves.
func answer(w http.ResponseWriter, r *http.Request, body []byte, addrs []string) {
	w.Header().Set("Content-Type", "application/json")
	part := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch part[0] {
	case "echo":
		w.Write(body)
	case "hang":
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	case "fail":
		w.WriteHeader(422)
		io.WriteString(w, `{"message":"no \u001b[2J such thing"}`)
	case "status":
		var code int
		fmt.Sscan(part[1], &code)
		w.WriteHeader(code)
		io.WriteString(w, strings.Repeat("x", 100_000))
	case "redirect": // /redirect/CODE/TO
		to := map[string]string{"same": "/v1/pets", "other": "http://" + addrs[1] + "/v1/pets", "loop": r.URL.Path, "meta": "http://169.254.169.254/latest", "sub": "http://x." + r.Host + "/v1/pets", "userinfo": "http://u:p@" + r.Host + "/v1/pets"}[part[2]]
		var code int
		fmt.Sscan(part[1], &code)
		w.Header().Set("Location", to)
		w.WriteHeader(code)
	case "huge":
		for range 2000 {
			w.Write(bytes.Repeat([]byte(" "), 16<<10))
		}
	case "packed":
		w.Header().Set("Content-Encoding", "gzip")
		w.Write([]byte("\x1f\x8b"))
	case "notes":
		w.Header()["Link"] = []string{`<https://a.example/2?api_key=` + canaryKey + `>; rel="next"`}
		w.Header().Set("Location", "/v1/users/7")
		w.Header().Set("X-Other", "x")
		w.WriteHeader(201)
	case "cut":
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"a":`)
	case "drop":
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	case "leak":
		json.NewEncoder(w).Encode(map[string]any{"header": r.Header, "url": r.RequestURI})
	case "image":
		w.Header().Set("Content-Type", "image/png")
		w.Write([]byte("\x89PNG"))
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "plain é")
	case "empty":
		w.WriteHeader(204)
	case "token":
		if user, pw, _ := r.BasicAuth(); user != "id" || pw != "s3cret-s3cret" {
			w.WriteHeader(401)
			return
		}
		io.WriteString(w, `{"access_token":"tok-`+fmt.Sprint(time.Now().UnixNano())+`","token_type":"Bearer","expires_in":3600}`)
	case "number":
		io.WriteString(w, `{"n":9007199254740993.10,"big":1e400}`)
	case "doc":
		io.WriteString(w, strings.ReplaceAll(peerDocument, "BASE", "http://"+r.Host+"/v1"))
	case "foreign":
		io.WriteString(w, strings.ReplaceAll(peerDocument, "BASE", "http://"+addrs[1]+"/v1"))
	case "docmoved":
		http.Redirect(w, r, "http://"+addrs[1]+"/v1/doc", http.StatusFound)
	default:
		io.WriteString(w, `{"path":"`+r.URL.Path+`"}`)
	}
}

// A peer as a test sees it.
type peer struct {
	base   string // of the first origin
	other  string // of the second
	ledger string
}

func startPeer(t testing.TB) *peer {
	t.Helper()
	p := &peer{ledger: filepath.Join(t.TempDir(), "ledger")}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envPeer+"="+p.ledger)
	cmd.Stderr = os.Stderr
	in, out := proc.Start(t, cmd)
	t.Cleanup(func() { in.Close(); cancel(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	addrs := strings.Fields(line)
	if err != nil || len(addrs) != 2 {
		t.Fatalf("the peer says %q, %v", line, err)
	}
	p.base, p.other = "http://"+addrs[0]+"/v1", "http://"+addrs[1]+"/v1"
	return p
}

// saw returns what arrived, and fails where nothing can be read.
func (p *peer) saw(t testing.TB) (all []seen) {
	t.Helper()
	b, err := os.ReadFile(p.ledger)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var s seen
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// to counts what arrived for a path.
func (p *peer) to(t testing.TB, part string) (n int) {
	for _, s := range p.saw(t) {
		if strings.Contains(s.Target, part) {
			n++
		}
	}
	return n
}

const peerDocument = `{"openapi":"3.1.0","info":{"title":"peer","version":"1"},"servers":[{"url":"BASE"}],
"security":[{},{"key":[]},{"query":[]},{"cookie":[]},{"basic":[]},{"bearer":[]},{"oauth":["all"]}],
"paths":{
 "/echo":{"post":{"operationId":"echo","requestBody":{"content":{"application/json":{"schema":{}}}}}},
 "/hang":{"post":{"operationId":"hang"},"get":{"operationId":"hangs"}},
 "/fail":{"post":{"operationId":"fail"}},
 "/drop":{"post":{"operationId":"drop"}},
 "/cut":{"get":{"operationId":"cut"}},
 "/huge":{"get":{"operationId":"huge"}},
 "/packed":{"get":{"operationId":"packed"}},
 "/leak":{"get":{"operationId":"leak"}},
 "/image":{"get":{"operationId":"image"}},
 "/notes":{"post":{"operationId":"notes"}},
 "/text":{"get":{"operationId":"text"}},
 "/empty":{"delete":{"operationId":"empty"}},
 "/number":{"get":{"operationId":"number","responses":{"200":{"description":"","content":{"application/json":{"schema":{"type":"object"}}}}}}},
 "/status/{code}":{"get":{"operationId":"status","parameters":[{"name":"code","in":"path","required":true}]}},
 "/redirect/{code}/{to}":{
  "parameters":[{"name":"code","in":"path","required":true},{"name":"to","in":"path","required":true}],
  "get":{"operationId":"redirect"},"post":{"operationId":"redirectPost","requestBody":{"content":{"text/plain":{}}}}},
 "/users/{id}":{"parameters":[{"name":"id","in":"path","required":true}],"get":{"operationId":"user"},"delete":{"operationId":"removeUser"}},
 "/search":{"get":{"operationId":"search","parameters":[{"name":"q","in":"query"},{"name":"X-Tag","in":"header"},{"name":"c","in":"cookie"}]}}
},
"components":{"securitySchemes":{
 "key":{"type":"apiKey","in":"header","name":"X-Api-Key"},"query":{"type":"apiKey","in":"query","name":"api_key"},"cookie":{"type":"apiKey","in":"cookie","name":"sid"},
 "basic":{"type":"http","scheme":"basic"},"bearer":{"type":"http","scheme":"bearer"},
 "oauth":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"TOKEN","scopes":{}}}}}}}`
