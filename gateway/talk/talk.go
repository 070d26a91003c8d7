// Package talk stands between a running call and its caller: what the call says
// on its way is cleaned, what its server asks is cleaned, judged and put to the
// client, and answers are held against the question before they go back.
package talk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// A Sanitiser cleans what comes out. (redact)
type Sanitiser interface {
	Result(reader string, tool sallyport.Tool, out sallyport.Output) (clean json.RawMessage, isError bool, findings []string, err error)
	Notice(reader string, n sallyport.Notice) sallyport.Notice
	Stream(reader string) func(piece []byte) string
	Text(s string) string
}

// Bounds on the questions of one call.
const (
	maxQuestions = 64
	maxTries     = 3       // to get an answer that fits
	maxBytes     = 1 << 20 // of one question, or one answer
)

// The codes of JSON-RPC that servers get for what could not be answered.
const (
	codeRejected  = -1 // what clients say whose user does not want it
	codeNoMethod  = -32601
	codeBadParams = -32602
	codeInternal  = -32603
)

// Options say whom an Asker speaks for and to.
type Options struct {
	Sanitiser Sanitiser
	Server    string // that asks
	Reader    string // who reads the questions
	Can       sallyport.Abilities
	Clock     *Clock
	Wait      time.Duration                     // for all answers of the call together
	Taint     func(findings []string) error     // before a question is put; what it cannot note is not put
	Holds     func(answer json.RawMessage) bool // whether an answer holds a secret that must not go to the server
	Grave     func(answer json.RawMessage) bool // whether an answer would do what a human must approve
	Inquiry   sallyport.Inquiry                 // without its questions
	Put       func(context.Context, sallyport.Inquiry) ([]sallyport.Answer, error)
}

// An Asker puts the questions of one call.
type Asker struct {
	o Options

	mu    sync.Mutex // guards what follows
	asked []sallyport.Asked
	count int
	spent time.Duration // waiting for answers
}

// NewAsker returns an asker.
func NewAsker(o Options) *Asker { return &Asker{o: o} }

// Asked is what has been asked, and what came of it.
func (a *Asker) Asked() []sallyport.Asked {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]sallyport.Asked(nil), a.asked...)
}

// A matter is one question on its way.
type matter struct {
	q       sallyport.Question // cleaned
	key     string             // the server's own
	fits    func(json.RawMessage) (json.RawMessage, string, error)
	answer  sallyport.Answer
	settled bool
	told    sallyport.Asked
}

// settle ends a matter with the answer that its server gets.
func (m *matter) settle(a sallyport.Answer, said, reason string) {
	m.answer, m.settled, m.told.Answer, m.told.Reason = a, true, said, reason
}

// refuse ends a matter that the client did not decide.
func (m *matter) refuse(code int, reason string) {
	m.settle(sallyport.Answer{Refusal: reason, Code: code}, "refused", reason)
}

// dismiss ends a matter as if the user had closed the question.
func (m *matter) dismiss(action, reason string) {
	if m.q.Method == sallyport.AskUser {
		m.settle(sallyport.Answer{Result: json.RawMessage(`{"action":"` + action + `"}`)}, action, reason)
		return
	}
	m.settle(sallyport.Answer{Refusal: reason, Code: codeRejected}, "refused", reason)
}

// Ask is a sallyport.Ask.
func (a *Asker) Ask(ctx context.Context, questions []sallyport.Question) ([]sallyport.Answer, error) {
	matters := make([]*matter, len(questions))
	for i, q := range questions {
		matters[i] = a.prepare(q)
	}
	err := a.putAll(ctx, matters)
	answers := make([]sallyport.Answer, len(matters))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, m := range matters {
		answers[i] = m.answer
		if m.told.Answer == "" {
			m.told.Answer = "none"
		}
		if m.answer.Result != nil {
			m.told.AnswerBytes, m.told.AnswerHash = len(m.answer.Result), digest(m.answer.Result)
		}
		if len(a.asked) <= maxQuestions { // of those that are too many, the first
			a.asked = append(a.asked, m.told)
		}
	}
	return answers, err
}

