package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

// Two sessions use the same ids at the same time: no answer crosses over.
func TestFO12_SameIDInTwoSessions(t *testing.T) {
	d := newDoor(t, nil)
	sessions := []string{d.open("alice"), d.open("bob")}
	creds := []string{"Authorization: Bearer alice", "Authorization: Bearer bob"}
	var wg sync.WaitGroup
	for who := range 2 {
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				session, cred := d.open([]string{"alice", "bob"}[who]), creds[who]
				for i := range 125 {
					marker := fmt.Sprintf("m-%d-%d", who, i)
					_, body := d.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"marker":"`+marker+`"}}}`, session, cred)
					if !strings.Contains(body, `"structuredContent":{"marker":"`+marker+`"}`) || !strings.Contains(body, `"id":1,`) {
						t.Errorf("%s: %s", marker, body)
					}
				}
			}()
		}
	}
	wg.Wait()

	// Both in flight under the same id, at the same time, to be sure.
	answers := make(chan string, 2)
	for who := range 2 {
		go func() {
			_, body := d.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"who":%d}}}`, who), sessions[who], creds[who])
			answers <- body
		}()
	}
	<-d.gw.started
	<-d.gw.started
	close(d.gw.release)
	got := <-answers + <-answers
	if !strings.Contains(got, `slow {\"who\":0}`) || !strings.Contains(got, `slow {\"who\":1}`) {
		t.Errorf("answers: %s", got)
	}
}

// A second request with an id that is in flight is refused; the first goes on.
func TestFO12_DuplicateIDInOneSession(t *testing.T) {
	d := newDoor(t, nil)
	session := d.open("alice")
	call := func(id, args string) string {
		_, body := d.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"slow","arguments":`+args+`}}`, session)
		return body
	}
	first, second := make(chan string), make(chan string)
	go func() { first <- call(`"a"`, `{"n":1}`) }()
	<-d.gw.started
	for _, id := range []string{`"a"`, `"\u0061"`} {
		if got := call(id, `{"n":2}`); !strings.Contains(got, `"code":-32600`) || !strings.Contains(got, `"id":`+id) {
			t.Errorf("the second: %s", got)
		}
	}
	go func() { second <- call(`"b"`, `{"n":3}`) }()
	<-d.gw.started
	close(d.gw.release)
	if got := <-first; !strings.Contains(got, `slow {\"n\":1}`) {
		t.Errorf("the first: %s", got)
	}
	if got := <-second; !strings.Contains(got, `slow {\"n\":3}`) {
		t.Errorf("another id: %s", got)
	}
	if got := call(`"a"`, `{"n":4}`); !strings.Contains(got, `slow {\"n\":4}`) {
		t.Errorf("the id is free again: %s", got)
	}
}

// A reader writes an answer to a client that sends its next request, with the same id,
// as soon as it has read the last byte: before the handler returns.
type reader struct {
	*httptest.ResponseRecorder
	next func()
}

func (r *reader) Write(b []byte) (int, error) {
	n, err := r.ResponseRecorder.Write(b)
	if next := r.next; strings.Contains(r.Body.String(), `"id":1`) && next != nil {
		r.next = nil
		next()
	}
	return n, err
}

// An id is free again as soon as its answer is there.
func TestFO12_IDIsFreeOnceItsAnswerIsRead(t *testing.T) {
	d := newDoor(t, nil)
	session := d.open("alice")
	for _, c := range []struct{ method, params, accept string }{
		{"ping", `{}`, ""}, {"tools/list", `{}`, ""}, {"tools/call", `{"name":"echo","arguments":{}}`, ""}, {"tools/call", `{"name":"denied"}`, ""},
		{"tools/call", `{"name":"echo","arguments":{}}`, "Accept: text/event-stream"}, {"resources/read", `{"uri":"sallyport:a/x:1"}`, ""}, {"prompts/get", `{"name":"a__hi"}`, ""},
	} {
		extra := []string{session}
		if c.accept != "" {
			extra = append(extra, c.accept)
		}
		send := func(w http.ResponseWriter) {
			ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, d.http.Listener.Addr()) // as a connection has it
			d.server.ServeHTTP(w, d.newRequest(ctx, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":`+c.params+`}`, extra...))
		}
		second := &reader{ResponseRecorder: httptest.NewRecorder()}
		first := &reader{httptest.NewRecorder(), func() { send(second) }}
		if send(first); first.next != nil {
			t.Errorf("%s %s: there was no second request: %s", c.method, c.params, first.Body)
		}
		if strings.Contains(second.Body.String(), "in flight") || second.Body.String() != first.Body.String() && c.accept == "" {
			t.Errorf("%s %s: %s", c.method, c.params, second.Body)
		}
	}
}

func TestFO13_IDsComeBackAsTheyWere(t *testing.T) {
	d := newDoor(t, nil)
	session := d.open("alice")
	for _, id := range []string{
		`1`, `"1"`, `"001"`, `""`, `9007199254740993`, `18446744073709551616`, `-5`, `0`, `-0`,
		`"6f1c1d3e-8a53-4a2b-9d2e-111111111111"`, `"\u0041\/é"`,
	} {
		for _, method := range []string{"ping", "tools/list", "tools/call"} {
			res, body := d.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{"name":"echo"}}`, session)
			if !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":`+id+`,"result":`) {
				t.Errorf("%s with id %s: %d %s", method, id, res.StatusCode, body)
			}
		}
		req, headers := modern(id, "tools/call", `"name":"echo"`)
		if _, body := d.post(req, headers...); !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":`+id+`,"result":`) {
			t.Errorf("modern, id %s: %s", id, body)
		}
	}
	for _, id := range []string{`null`, `1.5`, `1e3`, `1.0`, `true`, `{}`, `[1]`} {
		for _, extra := range []string{session, "X-None: 1"} {
			req, headers := modern(id, "tools/call", `"name":"echo"`)
			res, body := d.post(req, append(headers, extra)...)
			if res.StatusCode != 400 || !strings.Contains(body, `"code":-32600`) {
				t.Errorf("id %s: %d %s", id, res.StatusCode, body)
			}
		}
	}
}

