// Package web speaks to one server over streamable HTTP: each request is a POST, and its
// answer comes as JSON or as a stream, which is resumed where it breaks off.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/failure"
	"sallyport.dev/sallyport/backend/upstream/given"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/httponce"
	"sallyport.dev/sallyport/limit/bulk"
	"sallyport.dev/sallyport/wire"
)

const (
	maxHops       = 3 // redirects within one origin
	maxErrorBytes = 64 << 10
	asideTime     = 5 * time.Second // for messages beside a call
	maxAsides     = 16
	maxWait       = 30 * time.Second // between two tries, whatever the server says
)

// Transport is the default way out. It takes no proxy from the environment,
// and drops idle connections before common servers do (5 s): a request that
// meets a closing connection would have an unknown outcome.
func Transport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        4 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
}

// Options say for whom a link works. All fields are required.
type Options struct {
	Server  string             // its name, in errors
	URL     string             // where it is
	Way     http.RoundTripper  // how requests get there
	Most    int                // bytes of one message
	Given   *given.Keeper      // what each request carries
	Modern  func() bool        // whether the server knows no sessions
	Version func() string      // of the protocol, "" before it is known
	ID      func() int64       // of a request of the link's own, which no other has
	Room    *asked.Room        // the calls that are under way
	Heard   func(wire.Message) // takes what the server says about itself
}

// A Link is a link.Link to one server.
type Link struct {
	o      Options
	client *http.Client
	url    atomic.Pointer[url.URL] // moves with redirects within its origin
	id     atomic.Pointer[string]  // of the legacy session

	begun  time.Time
	hears  chan struct{} // closed once the standing stream was answered
	heard  sync.Once
	stands bool   // there was such a stream; for Hear alone
	last   string // id of its last event; for Hear alone
	once   sync.Once
	over   chan struct{}
	err    error         // set before over is closed
	asides chan struct{} // bounds messages beside calls
}

var _ link.Link = (*Link)(nil)

// New begins to speak to a server. Nothing is sent yet.
func New(o Options) *Link {
	l := &Link{o: o, begun: time.Now(), hears: make(chan struct{}), over: make(chan struct{}), asides: make(chan struct{}, maxAsides)}
	l.client = httponce.Client(o.Way)
	if u, err := url.Parse(o.URL); err == nil {
		l.url.Store(u)
	}
	return l
}

// Done is closed when the session is over.
func (l *Link) Done() <-chan struct{} { return l.over }

// Err is why it is over.
func (l *Link) Err() error {
	select {
	case <-l.over:
		return l.err
	default:
		return link.ErrGone
	}
}

// InSession reports whether the server has a session for the link.
func (l *Link) InSession() bool { return l.id.Load() != nil }

// End ends the link, for a reason, and tells the server nothing.
func (l *Link) End(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.over)
	})
}

// Close tells a legacy server that its session is over.
func (l *Link) Close(grace time.Duration) {
	lost := l.Err()
	l.End(link.ErrGone)
	if id := l.id.Load(); id != nil && !errors.Is(lost, errSession) && !errors.Is(lost, link.ErrNoConnection) {
		ctx, cancel := context.WithTimeout(context.Background(), min(grace, asideTime))
		defer cancel()
		if req, err := l.newRequest(ctx, http.MethodDelete, nil, link.Request{}); err == nil {
			if resp, err := l.client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
}

// newRequest builds one HTTP request.
func (l *Link) newRequest(ctx context.Context, method string, body []byte, r link.Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.url.Load().String(), nil)
	if err != nil {
		return nil, err
	}
	h := req.Header
	v, _, err := l.o.Given.Now(ctx)
	if err != nil {
		return nil, err
	}
	for name, values := range v.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	h.Set("Accept", wire.TypeJSON+", "+wire.TypeSSE)
	h.Set("User-Agent", "sallyport")
	if body != nil {
		httponce.SetBody(req, body)
		h.Set("Content-Type", wire.TypeJSON)
	}
	if version := l.o.Version(); version != "" {
		h.Set(wire.HeaderProtocolVersion, version)
	}
	if l.o.Modern() {
		h.Set(wire.HeaderMethod, r.Method)
		if r.Name != "" {
			h.Set(wire.HeaderName, wire.EncodeHeader(r.Name))
		}
	} else if id := l.id.Load(); id != nil {
		h.Set(wire.HeaderSessionID, *id)
	}
	for name, value := range r.Header {
		h.Set(name, value)
	}
	return req, nil
}

// Exchange posts a request and reads its answer.
func (l *Link) Exchange(ctx context.Context, r link.Request) (wire.Message, error) {
	select {
	case <-l.over:
		return wire.Message{}, outcome.NotSent(l.err)
	default:
	}
	msg := r.Message()
	resp, err := l.post(ctx, msg.Append(nil), r)
	if err == nil {
		var m wire.Message
		m, err = r.Take(l.answer(ctx, resp, r))
		if err == nil {
			if !l.o.Modern() && l.InSession() && status.Forgets(m.Error) && (r.Method == ping || l.forgotten(ctx)) {
				l.End(l.lost()) // nobody knows whether it looked at the call, but the next one need not meet that
			}
			return m, nil
		}
	}
	if ctx.Err() != nil {
		if errors.Is(err, sallyport.ErrNotExecuted) {
			return wire.Message{}, outcome.NotSent(ctx.Err())
		}
		if !r.Quiet && !l.o.Modern() { // modern: hanging up says it
			l.aside(r.Cancellation())
		}
		return wire.Message{}, ctx.Err()
	}
	if errors.Is(err, link.ErrNoConnection) { // the supervisor looks for it from now on
		lost := failure.Of(fmt.Errorf("%w (%w)", err, link.ErrGone), l.o.Server, l.o.Most)
		l.End(lost)
		return wire.Message{}, outcome.NotSent(lost)
	}
	return wire.Message{}, err
}

const ping = "ping"

// forgotten reports whether the server says of another request, too, that it does not know
// the session. An error of a tool may read like that, and ends the session of nobody.
func (l *Link) forgotten(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, asideTime)
	defer cancel()
	m, err := l.Exchange(ctx, link.Request{ID: l.o.ID(), Method: ping, Quiet: true, Notify: func(sallyport.Notice) {}})
	return err == nil && status.Forgets(m.Error)
}

