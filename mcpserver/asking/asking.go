// Package asking puts questions to clients of the revisions with sessions: as
// requests on the stream of the call. What they respond comes in requests of its
// own, and is matched by an id that nobody can guess, within the session.
package asking

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

const (
	maxOpen = 64               // questions of one session
	grace   = 10 * time.Second // for an answer, or a cancellation, after the stream has ended
)

// A Desk has the open questions of one session. The zero Desk has none.
type Desk struct {
	mu   sync.Mutex
	open map[string]chan sallyport.Answer // by the request's id
}

var (
	errFull   = errors.New("the session has too many open questions")
	errUnsent = errors.New("the client's stream is closed")
)

// Ask writes a request for each question and waits for all responses. When ctx ends
// first, the client is told that they are not needed any more.
func (d *Desk) Ask(ctx context.Context, version string, questions []sallyport.Question, gone <-chan struct{}, write func(message []byte) bool) ([]sallyport.Answer, error) {
	ids := make([]string, len(questions))
	waits := make([]chan sallyport.Answer, len(questions))
	defer func() { d.close(ids) }()
	for i, q := range questions {
		ids[i] = "ask-" + rand.Text()
		if waits[i] = d.put(ids[i]); waits[i] == nil {
			return nil, errFull
		}
		if !write(wire.AppendRequest(nil, wire.Quote(ids[i]), q.Method, ask.ForLegacy(q, version))) {
			return nil, errUnsent
		}
	}
	answers := make([]sallyport.Answer, len(questions))
	lost, stop := after(gone)
	defer stop()
	for i, w := range waits {
		select {
		case answers[i] = <-w:
		case <-lost:
			return nil, errUnsent
		case <-ctx.Done():
			for _, id := range ids[i:] {
				write(wire.AppendNotification(nil, "notifications/cancelled", append(wire.AppendString([]byte(`{"requestId":`), id), '}')))
			}
			return nil, ctx.Err()
		}
	}
	return answers, nil
}

// after closes a channel a while after gone is: a connection that ends is no
// cancellation, but who cancels often ends it first.
func after(gone <-chan struct{}) (lost <-chan struct{}, stop func()) {
	c, ended := make(chan struct{}), make(chan struct{})
	go func() {
		select {
		case <-gone:
		case <-ended:
			return
		}
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			close(c)
		case <-ended:
		}
	}()
	return c, func() { close(ended) }
}

func (d *Desk) put(id string) chan sallyport.Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) >= maxOpen {
		return nil
	}
	if d.open == nil {
		d.open = map[string]chan sallyport.Answer{}
	}
	d.open[id] = make(chan sallyport.Answer, 1)
	return d.open[id]
}

func (d *Desk) close(ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.open, id)
	}
}

// Take takes a response, and reports whether anybody waits for it.
func (d *Desk) Take(m wire.Message) bool {
	id, ok := wire.String(m.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	wait := d.open[id]
	if !ok || wait == nil {
		return false
	}
	delete(d.open, id) // once
	a := sallyport.Answer{Result: m.Result}
	if m.Error != nil {
		a = sallyport.Answer{Refusal: m.Error.Message, Code: m.Error.Code}
		if a.Refusal == "" {
			a.Refusal = "no reason given"
		}
	} else if !wire.IsObject(m.Result) {
		a.Result = json.RawMessage(`{}`) // fits nothing
	}
	wait <- a
	return true
}
