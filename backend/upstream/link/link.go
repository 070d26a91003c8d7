// Package link is what carries messages to one server and back, over whichever
// transport: what a request on its way is, and how one fails.
package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/limit/bulk"
	"sallyport.dev/sallyport/wire"
)

var (
	// ErrGone is that the connection is over.
	ErrGone = errors.New("the connection is over")
	// ErrNoConnection is that nothing listens, or that the name is unknown.
	ErrNoConnection = errors.New("no connection")
	// ErrNoStream is that the server has no stream to listen to.
	ErrNoStream = errors.New("there is no stream")
	// ErrTooLarge is an answer beyond the size of one message.
	ErrTooLarge = errors.New("response_too_large")
	// ErrMalformed is an answer that is not what the protocol says.
	ErrMalformed = asked.ErrMalformed
)

// A Request is one JSON-RPC request on its way out.
type Request struct {
	ID     int64 // also the progress token
	Method string
	Name   string // of the tool, for HTTP headers
	Params json.RawMessage
	Header map[string]string // besides the usual ones; HTTP only
	Notify func(sallyport.Notice)
	Room   bulk.Take   // for a large answer
	Quiet  bool        // giving up is not told to the peer
	Desk   *asked.Desk // takes what the server asks meanwhile; nil for none
	Lists  bool        // it asks for a list: one thing in it that cannot be read spoils no other
}

// Take takes the answer to the request, which may be good for it or not.
func (r Request) Take(m wire.Message, err error) (wire.Message, error) {
	if err == nil && m.Pruned != nil && !r.Lists {
		return wire.Message{}, fmt.Errorf("%w: %w", ErrMalformed, m.Pruned)
	}
	return m, err
}

// RawID is the ID as it stands in the message.
func (r Request) RawID() json.RawMessage { return strconv.AppendInt(nil, r.ID, 10) }

// Message is the request as it goes out.
func (r Request) Message() wire.Message {
	return wire.Message{ID: r.RawID(), Method: r.Method, Params: r.Params}
}

// Cancellation tells the server that nobody waits for the answer any more.
func (r Request) Cancellation() wire.Message {
	params := append(strconv.AppendInt([]byte(`{"requestId":`), r.ID, 10), `,"reason":"the caller gave up"}`...)
	return wire.Message{Method: "notifications/cancelled", Params: params}
}

// A Link carries messages to one server and back. It is safe for concurrent use.
type Link interface {
	// Exchange sends a request and waits for the answer, a result or an error
	// object. Errors that wrap ErrNotExecuted mean that it never got out.
	Exchange(ctx context.Context, r Request) (wire.Message, error)
	// Send sends what gets no answer: a notification, or the answer to a request
	// of the server.
	Send(ctx context.Context, m wire.Message) error
	// Done is closed when nothing more can be exchanged.
	Done() <-chan struct{}
	// Err says why the link is over; it wraps ErrGone if nothing else is known.
	Err() error
	// Close ends the link, and what is behind it within grace.
	Close(grace time.Duration)
}
