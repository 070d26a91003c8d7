// Package sse speaks with servers of protocol 2024-11-05 over HTTP, which is two
// channels: a GET holds a stream on which the server writes, and the first event
// of it names the endpoint to which messages are posted. Here the two become one
// pipe, like that of a program: what is written to it goes out, a message on each
// line, and what is read from it came in.
package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sallyport.dev/sallyport/httponce"
	"sallyport.dev/sallyport/wire"
)

// ErrOther means that the address is not that of such a server.
var ErrOther = errors.New("it does not speak HTTP+SSE")

// ErrEnded is why a pipe is over whose server ended the stream.
var ErrEnded = errors.New("its stream ended")

// errStopped: we ended it.
var errStopped = errors.New("stopped")

// Options say where a server is.
type Options struct {
	Client *http.Client // must not follow redirects
	URL    *url.URL
	Header http.Header   // of each request
	Most   int           // bytes of one message
	Post   time.Duration // for the server to take one message, 30 s
}

// A Conn is a pipe to a server. Its methods are those of a program that runs.
type Conn struct {
	o        Options
	endpoint string
	life     context.Context //nolint:containedctx // ends with the stream
	cancel   context.CancelCauseFunc
	in       *io.PipeReader // what came in
	out      *io.PipeWriter
	posts    chan struct{} // bounds messages on their way out
	ended    chan struct{} // closed after err is set
	err      error
}

// maxPosts bounds messages that the server has not taken yet.
const maxPosts = 64

// Open waits for the endpoint. ctx bounds that; the stream outlives it.
func Open(ctx context.Context, o Options) (*Conn, error) {
	if o.Post == 0 {
		o.Post = 30 * time.Second
	}
	c := &Conn{o: o, posts: make(chan struct{}, maxPosts), ended: make(chan struct{})}
	c.life, c.cancel = context.WithCancelCause(context.Background())
	c.in, c.out = io.Pipe()
	release := context.AfterFunc(ctx, func() { c.cancel(ctx.Err()) })
	body, events, err := c.open()
	if !release() && err == nil {
		_ = body.Close()
		err = ctx.Err()
	}
	if err != nil {
		c.cancel(err)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	go c.read(body, events)
	return c, nil
}

// open asks for the stream and reads its first event.
func (c *Conn) open() (io.Closer, *wire.EventReader, error) {
	req, err := c.request(http.MethodGet, c.o.URL.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", wire.TypeSSE)
	resp, err := c.o.Client.Do(req)
	if err != nil {
		return nil, nil, plain(err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != wire.TypeSSE {
		_ = resp.Body.Close()
		return nil, nil, fmt.Errorf("%w: HTTP status %d, content type %.60q", ErrOther, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	events := wire.NewEventReader(resp.Body, c.o.Most)
	e, err := events.Next()
	if err == nil && e.Name != "endpoint" {
		err = fmt.Errorf("its first event is %.40q", e.Name)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, nil, fmt.Errorf("%w: %w", ErrOther, err)
	}
	if c.endpoint, err = endpoint(c.o.URL, string(e.Data)); err != nil {
		_ = resp.Body.Close()
		return nil, nil, err
	}
	return resp.Body, events, nil
}

// endpoint is where messages go: never to another origin than the stream comes
// from, for the operator's credentials go with them.
func endpoint(base *url.URL, said string) (string, error) {
	u, err := base.Parse(strings.TrimSpace(said))
	switch {
	case err != nil:
		return "", fmt.Errorf("its endpoint %.200q is no address", said)
	case u.Scheme != base.Scheme || origin(u) != origin(base) || u.User != nil || u.Opaque != "":
		return "", fmt.Errorf("its endpoint %.200q is at another origin than the server, and messages go to the server only", said)
	}
	u.Fragment = ""
	return u.String(), nil
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

func (c *Conn) request(method, to string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(c.life, method, to, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range c.o.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("User-Agent", "sallyport")
	if body != nil {
		httponce.SetBody(req, body)
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	return req, nil
}

// plain leaves the address out: it is the operator's, not for agents.
func plain(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// read passes messages on, each on one line, until the stream ends.
func (c *Conn) read(body io.Closer, events *wire.EventReader) {
	var err error
	for err == nil {
		var e wire.Event
		if e, err = events.Next(); err == nil && e.Name == "message" && len(e.Data) > 0 {
			err = c.deliver(e.Data)
		}
	}
	_ = body.Close()
	switch {
	case c.life.Err() != nil:
		err = context.Cause(c.life)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = ErrEnded
	default:
		err = fmt.Errorf("%w: %w", ErrEnded, plain(err))
	}
	c.err = err
	c.cancel(err)
	close(c.ended)
	_ = c.out.Close()
}

// deliver hands one message to whoever reads the pipe. A line end cannot stand
// within a string of JSON, so it is a space.
func (c *Conn) deliver(message []byte) error {
	b := make([]byte, 0, len(message)+1)
	for _, x := range message {
		if x == '\n' || x == '\r' {
			x = ' '
		}
		b = append(b, x)
	}
	_, err := c.out.Write(append(b, '\n'))
	return err
}

// Stdin takes messages that go out.
func (c *Conn) Stdin() io.WriteCloser { return c }

// Stdout gives messages that came in.
func (c *Conn) Stdout() io.Reader { return c.in }

// Stderr is empty: such a server has none.
func (c *Conn) Stderr() io.Reader { return strings.NewReader("") }

// Wait returns why the pipe is over, once it is.
func (c *Conn) Wait() error {
	<-c.ended
	return c.err
}

// Stop ends the pipe.
func (c *Conn) Stop(time.Duration) error {
	c.cancel(errStopped)
	_ = c.in.Close()
	<-c.ended
	return nil
}

// Close is Stop: without what is written nothing is to be read.
func (c *Conn) Close() error { return c.Stop(0) }
