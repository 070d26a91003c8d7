package suite

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/stage"
	"sallyport.dev/sallyport/wire"
)

// a slower server than limits.task, so that its calls become tasks.
const slower = 400 * time.Millisecond

// fixtures is a server with the tools that the suite's scenarios of tasks call. It makes
// no tasks itself.
func fixtures(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := wire.ParseMessage(body)
	if err != nil || !m.IsRequest() {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	answer := `"error":{"code":-32601,"message":"method not found"}`
	switch m.Method {
	case "server/discover":
		answer = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	case "tools/list":
		var tools []string
		for _, name := range []string{"greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input", "test_tool_with_task"} {
			tools = append(tools, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
		}
		answer = `"result":{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `],"ttlMs":0,"cacheScope":"private"}`
	case "tools/call":
		answer = fixture(r, m.Params)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
}

func fixture(r *http.Request, params json.RawMessage) string {
	name, _ := wire.String(wire.Member(params, "name"))
	answers := wire.Member(params, "inputResponses")
	form := `{"method":"elicitation/create","params":{"mode":"form","message":"Well?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"confirm":{"type":"boolean"},"user_name":{"type":"string"}}}}}`
	asks := func(keys ...string) string {
		for i, k := range keys {
			keys[i] = `"` + k + `":` + form
		}
		return `"result":{"resultType":"input_required","inputRequests":{` + strings.Join(keys, ",") + `},"requestState":"s"}`
	}
	says := func(text string) string {
		return `"result":{"resultType":"complete","content":[{"type":"text","text":` + string(wire.Quote(text)) + `}]}`
	}
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	switch {
	case name == "greet":
		who, _ := wire.String(wire.Path(params, "arguments", "name"))
		return says("Hello, " + who + "!")
	case name == "slow_compute":
		var args struct{ Seconds float64 }
		_ = json.Unmarshal(wire.Member(params, "arguments"), &args)
		wait(time.Duration(args.Seconds * float64(time.Second)))
		return says("computed")
	case name == "test_tool_with_task" && answers == nil:
		return asks("user_name")
	}
	wait(slower)
	switch {
	case name == "failing_job":
		return strings.Replace(says("it failed"), `{"resultType"`, `{"isError":true,"resultType"`, 1)
	case name == "protocol_error_job":
		return `"error":{"code":-32603,"message":"it broke"}`
	case name == "confirm_delete" && answers == nil:
		return asks("confirm")
	case name == "multi_input" && answers == nil:
		return asks("first", "second")
	}
	return says("done with " + string(answers))
}

// otherwise are checks that the gateway does not meet, and why.
var otherwise = map[string]string{
	"sep-2663-tasks-get-status-failed":                         "a server's JSON-RPC error is a tool's error here, for a call that is waited for and for a task alike",
	"sep-2663-server-returns-missing-capability-when-required": "no tool needs tasks here: a client without them waits",
}

// What the suite has about tasks and does not score: calls that take long, as tasks.
func TestTaskScenarios(t *testing.T) {
	if os.Getenv("SALLYPORT_SOAK") == "" && os.Getenv("SALLYPORT_CONFORMANCE_REPORT") == "" {
		t.Skip("not scored, and slow: make conformance")
	}
	s := New(t)
	h := httptest.NewServer(http.HandlerFunc(fixtures))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	g := stage.New(t)
	Behind(g)
	g.Write("sallyport.yaml", g.Config("limits: {rate: 100000, burst: 100000, concurrency: 512, bytes: 1GiB, task: 100ms}\n"+
		stage.Servers(map[string]stage.Server{"tasks": {URL: h.URL}})+"profiles: {tasks: {servers: [tasks], bare: true}}\n"))
	for _, name := range []string{"greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input", "test_tool_with_task"} {
		g.Write("tools/"+name+".yaml", "server: tasks\ntool: "+name+"\nread_only: true\n")
	}
	g.Start("tasks")
	checked := 0
	for _, sc := range s.Server("2026-07-28", Forward(t, g)+"/mcp/tasks").Scenarios {
		if !strings.HasPrefix(sc.Name, "tasks-") || sc.Name == "tasks-status-notifications" { // which checks nothing yet
			continue
		}
		checked += sc.passed()
		for _, c := range sc.Failed() {
			if otherwise[c.ID] == "" {
				t.Errorf("%s: %s: %s", sc.Name, c.ID, c.ErrorMessage)
			}
		}
	}
	if checked < 25 {
		t.Errorf("%d checks passed", checked)
	}
	t.Logf("%d checks of tasks passed", checked)
}