// putAll puts what is open to the client until all of it is settled. A round in
// which something was answered is no failed try.
func (a *Asker) putAll(ctx context.Context, matters []*matter) error {
	a.o.Clock.pause()
	defer a.o.Clock.resume()
	waiting, done := a.patience(ctx)
	defer done()
	for tries := 0; tries < maxTries; tries++ {
		open := unsettled(matters)
		if len(open) == 0 {
			return nil
		}
		inquiry := a.o.Inquiry
		inquiry.Questions = nil
		for _, m := range open {
			inquiry.Questions = append(inquiry.Questions, m.q)
		}
		answers, err := a.o.Put(waiting, inquiry)
		switch ours, known := errors.AsType[*sallyport.Error](err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case waiting.Err() != nil:
			dismissAll(open, "nobody answered in time")
			return nil
		case known:
			refuseAll(open, ours.Message)
			return nil
		case err != nil || len(answers) != len(open):
			refuseAll(open, "the client could not be asked")
			return nil
		}
		for i, m := range open {
			a.take(m, answers[i])
		}
		if len(unsettled(matters)) < len(open) {
			tries = -1
		}
	}
	dismissAll(unsettled(matters), "the client did not answer in a way that fits")
	return nil
}

// patience is a context that ends when the time for answers is up. done notes how
// much of it was used.
func (a *Asker) patience(ctx context.Context) (waiting context.Context, done func()) {
	a.mu.Lock()
	left := max(a.o.Wait-a.spent, 0)
	a.mu.Unlock()
	began := a.o.Clock.now()
	waiting, cancel := context.WithTimeout(ctx, left)
	return waiting, func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.spent += a.o.Clock.now().Sub(began)
	}
}

func unsettled(matters []*matter) (open []*matter) {
	for _, m := range matters {
		if !m.settled {
			open = append(open, m)
		}
	}
	return open
}

func dismissAll(open []*matter, reason string) {
	for _, m := range open {
		m.dismiss("cancel", reason)
	}
}

func refuseAll(open []*matter, reason string) {
	for _, m := range open {
		m.refuse(codeInternal, reason)
	}
}

// take holds an answer against its question. One that does not fit leaves it open.
func (a *Asker) take(m *matter, answer sallyport.Answer) {
	switch {
	case answer.Refusal != "":
		m.dismiss("decline", "the client refused: "+a.o.Sanitiser.Text(answer.Refusal))
		return
	case len(answer.Result) == 0:
		return // not yet
	case len(answer.Result) > maxBytes:
		m.told.Reason = "the answer is too large"
		return
	}
	result, said, err := m.fits(answer.Result)
	switch {
	case err != nil:
		m.told.Reason = err.Error()
	case a.o.Holds != nil && a.o.Holds(result):
		m.dismiss("decline", "the answer holds a secret, which the server is not meant to have")
	case a.o.Grave != nil && m.q.Method != sallyport.AskRoots && a.o.Grave(m.filled(result)):
		m.dismiss("decline", "the answer would do what a human must approve, and nobody is shown an answer: call with it as an argument")
	default:
		m.settle(sallyport.Answer{Result: result}, said, "")
	}
}

// filled is what of an answer is the client's own: of a form what was filled in, which is
// to be judged as arguments are, not as something within others.
func (m *matter) filled(answer json.RawMessage) json.RawMessage {
	var form struct{ Content json.RawMessage }
	if m.q.Method == sallyport.AskUser && json.Unmarshal(answer, &form) == nil && form.Content != nil {
		return form.Content
	}
	return answer
}

// prepare cleans a question and judges whether it is put to the client at all.
func (a *Asker) prepare(q sallyport.Question) *matter {
	m := &matter{q: q, key: q.Key, told: sallyport.Asked{Method: q.Method, Bytes: len(q.Params), Hash: digest(q.Params)}}
	a.mu.Lock()
	a.count++
	n := a.count
	a.mu.Unlock()
	if n > maxQuestions {
		m.refuse(codeInternal, fmt.Sprintf("one call asks no more than %d questions", maxQuestions))
		return m
	}
	m.q.Key = a.keyOf(q.Key, n)
	if len(q.Params) > maxBytes {
		m.refuse(codeBadParams, fmt.Sprintf("a question has no more than %d bytes", maxBytes))
		return m
	}
	a.judge(m)
	return m
}

// keyOf is a key that the client may see.
func (a *Asker) keyOf(key string, n int) string {
	if key == "" || a.o.Sanitiser.Text(key) != key {
		return fmt.Sprintf("question-%d", n)
	}
	return key
}

// encode is json.Marshal that leaves texts as they are.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts, and JSON that was read
	return bytes.TrimRight(b.Bytes(), "\n")
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
