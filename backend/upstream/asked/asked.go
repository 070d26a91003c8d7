// Package asked takes what a server asks in the middle of a call: requests of its
// own on a connection with a session, results that ask for input, and errors that
// send the user to an address first.
package asked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

const (
	maxOpen   = 16               // questions of one call at once
	replyTime = 30 * time.Second // to get an answer off
)

// All are the abilities that a session declares which many callers share. What a
// call's own client is not able to do is refused, question by question.
var All = sallyport.Abilities{Form: true, URL: true, Sampling: true, Tools: true, Context: true, Roots: true}

// A Desk takes the questions of one call. A nil Desk takes none.
type Desk struct {
	room   *Room
	ctx    context.Context //nolint:containedctx // the call's
	cancel context.CancelFunc
	ask    sallyport.Ask // nil: the client cannot be asked
	tell   func(sallyport.Notice)

	mu    sync.Mutex // guards what follows
	open  map[string]context.CancelCauseFunc
	urls  map[string]chan struct{} // elicitationId → closed when its user is done
	token string                   // of the call's progress
	task  string                   // that the server made of the call, "" if it made none
}

// related is the member of _meta by which a server names a task.
const related = "io.modelcontextprotocol/related-task"

// Plain is a result, or the parameters of a request, without the name of the server's
// task, which means nothing to a client here.
func Plain(result json.RawMessage) json.RawMessage {
	meta := wire.Member(result, "_meta")
	if wire.Member(meta, related) == nil {
		return result
	}
	meta, err := wire.RemoveMember(meta, related)
	if err != nil {
		return result
	}
	if string(meta) == "{}" {
		if result, err = wire.RemoveMember(result, "_meta"); err == nil {
			return result
		}
	}
	if out, err := wire.SetMember(result, "_meta", meta); err == nil {
		return out
	}
	return result
}

func (d *Desk) named(is func() bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return is()
}

// Token notes under which token the server tells of the call's progress.
func (d *Desk) Token(id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.token = strconv.FormatInt(id, 10)
}

// Task notes that the server made a task of the call.
func (d *Desk) Task(id string) {
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.task = id
	}
}

// progress passes what was said of a call on, which is answered with a task already.
func (r *Room) progress(m wire.Message) {
	token := string(wire.Member(m.Params, wire.MetaProgressToken))
	for _, d := range r.all() {
		if d.named(func() bool { return d.task != "" && d.token == token }) {
			d.tell(sallyport.Notice{Method: m.Method, Params: m.Params})
		}
	}
}

// Notice takes a notification about a call or a question, and reports whether it was one.
func (r *Room) Notice(m wire.Message) bool {
	switch m.Method {
	case "notifications/progress":
		r.progress(m)
	case "notifications/cancelled":
		key := wire.IDKey(wire.Member(m.Params, "requestId"))
		if r.takenBack(key) {
			return true
		}
		for _, d := range r.all() {
			d.withdraw(key)
		}
	case "notifications/elicitation/complete":
		id, _ := wire.String(wire.Member(m.Params, "elicitationId"))
		for _, d := range r.all() {
			d.completed(id, m)
		}
	default:
		return false
	}
	return true
}

// errTakenBack: the server does not want to know any more.
var errTakenBack = errors.New("the question was taken back")

func (d *Desk) withdraw(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.open[key]; cancel != nil {
		cancel(errTakenBack)
	}
}

// completed passes the news on to whom the user is, and to nobody else.
func (d *Desk) completed(id string, m wire.Message) {
	d.mu.Lock()
	done, known := d.urls[id]
	if known {
		select {
		case <-done:
			known = false // ids are told once
		default:
			close(done)
		}
	}
	d.mu.Unlock()
	if known {
		d.tell(sallyport.Notice{Method: m.Method, Params: m.Params})
	}
}