// post sends a body, and again where the same origin says it has moved, or does not
// take a credential that was changed meanwhile.
func (l *Link) post(ctx context.Context, body []byte, r link.Request) (*http.Response, error) {
	_, turn, _ := l.o.Given.Now(ctx)
	for hop := 0; ; hop++ {
		req, err := l.newRequest(ctx, http.MethodPost, body, r)
		if err != nil {
			return nil, outcome.NotSent(err)
		}
		resp, sent, err := httponce.Do(l.client, req)
		if err != nil {
			if _, ours := errors.AsType[*sallyport.Error](err); ours {
				return nil, err // no token
			}
			if !sent {
				return nil, outcome.NotSent(fmt.Errorf("%w: %w", link.ErrNoConnection, err))
			}
			return nil, err
		}
		if resp.StatusCode == http.StatusUnauthorized && hop == 0 && l.o.Given.Newer(ctx, turn) {
			_ = resp.Body.Close()
			continue
		}
		if resp.StatusCode != 307 && resp.StatusCode != 308 || hop >= maxHops {
			return resp, nil
		}
		next, err := resp.Location()
		old := l.url.Load()
		if err != nil || next.Scheme != old.Scheme || next.Host != old.Host || next.User != nil {
			return resp, nil
		}
		_ = resp.Body.Close()
		l.url.Store(next)
	}
}

// answer reads the response to a request and closes it.
func (l *Link) answer(ctx context.Context, resp *http.Response, r link.Request) (wire.Message, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return l.refusal(resp, kind, r)
	}
	if id := resp.Header.Get(wire.HeaderSessionID); id != "" && r.Method == "initialize" {
		l.id.Store(&id)
	}
	switch kind {
	case wire.TypeJSON:
		defer func() { _ = resp.Body.Close() }()
		body, long, err := bulk.Read(ctx, resp.Body, resp.ContentLength, l.o.Most, r.Room)
		if err == nil && long { // counted after decompression
			err = link.ErrTooLarge
		}
		if err != nil {
			return wire.Message{}, err
		}
		err = fmt.Errorf("%w: it is not the answer to the request", link.ErrMalformed)
		for part := range wire.Each(body) {
			m, found, wrong := l.event(part, r)
			if found {
				return m, wrong
			}
			err = cmp.Or(wrong, err)
		}
		return wire.Message{}, err
	case wire.TypeSSE:
		return l.stream(ctx, resp, r)
	}
	_ = resp.Body.Close()
	return wire.Message{}, fmt.Errorf("%w: content type %.80q", link.ErrMalformed, resp.Header.Get("Content-Type"))
}

// errSession: the server does not know the session any more.
var errSession = errors.New("upstream_session_lost")

func (l *Link) lost() error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute,
		Message: fmt.Sprintf("upstream_session_lost: server %q does not know its session any more", l.o.Server),
		Hint:    "try again", Err: fmt.Errorf("%w (%w)", errSession, link.ErrGone),
	}
}

// refusal makes an error of a status; a JSON-RPC error in the body counts.
func (l *Link) refusal(resp *http.Response, kind string, r link.Request) (wire.Message, error) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	m, err := wire.ParseMessage(body)
	isError := kind == wire.TypeJSON && err == nil && m.Error != nil
	text := line.Printable(string(body), 200)
	if isError {
		text = line.Printable(m.Error.Message, 200)
	}
	if !l.o.Modern() && l.InSession() {
		// 404 is what the protocol says; some servers answer 400 and name the session, before they look at the request.
		unread := !isError || string(m.ID) != string(r.RawID())
		if resp.StatusCode == 401 { // of a session that is no more, perhaps: the next call begins another
			l.End(l.lost())
		}
		if resp.StatusCode == 404 || resp.StatusCode == 410 || resp.StatusCode == 400 && unread && strings.Contains(strings.ToLower(text), "session") {
			lost := l.lost()
			l.End(lost)
			return m, outcome.NotSent(lost)
		}
	}
	if isError && resp.StatusCode < 500 && resp.StatusCode != 401 && resp.StatusCode != 403 {
		return m, nil
	}
	return wire.Message{}, &status.Error{Code: resp.StatusCode, Text: text, RPC: isError}
}

// aside sends a message beside a call, in the background; where too many are
// on their way, it is dropped.
func (l *Link) aside(m wire.Message) {
	select {
	case l.asides <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-l.asides }()
		ctx, cancel := context.WithTimeout(context.Background(), asideTime)
		defer cancel()
		_ = l.Send(ctx, m)
	}()
}

// Send posts a message that gets no answer.
func (l *Link) Send(ctx context.Context, m wire.Message) error {
	resp, err := l.post(ctx, m.Append(nil), link.Request{Method: m.Method})
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && !l.o.Modern() && l.InSession():
		return l.lost()
	case resp.StatusCode/100 != 2:
		return &status.Error{Code: resp.StatusCode, Text: m.Method}
	}
	return nil
}
