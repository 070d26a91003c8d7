package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/line"
	"sallyport.dev/sallyport/wire"
)

// errNoConnection: nothing listens, or the name is unknown.
var errNoConnection = errors.New("no connection")

const (
	maxHops       = 3 // redirects within one origin
	maxErrorBytes = 64 << 10
	asideTime     = 5 * time.Second // for messages beside a call
	maxAsides     = 16
)

// transport is the default way out. It takes no proxy from the environment,
// and drops idle connections before common servers do (5 s): a request that
// meets a closing connection would have an unknown outcome.
func transport() http.RoundTripper {
	return &http.Transport{
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        4 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
}

// A statusError is an HTTP status instead of an answer.
type statusError struct {
	code int
	text string // from the body, for the log
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP status %d: %s", e.code, e.text) }

// refused: statuses that tell that the request went no further.
func (e *statusError) refused() bool {
	switch e.code {
	case 301, 302, 303, 307, 308, 401, 404, 405, 406, 411, 413, 415, 421:
		return true
	}
	return false
}

func (e *statusError) hint() string {
	switch {
	case e.code == 401 || e.code == 403:
		return "the operator must give the gateway a valid credential for this server"
	case e.code >= 300 && e.code < 400:
		return "redirects to another place are not followed: the operator must configure the final url"
	case e.code == 404 || e.code == 405:
		return "the operator must check the server's url; the old HTTP+SSE transport is not supported"
	}
	return "try later; the call may have taken effect"
}

// webLink speaks streamable HTTP: each request is a POST.
type webLink struct {
	se     *session
	client *http.Client
	url    atomic.Pointer[url.URL] // moves with redirects within its origin
	id     atomic.Pointer[string]  // of the legacy session

	once   sync.Once
	over   chan struct{}
	err    error         // set before over is closed
	asides chan struct{} // bounds messages beside calls
}

var _ link = (*webLink)(nil)

func newWebLink(se *session) *webLink {
	l := &webLink{se: se, over: make(chan struct{}), asides: make(chan struct{}, maxAsides)}
	l.client = &http.Client{
		Transport:     se.s.o.HTTP,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if u, err := url.Parse(se.s.URL); err == nil {
		l.url.Store(u)
	}
	return l
}

func (l *webLink) done() <-chan struct{} { return l.over }

func (l *webLink) failure() error {
	select {
	case <-l.over:
		return l.err
	default:
		return errGone
	}
}

func (l *webLink) end(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.over)
	})
}

// close tells a legacy server that its session is over.
func (l *webLink) close(grace time.Duration) {
	lost := l.failure()
	l.end(errGone)
	if id := l.id.Load(); id != nil && !errors.Is(lost, errSession) && !errors.Is(lost, errNoConnection) {
		ctx, cancel := context.WithTimeout(context.Background(), min(grace, asideTime))
		defer cancel()
		if req, err := l.newRequest(ctx, http.MethodDelete, nil, request{}); err == nil {
			if resp, err := l.client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
}

// newRequest builds one HTTP request. The body can be sent once only: the
// HTTP client would otherwise repeat requests by itself.
func (l *webLink) newRequest(ctx context.Context, method string, body []byte, r request) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = struct{ io.Reader }{bytes.NewReader(body)}
	}
	req, err := http.NewRequestWithContext(ctx, method, l.url.Load().String(), reader)
	if err != nil {
		return nil, err
	}
	h := req.Header
	for name, values := range l.se.s.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	h.Set("Accept", wire.TypeJSON+", "+wire.TypeSSE)
	h.Set("User-Agent", "sallyport")
	if body != nil {
		req.ContentLength = int64(len(body))
		h.Set("Content-Type", wire.TypeJSON)
	}
	if l.se.version != "" {
		h.Set(wire.HeaderProtocolVersion, l.se.version)
	}
	if l.se.era == eraModern {
		h.Set(wire.HeaderMethod, r.method)
		if r.name != "" {
			h.Set(wire.HeaderName, wire.EncodeHeader(r.name))
		}
	} else if id := l.id.Load(); id != nil {
		h.Set(wire.HeaderSessionID, *id)
	}
	for name, value := range r.header {
		h.Set(name, value)
	}
	return req, nil
}

func (l *webLink) exchange(ctx context.Context, r request) (wire.Message, error) {
	select {
	case <-l.over:
		return wire.Message{}, outcome.NotSent(l.err)
	default:
	}
	msg := wire.Message{ID: r.rawID(), Method: r.method, Params: r.params}
	resp, err := l.post(ctx, msg.Append(nil), r)
	if err == nil {
		var m wire.Message
		m, err = l.answer(ctx, resp, r)
		if err == nil {
			return m, nil
		}
	}
	if ctx.Err() != nil {
		if errors.Is(err, sallyport.ErrNotExecuted) {
			return wire.Message{}, outcome.NotSent(ctx.Err())
		}
		if !r.quiet && l.se.era == eraLegacy { // modern: hanging up says it
			params := fmt.Appendf(nil, `{"requestId":%d,"reason":"the caller gave up"}`, r.id)
			l.aside(wire.Message{Method: "notifications/cancelled", Params: params})
		}
		return wire.Message{}, ctx.Err()
	}
	if errors.Is(err, errNoConnection) { // the supervisor looks for it from now on
		lost := l.se.s.fail(fmt.Errorf("%w (%w)", err, errGone))
		l.end(lost)
		return wire.Message{}, outcome.NotSent(lost)
	}
	return wire.Message{}, err
}

