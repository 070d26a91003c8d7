package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/test/stage"
)

// A taskAnswer is what a client reads of a task.
type taskAnswer struct {
	Status string // of HTTP
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
	Result struct {
		ResultType, TaskID, Status, StatusMessage string
		CreatedAt, LastUpdatedAt                  time.Time
		TTLMs                                     *int
		PollIntervalMs                            int
		Result                                    *struct {
			IsError bool
			Content []struct{ Text string }
		}
		StructuredContent struct{ Code, Ticket string }
		InputRequests     map[string]json.RawMessage
	}
}

const takesTasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`

// ask sends a request of the stateless era; name is what Mcp-Name says.
func (c raw) ask(t *testing.T, capabilities, method, name, params string) (a taskAnswer) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":` + str(method) + `,"params":{` + params +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{` + capabilities + `}}}}`
	h, b, err := c.post(body, map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name})
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		t.Fatalf("%s: %s, %v", method, b, err)
	}
	a.Status = h.Get("Status")
	return a
}

// taskOfApproval: for a client that takes tasks, a call that waits for a human
// is one. Without the extension it never is.
func taskOfApproval(t *testing.T, g *stage.Gateway, c raw, ledger *stage.Ledger) {
	call := func(args, capabilities string) taskAnswer {
		return c.ask(t, capabilities, "tools/call", "a__transfer", `"name":"a__transfer","arguments":`+args)
	}
	get := func(c raw, id string) taskAnswer { return c.ask(t, takesTasks, "tasks/get", id, `"taskId":`+str(id)) }
	args := `{"to":"task"}`
	if a := call(args, ""); a.Result.ResultType != "complete" || a.Result.StructuredContent.Code != "approval_pending" {
		t.Errorf("a client without tasks: %+v", a)
	}
	made := call(args, takesTasks).Result
	if made.ResultType != "task" || made.Status != "working" || made.TTLMs != nil || made.PollIntervalMs < 500 || time.Since(made.CreatedAt) > time.Minute || made.CreatedAt.After(time.Now()) {
		t.Fatalf("the task: %+v", made)
	}
	if a := get(c, made.TaskID); a.Result.ResultType != "complete" || a.Result.Status != "working" || !strings.Contains(a.Result.StatusMessage, "human") || !a.Result.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("before the decision: %+v", a)
	}
	refusedTasks(t, g, c, made.TaskID)
	if a := c.ask(t, takesTasks, "tasks/update", made.TaskID, `"inputResponses":{},"taskId":`+str(made.TaskID)); a.Error == nil || a.Error.Code != -32602 || !strings.Contains(a.Error.Message, "asks its client nothing") {
		t.Errorf("answers that nobody asked for: %+v", a)
	}
	ticket, _, _ := strings.Cut(made.TaskID, ".")
	g.Must("", "approvals", "approve", ticket)
	for range 2 {
		a := get(c, made.TaskID).Result
		if a.Status != "completed" || a.Result == nil || a.Result.IsError || a.Result.Content[0].Text != "paid "+args {
			t.Errorf("after the decision: %+v", a)
		}
		const week = 7 * 24 * time.Hour // idempotency.retention, from its end on
		if kept := time.Duration(deref(a.TTLMs)) * time.Millisecond; kept < week || kept > week+time.Hour || !a.CreatedAt.Add(kept).Equal(a.LastUpdatedAt.Add(week).Truncate(time.Millisecond)) {
			t.Errorf("it is kept for %v, from %v to %v", kept, a.CreatedAt, a.LastUpdatedAt)
		}
	}
	if n := ledger.Count(args); n != 1 {
		t.Errorf("executed %d times", n)
	}
	// However often it is looked at, what is over was over at one time, and is kept from then on.
	over := func(id string) {
		t.Helper()
		first, second := get(c, id).Result, get(c, id).Result
		if first.TTLMs == nil || !first.LastUpdatedAt.Equal(second.LastUpdatedAt) || first.LastUpdatedAt.Before(first.CreatedAt.Add(-time.Second)) {
			t.Errorf("it ended at %v, and at %v; it is kept for %v", first.LastUpdatedAt, second.LastUpdatedAt, first.TTLMs)
		}
	}
	// Rejected: the task is complete, and its result is the refusal.
	no := call(`{"to":"task-no"}`, takesTasks).Result
	ticket, _, _ = strings.Cut(no.TaskID, ".")
	g.Must("", "approvals", "reject", ticket)
	if a := get(c, no.TaskID).Result; a.Status != "completed" || a.Result == nil || !a.Result.IsError || !strings.Contains(fmt.Sprint(a.Result.Content), "rejected") {
		t.Errorf("rejected: %+v", a)
	}
	over(no.TaskID)
	// Cancelled: nobody can approve it any more.
	gone := call(`{"to":"task-gone"}`, takesTasks).Result
	for range 2 {
		if a := c.ask(t, takesTasks, "tasks/cancel", gone.TaskID, `"taskId":`+str(gone.TaskID)); a.Error != nil || a.Result.ResultType != "complete" {
			t.Errorf("cancel: %+v", a)
		}
	}
	ticket, _, _ = strings.Cut(gone.TaskID, ".")
	if r := g.Run("", "approvals", "approve", ticket); r.Code != 3 {
		t.Errorf("approving what was cancelled: %s", r)
	}
	if a := get(c, gone.TaskID).Result; a.Status != "cancelled" || a.Result != nil || !strings.Contains(a.StatusMessage, "taken back") || ledger.Count(`{"to":"task-gone"}`)+ledger.Count(`{"to":"task-no"}`) != 0 {
		t.Errorf("cancelled: %+v", a)
	}
	over(gone.TaskID)
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// taskThatRuns: once the call that was approved runs, cancelling its task ends it.
func taskThatRuns(t *testing.T, g *stage.Gateway, c raw, ledger *stage.Ledger) {
	args := `{"n":600000,"to":"task-runs"}`
	id := c.ask(t, takesTasks, "tools/call", "a__transfer", `"name":"a__transfer","arguments":`+args).Result.TaskID
	ticket, _, _ := strings.Cut(id, ".")
	g.Must("", "approvals", "approve", ticket)
	get := func() taskAnswer { return c.ask(t, takesTasks, "tasks/get", id, `"taskId":`+str(id)) }
	answered := make(chan bool)
	go func() {
		get() // runs it
		close(answered)
	}()
	await.That(t, "it runs", func() bool { return ledger.Count(args) == 1 })
	if a := c.ask(t, takesTasks, "tasks/cancel", id, `"taskId":`+str(id)); a.Error != nil || a.Result.ResultType != "complete" {
		t.Errorf("cancel: %+v", a)
	}
	await.That(t, "its server is told", func() bool { return ledger.Count("cancelled a "+args) == 1 })
	<-answered
	await.That(t, "it ends", func() bool { return get().Result.Status != "working" })
	if a := get().Result; a.Status != "completed" || a.Result == nil || !a.Result.IsError || !strings.Contains(fmt.Sprint(a.Result.Content), "outcome_unknown") {
		t.Errorf("it may have acted: %+v", a)
	}
}

// refusedTasks: without the extension, by another agent, or by a wrong id,
// nothing is told and nothing is taken back.
func refusedTasks(t *testing.T, g *stage.Gateway, c raw, id string) {
	t.Helper()
	g.Must("", "agents", "add", "mallory")
	mallory := raw{url: c.url, token: g.Token("mallory")}
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		a := c.ask(t, "", method, id, `"taskId":`+str(id))
		if a.Status != "400" || a.Error == nil || a.Error.Code != -32021 || !strings.Contains(string(a.Error.Data), "io.modelcontextprotocol/tasks") {
			t.Errorf("%s without the extension: %+v", method, a)
		}
		for _, wrong := range []struct {
			who raw
			id  string
		}{{mallory, id}, {c, "tkt_none.abc"}, {c, "x"}, {c, strings.Repeat("a", 200)}, {c, "../x.1"}} {
			if a := wrong.who.ask(t, takesTasks, method, wrong.id, `"taskId":`+str(wrong.id)); a.Error == nil || a.Error.Code != -32602 {
				t.Errorf("%s of %.40q: %+v", method, wrong.id, a)
			}
		}
		if a := c.ask(t, takesTasks, method, "other", `"taskId":`+str(id)); a.Status != "400" || a.Error == nil || a.Error.Code != -32020 {
			t.Errorf("%s with another Mcp-Name: %+v", method, a)
		}
	}
}