// sends notes that the user is sent to an address.
func (d *Desk) sends(params json.RawMessage) <-chan struct{} {
	id, ok := wire.String(wire.Member(params, "elicitationId"))
	if !ok || len(id) > ask.MaxKey {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.urls[id] == nil {
		d.urls[id] = make(chan struct{})
	}
	return d.urls[id]
}

// Take answers a request of the server. It does not wait.
func (d *Desk) Take(m wire.Message, send func(context.Context, wire.Message) error) {
	if d == nil || m.Method == "ping" || !ask.Known(m.Method) || d.ask == nil {
		go deliver(send, wire.Message{ID: m.ID, Result: pong(m), Error: refusal(d, m)})
		return
	}
	ctx, cancel := context.WithCancelCause(d.ctx)
	key := wire.IDKey(m.ID)
	d.mu.Lock()
	full := len(d.open) >= maxOpen || d.open[key] != nil
	if !full {
		d.open[key] = cancel
	}
	d.mu.Unlock()
	if full {
		cancel(nil)
		go deliver(send, wire.Message{ID: m.ID, Error: &wire.Error{Code: wire.CodeInvalidRequest, Message: "too many questions at once, or an id that is in use"}})
		return
	}
	d.sends(m.Params)
	go func() {
		defer func() {
			cancel(nil)
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.open, key)
		}()
		answers, err := d.ask(ctx, []sallyport.Question{{Method: m.Method, Params: Plain(m.Params)}})
		if !errors.Is(context.Cause(ctx), errTakenBack) { // which needs no response
			deliver(send, answer(m.ID, answers, errors.Join(err, ctx.Err())))
		}
	}()
}

func deliver(send func(context.Context, wire.Message) error, m wire.Message) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTime)
	defer cancel()
	_ = send(ctx, m) // a connection that is gone says so elsewhere
}

func pong(m wire.Message) json.RawMessage {
	if m.Method != "ping" {
		return nil
	}
	return json.RawMessage("{}")
}

// refusal is why a request is not put to a client.
func refusal(d *Desk, m wire.Message) *wire.Error {
	switch {
	case m.Method == "ping":
		return nil
	case !ask.Known(m.Method):
		return &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found: this client is asked for ping, elicitation, sampling and roots"}
	case d == nil:
		return nobodys(noCall)
	}
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "the client of this call cannot be asked: " + m.Method}
}

// answer is a client's answer as a response.
func answer(id json.RawMessage, answers []sallyport.Answer, err error) wire.Message {
	switch {
	case err != nil || len(answers) != 1:
		return wire.Message{ID: id, Error: &wire.Error{Code: wire.CodeInternal, Message: "the client could not be asked"}}
	case answers[0].Result == nil:
		return wire.Message{ID: id, Error: &wire.Error{Code: answers[0].Code, Message: answers[0].Refusal}}
	}
	return wire.Message{ID: id, Result: answers[0].Result}
}

// MaxRounds bounds how often one call asks for input, or sends its user somewhere.
const MaxRounds = 32

// URLFirst reads an error that sends the user to addresses first.
func URLFirst(e *wire.Error) (questions []sallyport.Question) {
	if e == nil || e.Code != result.CodeURLFirst {
		return nil
	}
	for v := range wire.Elements(wire.Member(e.Data, "elicitations")) {
		params, err := wire.SetMember(v, "mode", json.RawMessage(`"url"`))
		if err != nil || len(questions) == ask.MaxQuestions {
			return nil
		}
		questions = append(questions, sallyport.Question{Method: sallyport.AskUser, Params: params})
	}
	return questions
}

// Send asks the user to go there, and waits for a while until they have been: the
// server tells, or not. The error says that they will not.
func (d *Desk) Send(ctx context.Context, questions []sallyport.Question, atMost time.Duration) error {
	var done []<-chan struct{}
	for _, q := range questions {
		done = append(done, d.sends(q.Params))
	}
	answers, err := d.ask(ctx, questions)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if said, _ := wire.String(wire.Member(a.Result, "action")); said != "accept" {
			return Refused(a)
		}
	}
	t := time.NewTimer(atMost)
	defer t.Stop()
	for _, c := range done {
		select {
		case <-c:
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Refused is the error for a call whose server does not get the answer that it needs.
func Refused(a sallyport.Answer) error {
	reason := a.Refusal
	if reason == "" {
		reason = "the user did not agree"
	}
	return &sallyport.Error{
		Code: sallyport.Rejected, Step: sallyport.Execute, Message: fmt.Sprintf("the server asked, and got no answer: %s", reason),
		Hint: "call again when there is an answer",
	}
}