// post sends a body, and again where the same origin says it has moved.
func (l *webLink) post(ctx context.Context, body []byte, r request) (*http.Response, error) {
	for hop := 0; ; hop++ {
		// A body cut short is no message: the server cannot have acted on it.
		var began, cut atomic.Bool
		trace := &httptrace.ClientTrace{
			WroteHeaders: func() { began.Store(true); cut.Store(false) },
			WroteRequest: func(i httptrace.WroteRequestInfo) { cut.Store(i.Err != nil) },
		}
		req, err := l.newRequest(httptrace.WithClientTrace(ctx, trace), http.MethodPost, body, r)
		if err != nil {
			return nil, outcome.NotSent(err)
		}
		resp, err := l.client.Do(req)
		if err != nil {
			if ue, ok := errors.AsType[*url.Error](err); ok {
				err = ue.Err // the address is the operator's, not for agents
			}
			if !began.Load() || cut.Load() {
				return nil, outcome.NotSent(fmt.Errorf("%w: %w", errNoConnection, err))
			}
			return nil, err
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
func (l *webLink) answer(ctx context.Context, resp *http.Response, r request) (wire.Message, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return l.refusal(resp, kind)
	}
	if id := resp.Header.Get(wire.HeaderSessionID); id != "" && r.method == "initialize" {
		l.id.Store(&id)
	}
	switch kind {
	case wire.TypeJSON:
		defer func() { _ = resp.Body.Close() }()
		body, err := readAll(resp.Body, l.se.s.o.MaxMessage)
		if err != nil {
			return wire.Message{}, err
		}
		return parseAnswer(body, r)
	case wire.TypeSSE:
		return l.stream(ctx, resp, r)
	}
	_ = resp.Body.Close()
	return wire.Message{}, fmt.Errorf("%w: content type %.80q", errMalformed, resp.Header.Get("Content-Type"))
}

// readAll reads a body of at most max bytes, counted after decompression.
func readAll(r io.Reader, max int) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, int64(max)+1))
	if err == nil && len(body) > max {
		err = errTooLarge
	}
	return body, err
}

func parseAnswer(body []byte, r request) (wire.Message, error) {
	m, err := wire.ParseMessage(body)
	if err != nil {
		return m, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !m.IsResponse() || m.ID != nil && string(m.ID) != string(r.rawID()) {
		return m, fmt.Errorf("%w: it is not the answer to the request", errMalformed)
	}
	return m, nil
}

// errSession: the server does not know the session any more.
var errSession = errors.New("upstream_session_lost")

// refusal makes an error of a status; a JSON-RPC error in the body counts.
func (l *webLink) refusal(resp *http.Response, kind string) (wire.Message, error) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	m, err := wire.ParseMessage(body)
	isError := kind == wire.TypeJSON && err == nil && m.Error != nil
	text := line.Printable(string(body), 200)
	if isError {
		text = line.Printable(m.Error.Message, 200)
	}
	if l.se.era == eraLegacy && l.id.Load() != nil {
		// 404 is what the protocol says; some servers answer 400 and name the session.
		if resp.StatusCode == 404 || resp.StatusCode == 400 && isError && m.ID == nil && strings.Contains(strings.ToLower(text), "session") {
			lost := &sallyport.Error{
				Code: sallyport.Unavailable, Step: sallyport.Execute,
				Message: fmt.Sprintf("upstream_session_lost: server %q does not know its session any more", l.se.s.Name),
				Hint:    "try again", Err: fmt.Errorf("%w (%w)", errSession, errGone),
			}
			l.end(lost)
			return m, outcome.NotSent(lost)
		}
	}
	if isError && resp.StatusCode < 500 && resp.StatusCode != 401 && resp.StatusCode != 403 {
		return m, nil
	}
	return wire.Message{}, &statusError{resp.StatusCode, text}
}

// aside sends a message beside a call, in the background; where too many are
// on their way, it is dropped.
func (l *webLink) aside(m wire.Message) {
	select {
	case l.asides <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-l.asides }()
		ctx, cancel := context.WithTimeout(context.Background(), asideTime)
		defer cancel()
		_ = l.send(ctx, m)
	}()
}

// send posts a message that gets no answer.
func (l *webLink) send(ctx context.Context, m wire.Message) error {
	resp, err := l.post(ctx, m.Append(nil), request{method: m.Method})
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return &statusError{resp.StatusCode, m.Method}
	}
	return nil
}

func (l *webLink) inform(ctx context.Context, method string, params json.RawMessage) error {
	return l.send(ctx, wire.Message{Method: method, Params: params})
}
