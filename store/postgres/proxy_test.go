package postgres_test

import (
	"bytes"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store/postgres/postgrestest"
)

// A proxy stands before a server and breaks connections at a COMMIT.
type proxy struct {
	server string // socket
	cut    atomic.Int32
	closed atomic.Bool // no connection gets through
}

// What to do at the next COMMIT.
const (
	through  = iota
	unsent   // break before the server sees it
	unheard  // break when the server has done it, before the client hears
	vanished // the same, and let nobody in again
)

// before returns the proxy and the URL of the database behind it.
func before(t *testing.T, server *postgrestest.Server, raw string) (*proxy, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "px")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &proxy{server: filepath.Join(server.Dir, ".s.PGSQL.5432")}
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = url.Values{"host": {dir}}.Encode()
	return p, u.String()
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if p.closed.Load() {
		return
	}
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var deaf atomic.Bool
	go func() { // what the server says
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err == nil && !deaf.Load() {
				_, err = client.Write(b[:n])
			}
			if err != nil || deaf.Load() {
				client.Close()
				server.Close()
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	var name []byte
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if i := bytes.Index(b[:n], []byte("\x00COMMIT\x00")); i >= 0 { // it is prepared, under this name
			start := bytes.LastIndexByte(b[:i], 'P') + 5
			name = slices.Concat([]byte{0}, b[start:i+1])
		}
		if name != nil && bytes.Contains(b[:n], name) { // behind the empty name of a portal: it is executed
			switch p.cut.Swap(through) {
			case unsent:
				return
			case vanished:
				p.closed.Store(true)
				deaf.Store(true)
			case unheard:
				deaf.Store(true)
			}
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

// A connection that breaks in the middle of a commit leaves open whether it
// took. The gateway finds out, and neither repeats nor loses a change.
func TestCommitWithoutAnswer(t *testing.T) {
	server := running(t)
	p := newPlace(t, server)
	var px *proxy
	px, p.url = before(t, server, p.url)
	s := p.start(t, time.Hour)
	intents := func(k string) int {
		t.Helper()
		return len(must[[]audit.Row](t)(audit.Search(t.Context(), s, audit.Filter{CallID: k, Kind: sallyport.EntryIntent}, 10)))
	}
	for k, cut := range map[string]int32{"through": through, "unsent": unsent, "unheard": unheard} {
		px.cut.Store(cut)
		fence, err := s.Begin(t.Context(), begin(k))
		if err != nil || intents(k) != 1 || stateOf(t, s, k) != sallyport.Executing || px.cut.Load() != through {
			t.Errorf("%s: %v, %d intents", k, err, intents(k))
		}
		px.cut.Store(cut)
		if err := s.Finish(t.Context(), finish(k, fence)); err != nil || stateOf(t, s, k) != sallyport.Done {
			t.Errorf("%s: Finish: %v, it is %s", k, err, stateOf(t, s, k))
		}
	}
	px.cut.Store(vanished)
	_, err := s.Begin(t.Context(), begin("vanished"))
	e, _ := errors.AsType[*sallyport.Error](err)
	if e == nil || e.Code != sallyport.Unavailable || !strings.Contains(e.Err.Error(), "is not known") {
		t.Errorf("vanished: %v", err)
	}
	px.closed.Store(false)
	if n := intents("vanished"); n != 1 || stateOf(t, s, "vanished") != sallyport.Executing { // as the caller was told: nobody knows
		t.Errorf("vanished: %d intents, it is %s", n, stateOf(t, s, "vanished"))
	}
	if _, err := s.Begin(t.Context(), begin("vanished")); sallyport.CodeOf(err) != sallyport.InFlight {
		t.Errorf("asked again: %v", err)
	}
	rep := must[audit.Report](t)(audit.Verify(t.Context(), s, audit.Options{PublicKeys: p.PublicKeys(), Head: p.Heads(t)}))
	if !rep.OK() {
		t.Error(rep.Problems)
	}
}