func TestFO13_OneAndStringOneTogether(t *testing.T) {
	d := newDoor(t, nil)
	session := d.open("alice")
	answers := map[string]chan string{`1`: make(chan string, 1), `"1"`: make(chan string, 1)}
	for id, c := range answers {
		go func() {
			_, body := d.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"slow","arguments":{"id":`+id+`}}}`, session)
			c <- body
		}()
		<-d.gw.started
	}
	close(d.gw.release)
	for id, c := range answers {
		want := string(wire.Quote(`slow {"id":` + id + `}`))
		if got := <-c; !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+id+`,`) || !strings.Contains(got, want) {
			t.Errorf("id %s: %s", id, got)
		}
	}
}

func TestFO27_NumbersPassVerbatim(t *testing.T) {
	d := newDoor(t, nil)
	session := d.open("alice")
	numbers := `[9007199254740993,9223372036854775807,-9223372036854775808,18446744073709551615,1e400,0.1,1.0,-0,12345678901234567890.123456789]`
	for _, era := range []string{"modern", "legacy"} {
		body, headers := modern("1", "tools/call", `"name":"echo","arguments":{"n":`+numbers+`}`)
		if era == "legacy" {
			body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":` + numbers + `}}}`
			headers = []string{session}
		}
		_, got := d.post(body, headers...)
		if args := string(d.gw.last(t).Operation.Args); args != `{"n":`+numbers+`}` {
			t.Errorf("%s: the gateway got %s", era, args)
		}
		result := wire.Member(json.RawMessage(got), "result")
		if sc := string(wire.Path(result, "structuredContent", "n")); sc != numbers {
			t.Errorf("%s: structuredContent %s", era, sc)
		}
		if !strings.Contains(got, string(wire.Quote(`{"n":`+numbers+`}`))) {
			t.Errorf("%s: text block in %s", era, got)
		}
	}
}

// What the request says about a call reaches the gateway.
func TestCallRequest(t *testing.T) {
	d := newDoor(t, func(o *mcpserver.Options) {})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	body, headers := modern("1", "tools/call", `"name":"echo","arguments":{ "a" : 1.0 }`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"dev.sallyport/saga":"saga_1","dev.sallyport/ticket":"tkt-1","dev.sallyport/idempotencyKey":"k\u0031","traceparent":"`+trace+`",`, 1)
	res, got := d.post(body, append(headers, "Idempotency-Key: k1", "Traceparent: 00-bad")...)
	req := d.gw.last(t)
	if res.StatusCode != 200 || req.Key != "k1" || req.Ticket != "tkt-1" || req.Saga != "saga_1" || req.Trace != trace || req.Size != len(body) ||
		req.Credential != "alice" || req.Door != "mcp" || req.Profile != "" || string(req.Operation.Args) != `{ "a" : 1.0 }` {
		t.Errorf("%s\n%+v", got, req)
	}
	body, headers = modern("1", "tools/call", `"name":"echo"`)
	d.post(body, append(headers, "Idempotency-Key: k2", "Traceparent: "+trace)...)
	if req = d.gw.last(t); req.Key != "k2" || req.Trace != trace || req.Operation.Args != nil {
		t.Errorf("from headers: %+v", req)
	}
}
