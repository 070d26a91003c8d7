package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/store/postgres/postgrestest"
	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/wire"
)

// A teller is an upstream whose tool asks who it is for, and then acts.
type teller struct {
	mu    sync.Mutex
	asked int
	acted []string
}

func (s *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if err != nil || !m.IsRequest() {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result := `{"code":-32601,"message":"method not found"}`
	switch m.Method {
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	case "tools/list":
		result = `{"resultType":"complete","tools":[{"name":"act","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`
	case "tools/call":
		if name, ok := wire.String(wire.Path(m.Params, "inputResponses", "who", "content", "name")); ok {
			s.acted = append(s.acted, name)
			result = `{"resultType":"complete","content":[{"type":"text","text":"did it for ` + name + `"}]}`
			break
		}
		s.asked++
		result = `{"resultType":"input_required","requestState":"x","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"For whom?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}}}`
	}
	member := "result"
	if strings.HasPrefix(result, `{"code"`) {
		member = "error"
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, member, result)
}

func (s *teller) counts() (asked int, acted string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, strings.Join(s.acted, " ")
}

// A turn is what a client of the stateless era gets that can be asked.
type turn struct {
	Result struct {
		ResultType, RequestState string
		InputRequests            map[string]json.RawMessage
		Content                  []struct{ Text string }
		StructuredContent        struct{ Code string }
	}
	Error *wire.Error
}

func (c raw) turn(t *testing.T, args, more string) (a turn) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t__act","arguments":` + args + more +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
	_, b, err := c.post(body, modernHeader("t__act"))
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		t.Fatalf("%s, %v", b, err)
	}
	return a
}

func answers(state, name string) string {
	return `,"requestState":` + str(state) + `,"inputResponses":{"who":{"action":"accept","content":{"name":` + str(name) + `}}}`
}

// A client that is asked through one gateway, and comes back to another on the same
// database, meets its call; where the one that held it was killed meanwhile, it learns
// that nobody knows, and nothing is run again.
func TestHeldCallsOnTwoGateways(t *testing.T) {
	t.Parallel()
	s := &teller{}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	var g [2]*stage.Gateway
	var c [2]raw
	g[0] = stage.NewOn(t, postgrestest.New(t).Database(t))
	g[1] = g[0].Join(t)
	for i := range g {
		g[i].Write("sallyport.yaml", g[i].Config(stage.Servers(map[string]stage.Server{"t": {URL: h.URL}})))
		g[i].Write("tools/act.yaml", "server: t\ntool: act\nrisk: high\n")
		g[i].Start("t")
		c[i] = newRaw(t, g[i])
	}
	first := c[0].turn(t, `{"n":1}`, "")
	if first.Result.ResultType != "input_required" || first.Result.InputRequests["who"] == nil {
		t.Fatalf("not asked: %+v", first)
	}
	if a := c[1].turn(t, `{"n":2}`, answers(first.Result.RequestState, "eve")); a.Error == nil || a.Error.Code != wire.CodeInvalidParams {
		t.Errorf("with other arguments: %+v", a)
	}
	if a := c[1].turn(t, `{"n":1}`, answers(first.Result.RequestState, "ann")); len(a.Result.Content) == 0 || a.Result.Content[0].Text != "did it for ann" {
		t.Errorf("at the other gateway: %+v", a)
	}
	for i := range c {
		if a := c[i].turn(t, `{"n":1}`, answers(first.Result.RequestState, "again")); a.Error == nil || a.Error.Code != wire.CodeInvalidParams {
			t.Errorf("once more at gateway %d: %+v", i, a)
		}
	}
	if asked, acted := s.counts(); asked != 1 || acted != "ann" {
		t.Errorf("asked %d, acted for %s", asked, acted)
	}

	lost := c[0].turn(t, `{"n":3}`, "")
	g[0].Kill()
	if a := c[1].turn(t, `{"n":3}`, answers(lost.Result.RequestState, "bob")); len(a.Result.Content) > 0 && a.Result.StructuredContent.Code != "outcome_unknown" || a.Error != nil && a.Error.Code != 503 {
		t.Errorf("while nobody knows that it is dead: %+v", a)
	}
	g[0].Start("t")
	c[0] = newRaw(t, g[0])
	for i := range c {
		if a := c[i].turn(t, `{"n":3}`, answers(lost.Result.RequestState, "bob")); a.Result.StructuredContent.Code != "outcome_unknown" {
			t.Errorf("after the restart, at gateway %d: %+v", i, a)
		}
	}
	if asked, acted := s.counts(); asked != 2 || acted != "ann" {
		t.Errorf("asked %d, acted for %s: something ran twice", asked, acted)
	}
	// The control: a call of its own goes through.
	next := c[0].turn(t, `{"n":3}`, "")
	if a := c[0].turn(t, `{"n":3}`, answers(next.Result.RequestState, "bob")); len(a.Result.Content) == 0 || a.Result.Content[0].Text != "did it for bob" {
		t.Errorf("the control: %+v", a)
	}
	g[1].Login()
	if r := g[1].Must("", "audit", "search", "--json"); !strings.Contains(r.Out, `"asked"`) || !strings.Contains(r.Out, `"continues"`) || strings.Contains(r.Out, "For whom?") {
		t.Errorf("the record: %.2000s", r.Out)
	}
}
