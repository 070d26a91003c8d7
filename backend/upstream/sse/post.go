package sse

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"sallyport.dev/sallyport/httponce"
	"sallyport.dev/sallyport/wire"
)

// A fate is what became of one message on its way out.
type fate struct {
	taken  bool // or nobody knows
	said   bool // err is the server's own word
	broken bool // the server does not know the session any more, or is not there
	err    error
	answer []byte // that came in place of one on the stream, nil as a rule
}

// settle is how long the server's word on a message is waited for before the next
// one goes out. It takes a message and answers later, on the stream; one that
// answers first delays nobody for longer.
const settle = 200 * time.Millisecond

// Write posts one message. An error means that the server certainly did not take
// it, and that the pipe is of no use any more; nothing was written then.
func (c *Conn) Write(message []byte) (int, error) {
	select {
	case c.posts <- struct{}{}:
	case <-c.life.Done():
		return 0, context.Cause(c.life)
	}
	told := make(chan fate, 1)
	go func() {
		defer func() { <-c.posts }()
		told <- c.post(message)
	}()
	wait := time.NewTimer(settle)
	defer wait.Stop()
	select {
	case f := <-told:
		if f.broken {
			c.cancel(fmt.Errorf("%w: %w", ErrEnded, f.err))
			return 0, f.err
		}
		c.explain(message, f)
	case <-wait.C:
		go func() { c.explain(message, <-told) }()
	}
	return len(message), nil
}

// post sends one message and reads what the server says to having it.
func (c *Conn) post(message []byte) fate {
	req, err := c.request(http.MethodPost, c.endpoint, message)
	if err != nil {
		return fate{err: err, broken: true}
	}
	ctx, cancel := context.WithTimeout(c.life, c.o.Post)
	defer cancel()
	resp, sent, err := httponce.Do(c.o.Client, req.WithContext(ctx))
	if err != nil {
		return fate{taken: sent, broken: !sent, err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode/100 == 2:
		return fate{taken: true, answer: c.answer(resp)}
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return fate{said: true, broken: true, err: fmt.Errorf("the server does not know the session any more (HTTP status %d)", resp.StatusCode)}
	}
	return fate{said: true, taken: resp.StatusCode >= 500, err: fmt.Errorf("HTTP status %d instead of taking the message", resp.StatusCode)}
}

// answer is what a server says to a request in the response to its POST. That belongs on
// the stream, but some servers have it here.
func (c *Conn) answer(resp *http.Response) []byte {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != wire.TypeJSON {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.o.Most)+1))
	if err != nil || wire.Member(body, "id") == nil || wire.Member(body, "method") != nil {
		return nil
	}
	return body // which may be one that cannot be used: whoever waits for it is to hear that
}

// explain answers in the server's stead where it said no, so that the call need
// not wait for an answer that will not come. Where nobody knows, the answer may
// still come on the stream.
func (c *Conn) explain(message []byte, f fate) {
	if f.answer != nil {
		_ = c.deliver(f.answer)
		return
	}
	id := wire.Member(message, "id")
	if f.err == nil || f.taken && !f.said || id == nil || wire.Member(message, "method") == nil {
		return
	}
	code := wire.CodeInvalidRequest // "did not even look at it"
	if f.taken {
		code = wire.CodeInternal
	}
	m := wire.Message{ID: json.RawMessage(id), Error: &wire.Error{Code: code, Message: f.err.Error()}}
	_ = c.deliver(m.Append(nil))
}
