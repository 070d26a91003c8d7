package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver"
	"sallyport.dev/sallyport/wire"
)

// asker is a fake gateway whose tool "ask" asks one question, and answers with what
// the client said.
type asker struct{ *fakeGateway }

func (g asker) Call(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
	if req.Operation.Target != "ask" {
		return g.fakeGateway.Call(ctx, req)
	}
	if req.Ask == nil {
		return sallyport.Result{CallID: "call-1", Content: text(fmt.Sprintf("cannot ask, level %q", req.Level))}, nil
	}
	a, err := req.Ask(ctx, sallyport.Inquiry{Questions: []sallyport.Question{
		{Key: "k", Method: sallyport.AskUser, Params: json.RawMessage(`{"mode":"form","message":"Who?","requestedSchema":{"type":"object"}}`)},
	}})
	if err != nil {
		return sallyport.Result{CallID: "call-1"}, &sallyport.Error{Code: sallyport.Canceled, Step: sallyport.Execute, Message: "canceled", Err: err}
	}
	return sallyport.Result{CallID: "call-1", Content: text(string(a[0].Result) + a[0].Refusal)}, nil
}

func newAskingDoor(t *testing.T) *door {
	return newDoor(t, func(o *mcpserver.Options) { o.Gateway = asker{o.Gateway.(*fakeGateway)} })
}

// session opens a session of a client that can be asked.
func (d *door) session(cred, version, capabilities string) string {
	d.t.Helper()
	res, body := d.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":`+capabilities+`}}`, "Authorization: Bearer "+cred)
	id := res.Header.Get("Mcp-Session-Id")
	if id == "" {
		d.t.Fatalf("initialize: %s", body)
	}
	return "Mcp-Session-Id: " + id
}

