package script

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/script/frame"
	"sallyport.dev/sallyport/script/typings"
)

// A Run is one run of a script. What its program says comes in by Hear; calls are
// made as they come, and answered in the order in which they came, so that a
// program which is run again sees the same.
type Run struct {
	engine     *Engine
	ctx        context.Context //nolint:containedctx // of the script's own call, which bounds the inner ones
	job        sallyport.Job
	root       string
	credential string
	end        func()
	functions  []typings.Function
	wild       map[string]bool                  // tools that return what strangers write
	earlier    map[int]sallyport.ReservationKey // what earlier runs called, by number

	answers chan []byte
	stopped chan struct{}
	slots   chan chan []byte // of the calls that are not answered, in their order
	work    sync.WaitGroup
	once    sync.Once

	mu        sync.Mutex // guards what follows
	reader    frame.Reader
	flying    int // calls that are not answered
	said      int // bytes of answers
	calls     []sallyport.ScriptCall
	why       *sallyport.Error // the program had to end
	closed    bool
	untrusted bool // it read what strangers wrote
}

func newRun(ctx context.Context, e *Engine, job sallyport.Job, root string, tools []sallyport.Tool) *Run {
	r := &Run{
		engine: e, ctx: ctx, job: job, root: root, wild: map[string]bool{}, earlier: map[int]sallyport.ReservationKey{},
		answers: make(chan []byte, frame.MaxCalls), stopped: make(chan struct{}), slots: make(chan chan []byte, frame.MaxCalls),
	}
	for _, t := range tools {
		f := typings.Of(t)
		r.functions, r.wild[f.Name] = append(r.functions, f), t.Manifest.Untrusted
	}
	go r.tell()
	return r
}

// Answers gives what is to be said to the program, in order.
func (r *Run) Answers() <-chan []byte { return r.answers }

// Stopped is closed when the program must end.
func (r *Run) Stopped() <-chan struct{} { return r.stopped }

// Hear takes what the program says, cut anywhere. It never waits. What comes after
// the end is nothing.
func (r *Run) Hear(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.why != nil {
		return
	}
	calls, err := r.reader.Read(b)
	for _, c := range calls {
		if r.why == nil {
			r.begin(c)
		}
	}
	if err != nil {
		r.stop(&sallyport.Error{Code: sallyport.Invalid, Message: "the program does not call tools as it is told to: " + err.Error(), Hint: "use the functions in tools"})
	}
}

// begin makes a call.
// Preconditions: r.mu is held.
func (r *Run) begin(c frame.Call) {
	if r.flying >= frame.AtOnce {
		r.stop(&sallyport.Error{Code: sallyport.RateLimited, Message: fmt.Sprintf("the program makes more than %d calls at once", frame.AtOnce), Hint: "use the functions in tools"})
		return
	}
	args, err := sallyport.Canonical(c.Args)
	if err != nil {
		args = c.Args // the path says why it refuses them
	}
	key := sallyport.ScriptKey(r.root, c.N, c.Tool, args)
	if before, ok := r.earlier[c.N]; ok && before.Key != key {
		r.stop(&sallyport.Error{
			Code: sallyport.Conflict, Message: fmt.Sprintf("call %d of the script is not what it was when it ran before under this key: then it called %s, now %.80q%s", c.N, before.Tool, c.Tool, sameTool(before.Tool, c.Tool)),
			Hint: "run the same script again, with nothing in it that differs from run to run, such as the time; or use a new key for another script, which then does all of it anew",
		})
		return
	}
	slot := make(chan []byte, 1)
	r.flying++
	r.calls = append(r.calls, sallyport.ScriptCall{N: c.N, Tool: strings.ToValidUTF8(c.Tool[:min(len(c.Tool), 128)], "")})
	r.slots <- slot // there is room for all that a reader lets through
	r.work.Go(func() { slot <- r.call(c, key) })
}

func sameTool(before, now string) string {
	if before == now {
		return " with other arguments"
	}
	return ""
}

