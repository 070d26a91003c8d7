package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
	"sallyport.dev/sallyport/wire"
)

// tasked is a server that makes tasks. It tells of a task what is next in states, and
// the last of them again and again.
type tasked struct {
	web
	legacy  bool
	states  []string                         // members of a task, without its id
	result  string                           // of tasks/result; legacy
	refuse  func(m wire.Message) *wire.Error // of requests about tasks
	plainly *wire.Error                      // to a call without a task; legacy

	mu      sync.Mutex
	gets    int
	seen    []string // methods of requests about tasks, with what they bring
	updates []string
}

const taskResult = `{"content":[{"type":"text","text":"done"}]}`

func newTasked(legacy bool, states ...string) *tasked {
	s := &tasked{legacy: legacy, states: states, result: `{"content":[{"type":"text","text":"done"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"tk"}}}`}
	s.modern = !legacy
	s.special = s.answer
	return s
}

func (s *tasked) methods() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.seen, " ")
}

// state is how the task is.
func (s *tasked) state() string {
	n := min(s.gets, len(s.states)-1)
	s.gets++
	return `"taskId":"tk","createdAt":"2026-11-30T10:00:00Z","lastUpdatedAt":"2026-11-30T10:00:00Z",` + s.states[n]
}

func (s *tasked) answer(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
	reply := wire.Message{ID: m.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method == "initialize":
		w.Header().Set(wire.HeaderSessionID, fmt.Sprint("s", s.session.Add(1)))
		reply.Result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"tasked","version":"1"}}`)
	case s.legacy && m.ID != nil && m.Method != "server/discover" && r.Header.Get(wire.HeaderSessionID) != fmt.Sprint("s", s.session.Load()):
		return false // as without tasks
	case m.Method == "tools/call" && s.legacy && wire.Member(m.Params, "task") == nil:
		if s.seen = append(s.seen, "plain"); s.plainly != nil {
			reply.Error = s.plainly
			break
		}
		reply.Result = []byte(text("no task"))
	case m.Method == "tools/call" && s.legacy:
		s.seen = append(s.seen, "call"+string(wire.Member(m.Params, "task")))
		reply.Result = []byte(`{"task":{"taskId":"tk","status":"working","ttl":1000,"pollInterval":60}}`)
	case m.Method == "tools/call" && !wire.IsObject(wire.Path(m.Params, "_meta", wire.MetaClientCapabilities, "extensions", "io.modelcontextprotocol/tasks")):
		reply.Result = []byte(text("no task"))
	case m.Method == "tools/call":
		s.seen = append(s.seen, "call")
		reply.Result = []byte(`{"resultType":"task","taskId":"tk","status":"working","ttlMs":null,"pollIntervalMs":60}`)
	case strings.HasPrefix(m.Method, "tasks/"):
		s.seen = append(s.seen, m.Method)
		id, _ := wire.String(wire.Member(m.Params, "taskId"))
		if id != "tk" || !s.legacy && (r.Header.Get(wire.HeaderName) != "tk" || !wire.IsObject(wire.Path(m.Params, "_meta", wire.MetaClientCapabilities, "extensions"))) {
			reply.Error = &wire.Error{Code: wire.CodeHeaderMismatch, Message: "no such request"}
		} else if s.refuse != nil {
			reply.Error = s.refuse(m)
		}
		if reply.Error == nil {
			reply.Result = s.task(m)
		}
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply.Append(nil))
	return true
}

func (s *tasked) task(m wire.Message) []byte {
	switch m.Method {
	case "tasks/get":
		return []byte(`{"resultType":"complete",` + s.state() + `}`)
	case "tasks/result":
		return []byte(s.result)
	case "tasks/update":
		s.updates = append(s.updates, string(wire.Member(m.Params, "inputResponses")))
	}
	return []byte(`{"resultType":"complete","taskId":"tk","status":"cancelled"}`)
}

func taskJob(name string) sallyport.Job {
	t := tool("s", name)
	t.ByTask = true
	return backendtest.Job(t, `{"x":1}`)
}

const (
	isWorking = `"status":"working","statusMessage":"half way"`
	isDone    = `"status":"completed","result":` + taskResult
)

// A call that its server makes a task of waits for the end of it, and passes on how it
// is going.
func TestTasksOfServers(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{true, false} {
		srv := newTasked(legacy, isWorking, isWorking, isDone)
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		job := taskJob("slow")
		var told []string
		job.Notify = func(n sallyport.Notice) { told = append(told, string(n.Params)) }
		out, err := b.Run(t.Context(), job)
		if err != nil || string(out.Content) != taskResult || out.IsError {
			t.Errorf("legacy %v: %s, %v", legacy, out.Content, err)
		}
		if len(told) != 1 || told[0] != `{"progress":0,"message":"half way"}` {
			t.Errorf("legacy %v: told %v", legacy, told)
		}
		want := "call tasks/get tasks/get tasks/get"
		if legacy {
			want = `call{"ttl":930000} tasks/get tasks/get tasks/get tasks/result` // the 30 seconds of the job, and a while longer
		}
		if got := srv.methods(); got != want {
			t.Errorf("legacy %v: %s", legacy, got)
		}
	}
}

// A task is asked for where the server takes the call in no other way, and nowhere else.
func TestTasksOnlyWhereTheyAreRequired(t *testing.T) {
	t.Parallel()
	srv := newTasked(true, isDone)
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
	if got := mustText(t, b, "s", "free", `{}`); got != "no task" || srv.methods() != "plain" {
		t.Errorf("%s: %s", got, srv.methods())
	}
	for _, code := range []int{wire.CodeMethodNotFound, wire.CodeInvalidRequest} { // it tells only now
		srv := newTasked(true, isDone)
		srv.plainly = &wire.Error{Code: code, Message: "it requires a task"}
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		if got := mustText(t, b, "s", "slow", `{}`); got != "done" || !strings.HasPrefix(srv.methods(), `plain call{"ttl":`) {
			t.Errorf("%d: %s: %s", code, got, srv.methods())
		}
	}
	none := &web{}
	b = open(t, options(), upstream.Config{Name: "s", URL: none.start(t)})
	if out, err := b.Run(t.Context(), taskJob("echo")); err != nil || strings.Contains(strings.Join(none.bodies, ""), `"task"`) {
		t.Errorf("a server without tasks was asked for one: %s, %v, %s", out.Content, err, none.bodies)
	}
}

// Whoever does not wait any more has the task cancelled.
func TestTasksAreCancelled(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{true, false} {
		for name, byCaller := range map[string]bool{"by the caller": true, "when its time is up": false} {
			srv := newTasked(legacy, isWorking)
			b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
			ctx, end := timed(t)
			if byCaller {
				ctx, end = context.WithCancel(t.Context())
			}
			job := taskJob("slow")
			job.Notify = func(sallyport.Notice) { end() }
			_, err := b.Run(ctx, job)
			if err == nil || errors.Is(err, sallyport.ErrNotExecuted) || byCaller != errors.Is(err, context.Canceled) {
				t.Errorf("legacy %v, %s: %v", legacy, name, err)
			}
			await.That(t, "the task is cancelled", func() bool { return strings.HasSuffix(srv.methods(), "tasks/cancel") })
			end()
		}
	}
}

// What became of a task that its server does not know, or calls failed, is not known,
// whatever the code of the error means for other requests.
func TestTasksThatAreLost(t *testing.T) {
	t.Parallel()
	no := func(code int) func(wire.Message) *wire.Error {
		return func(wire.Message) *wire.Error { return &wire.Error{Code: code, Message: "no"} }
	}
	for _, legacy := range []bool{true, false} {
		for name, srv := range map[string]*tasked{
			"unknown": {states: []string{isWorking}, refuse: no(-32602)}, "no method": {states: []string{isWorking}, refuse: no(-32601)},
			"no result": {states: []string{`"status":"completed","no":1`}}, "odd status": {states: []string{`"status":"resting"`}}, "cancelled": {states: []string{`"status":"cancelled","statusMessage":"no"`}},
			"failed": {states: []string{`"status":"failed","error":{"code":-32601,"message":"no"}`}, refuse: func(m wire.Message) *wire.Error {
				if m.Method == "tasks/result" {
					return &wire.Error{Code: -32601, Message: "no"}
				}
				return nil
			}},
		} {
			if legacy && name == "no result" { // which is asked for by itself
				continue
			}
			srv.legacy, srv.modern, srv.special = legacy, !legacy, srv.answer
			b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
			_, err := b.Run(t.Context(), taskJob("slow"))
			if sallyport.CodeOf(err) != sallyport.Upstream || errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(fmt.Sprint(err), "no") {
				t.Errorf("legacy %v, %s: %v", legacy, name, err)
			}
		}
	}
}

// A server that is away for a moment, or has another session now, still has the task.
func TestTasksOutliveConnections(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{true, false} {
		srv := newTasked(legacy, isWorking, isDone)
		busy := 0
		srv.refuse = func(wire.Message) *wire.Error {
			if busy++; busy == 1 {
				srv.session.Add(1) // known no more
			}
			if busy < 3 {
				return &wire.Error{Code: wire.CodeInternal, Message: "just now not"}
			}
			return nil
		}
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		if out, err := b.Run(t.Context(), taskJob("slow")); err != nil || string(out.Content) != taskResult {
			t.Errorf("legacy %v: %s, %v; %s", legacy, out.Content, err, srv.methods())
		}
		if n := strings.Count(srv.methods(), "call"); n != 1 {
			t.Errorf("legacy %v: called %d times", legacy, n)
		}
	}
}

// What a task asks is put to the call's client once, and goes back to the task.
func TestTasksThatAsk(t *testing.T) {
	t.Parallel()
	q := `"status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Which?"}}}`
	srv := newTasked(false, q, q, q, isWorking, isDone)
	b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
	job := taskJob("slow")
	asked := 0
	job.Ask = func(_ context.Context, qs []sallyport.Question) ([]sallyport.Answer, error) {
		asked += len(qs)
		return []sallyport.Answer{{Result: []byte(`{"action":"accept","content":{"a":1}}`)}}, nil
	}
	out, err := b.Run(t.Context(), job)
	if err != nil || string(out.Content) != taskResult || asked != 1 || fmt.Sprint(srv.updates) != `[{"k":{"action":"accept","content":{"a":1}}}]` {
		t.Errorf("%s, %v; asked %d times, %v", out.Content, err, asked, srv.updates)
	}
	for name, ask := range map[string]sallyport.Ask{
		"cannot be asked": nil,
		"got no answer": func(context.Context, []sallyport.Question) ([]sallyport.Answer, error) {
			return []sallyport.Answer{{Refusal: "no"}}, nil
		},
	} {
		srv := newTasked(false, q)
		b := open(t, options(), upstream.Config{Name: "s", URL: srv.start(t)})
		job := taskJob("slow")
		job.Ask = ask
		if _, err := b.Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), name) || errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v", name, err)
		}
		await.That(t, "the task is cancelled", func() bool { return strings.HasSuffix(srv.methods(), "tasks/cancel") })
	}
}