// question calls "ask" and returns the question's id, and the rest of the stream.
func (d *door) question(cred, session string) (id, params string, rest *bufio.Reader) {
	d.t.Helper()
	res, err := d.http.Client().Do(d.newRequest(context.Background(), "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`, "Authorization: Bearer "+cred, session))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = res.Body.Close() })
	rest = bufio.NewReader(res.Body)
	for {
		line, err := rest.ReadString('\n')
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "\n" { // the first has an id alone
			m, err := wire.ParseMessage([]byte(data))
			if err != nil || !m.IsRequest() {
				d.t.Fatalf("%s: %v", data, err)
			}
			id, _ = wire.String(m.ID)
			return id, string(m.Params), rest
		}
		if err != nil {
			d.t.Fatalf("%q, %v", line, err)
		}
	}
}

func answerTo(id string) string {
	return `{"jsonrpc":"2.0","id":` + string(wire.Quote(id)) + `,"result":{"action":"accept"}}`
}

// A question is put at once, on the call's own stream. Its answer is good once, from
// its own session and principal; ids cannot be guessed.
func TestAnswersBelongToTheirSession(t *testing.T) {
	d := newAskingDoor(t)
	mine := d.session("alice", "2025-11-25", `{"elicitation":{}}`)
	other := d.session("alice", "2025-11-25", `{"elicitation":{}}`)
	bobs := d.session("bob", "2025-11-25", `{"elicitation":{}}`)
	id, _, rest := d.question("alice", mine)
	id2, _, _ := d.question("alice", other)
	if len(id) < 26 || id == id2 {
		t.Errorf("ids %q and %q", id, id2)
	}
	for what, lines := range map[string][]string{
		"another session":     {other},
		"another principal's": {bobs, "Authorization: Bearer bob"},
		"another principal":   {mine, "Authorization: Bearer bob"},
		"no session":          nil,
		"no token":            {mine, "-Authorization"},
		"a stateless client":  {"Mcp-Protocol-Version: 2026-07-28"},
	} {
		if res, body := d.post(answerTo(id), lines...); res.StatusCode < 400 {
			t.Errorf("%s: %d %s", what, res.StatusCode, body)
		}
	}
	for _, wrong := range []string{"ask-1", "", id + "x", "k"} {
		if res, body := d.post(answerTo(wrong), mine); res.StatusCode != http.StatusBadRequest {
			t.Errorf("id %q: %d %s", wrong, res.StatusCode, body)
		}
	}
	if res, body := d.post(`{"jsonrpc":"2.0","id":1,"result":{}}`, mine); res.StatusCode != http.StatusBadRequest {
		t.Errorf("the call's own id: %d %s", res.StatusCode, body)
	}
	if res, body := d.post(answerTo(id), mine); res.StatusCode != http.StatusAccepted || body != "" {
		t.Errorf("the control: %d %s", res.StatusCode, body)
	}
	if res, _ := d.post(answerTo(id), mine); res.StatusCode != http.StatusBadRequest {
		t.Errorf("once more: %d", res.StatusCode)
	}
	var all strings.Builder
	if _, err := rest.WriteTo(&all); err != nil || !strings.Contains(all.String(), `{\"action\":\"accept\"}`) {
		t.Errorf("%q, %v", all.String(), err)
	}
}

// A client is asked only what it can be asked, in the words of its revision, and where
// it can hear.
func TestWhoIsAsked(t *testing.T) {
	d := newAskingDoor(t)
	for _, tt := range []struct {
		version, capabilities, accept, want string
	}{
		{"2025-11-25", `{}`, "", `cannot ask, level \"info\"`},
		{"2025-11-25", `{"elicitation":{}}`, "Accept: application/json", `cannot ask, level \"\"`},
	} {
		s := d.session("alice", tt.version, tt.capabilities)
		lines := []string{s}
		if tt.accept != "" {
			lines = append(lines, tt.accept)
		}
		if _, body := d.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`, lines...); !strings.Contains(body, tt.want) {
			t.Errorf("%+v: %s", tt, body)
		}
	}
	for version, want := range map[string]bool{"2025-11-25": true, "2025-06-18": false} {
		if _, params, _ := d.question("alice", d.session("alice", version, `{"elicitation":{}}`)); strings.Contains(params, `"mode"`) != want {
			t.Errorf("%s: %s", version, params)
		}
	}
}

// A call that is cancelled takes its question back, and so does the end of the session.
func TestQuestionsAreTakenBack(t *testing.T) {
	d := newAskingDoor(t)
	s := d.session("alice", "2025-11-25", `{"elicitation":{}}`)
	id, _, rest := d.question("alice", s)
	if res, _ := d.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, s); res.StatusCode != http.StatusAccepted {
		t.Fatal(res.StatusCode)
	}
	var all strings.Builder
	if _, err := rest.WriteTo(&all); err != nil || !strings.Contains(all.String(), `"method":"notifications/cancelled","params":{"requestId":"`+id+`"}`) {
		t.Errorf("%q, %v", all.String(), err)
	}
	if res, _ := d.post(answerTo(id), s); res.StatusCode != http.StatusBadRequest {
		t.Errorf("an answer afterwards: %d", res.StatusCode)
	}
	id, _, _ = d.question("alice", s)
	d.do(d.newRequest(context.Background(), "DELETE", "/mcp", "", s))
	if res, _ := d.post(answerTo(id), s); res.StatusCode != http.StatusNotFound {
		t.Errorf("after the session: %d", res.StatusCode)
	}
}

// What a stateless client says beside its call must be what the protocol says.
func TestReturnsThatAreMalformed(t *testing.T) {
	d := newDoor(t, nil)
	for _, params := range []string{`"inputResponses":null`, `"inputResponses":[]`, `"inputResponses":{"a":12345}`, `"requestState":7`, `"requestState":""`, `"requestState":null`} {
		body, h := modern("1", "tools/call", `"name":"echo",`+params)
		if _, got := d.post(body, h...); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s: %s", params, got)
		}
	}
	body, h := modern("1", "tools/call", `"name":"echo","requestState":"s","inputResponses":{"a":{}}`)
	if _, got := d.post(body, h...); !strings.Contains(got, `"resultType":"complete"`) || d.gw.last(t).State != "s" || len(d.gw.last(t).Answers) != 1 {
		t.Errorf("the control: %s, %+v", got, d.gw.last(t))
	}
	level := strings.Replace(body, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"loud",`, 1)
	if _, got := d.post(level, h...); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("a level that is none: %s", got)
	}
}