// call makes one inner call on the whole path, and returns its answer.
func (r *Run) call(c frame.Call, key string) []byte {
	res, err := r.engine.Path.Call(r.ctx, sallyport.Request{
		Credential: r.credential, Door: sallyport.ScriptDoor, Profile: r.job.Profile, Key: key, Saga: r.job.Saga,
		Trace: r.job.Trace, Parent: r.job.CallID, Size: len(c.Args),
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: c.Tool, Args: c.Args},
	})
	if err == nil && res.Replay && bytes.Contains(res.Content, notKept) {
		err = &sallyport.Error{Code: sallyport.Unavailable, CallID: res.CallID, Message: "an earlier run made this call, and its result is no longer kept", Hint: "the script cannot go on from it; use a new key"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	note := &r.calls[c.N-1]
	if err == nil {
		note.CallID, note.Replay, note.Failed = res.CallID, res.Replay, res.IsError
		r.untrusted = r.untrusted || res.Untrusted
		return answer(c.N, "result", res.Content)
	}
	e := asError(err)
	if e == nil {
		e = &sallyport.Error{Code: sallyport.Internal, Message: "internal error"}
	}
	note.CallID, note.Code, note.Ticket = e.CallID, e.Code, e.Ticket
	r.untrusted = r.untrusted || e.Code == sallyport.Upstream && r.wild[c.Tool] // in its server's words
	if e.Code == sallyport.Pending {
		chosen, _, _ := strings.Cut(r.job.Reserved.Key, sallyport.Scope)
		r.stop(&sallyport.Error{
			Code: e.Code, Ticket: e.Ticket, Message: fmt.Sprintf("a human must approve call %d of the script, %s: ticket %s", c.N, note.Tool, e.Ticket),
			Hint: fmt.Sprintf("once it is decided, run the same script again with the idempotency key %q: what was done is not done again", chosen),
		})
	}
	return answer(c.N, "error", failure{e.Code, e.Step, e.Message, e.Hint, e.Ticket, e.CallID, e.RetryAfter.Milliseconds()})
}

// maxSaid bounds the answers of one run: a program need not read them.
const maxSaid = 64 << 20

// notKept is in the result of a call that is done and whose own result is gone.
var notKept = []byte(`"dev.sallyport/result":"not_kept"`)

// A failure is an error as the program gets it.
type failure struct {
	Code       sallyport.Code `json:"code"`
	Step       sallyport.Step `json:"step,omitempty"`
	Message    string         `json:"message"`
	Hint       string         `json:"hint,omitempty"`
	Ticket     string         `json:"ticket,omitempty"`
	CallID     string         `json:"call_id,omitempty"`
	RetryAfter int64          `json:"retry_after_ms,omitempty"`
}

// answer is one line for the program.
func answer(n int, what string, v any) []byte {
	b, err := json.Marshal(map[string]any{"n": n, what: v})
	if err != nil { // a result that is no JSON, which the path does not let out
		b, _ = json.Marshal(map[string]any{"n": n, "error": failure{Code: sallyport.Internal, Message: "the result is no JSON"}})
	}
	return append(b, '\n')
}

// tell answers calls, each when those before it were.
func (r *Run) tell() {
	for slot := range r.slots {
		b := <-slot
		r.mu.Lock()
		r.flying--
		if r.said += len(b); r.said > maxSaid {
			r.stop(&sallyport.Error{Code: sallyport.TooLarge, Message: fmt.Sprintf("the script was given more than %d MiB of results", maxSaid>>20), Hint: "ask for less at a time, or do it in several scripts"})
		}
		if r.why == nil {
			r.answers <- b // there is room for all
		}
		r.mu.Unlock()
	}
}

// stop ends the program. What it called goes on.
// Preconditions: r.mu is held.
func (r *Run) stop(why *sallyport.Error) {
	if r.why == nil {
		r.why = why
		close(r.stopped)
	}
}

// Close takes no more calls, waits for those that were begun, and tells what was
// called and why the program had to end, if it had to.
func (r *Run) Close() (calls []sallyport.ScriptCall, stopped *sallyport.Error, untrusted bool) {
	r.once.Do(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.work.Wait()
		close(r.slots)
		r.end()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls), r.why, r.untrusted
}
