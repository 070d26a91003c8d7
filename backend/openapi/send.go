package openapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/turn"
	"sallyport.dev/sallyport/limit/bulk"
)

const maxHops = 4 // of requests for one call: redirects within an origin

// client speaks HTTP through checked connections. It takes no proxy from the
// environment and follows no redirect by itself. Answers are not unpacked: a
// packed one is refused, for it cannot be bounded before it is read.
func client(o Options) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            o.Dial,
			TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        4 * time.Second,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
		},
	}
}

// make makes one call. status is that of the answer, 0 if there is none.
func (a *api) make(ctx context.Context, job sallyport.Job) (out sallyport.Output, status int, err error) {
	built, err := request.Build(job.Tool.Route, job.Args)
	if err != nil {
		return out, 0, &sallyport.Error{
			Code: sallyport.Invalid, Step: sallyport.Execute, Message: err.Error(), Hint: "correct that argument", Err: sallyport.ErrNotExecuted,
		}
	}
	leave, err := a.enter(ctx, job.Who)
	if err != nil {
		return out, 0, err
	}
	defer leave()
	o := &outgoing{api: a, job: job, Request: built}
	if err := o.credentials(ctx); err != nil {
		return out, 0, err
	}
	resp, err := o.send(ctx)
	if err != nil {
		return out, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusUnauthorized {
		a.keys.forget() // a token that was taken back is not used again
	}
	answer, err := o.read(ctx, resp)
	if err != nil {
		return out, resp.StatusCode, a.fail(ctx, err)
	}
	return answer.present(job.Tool), resp.StatusCode, nil
}

// enter takes one of the API's places, and waits for one in line.
func (a *api) enter(ctx context.Context, who sallyport.Principal) (leave func(), err error) {
	leave, err = a.line.Enter(ctx, who.Tenant+" "+who.ID)
	if errors.Is(err, turn.ErrFull) || errors.Is(err, turn.ErrLong) {
		return nil, &sallyport.Error{
			Code: sallyport.RateLimited, Step: sallyport.Execute, RetryAfter: time.Second, Err: outcome.NotSent(err),
			Message: fmt.Sprintf("server %q has too many calls waiting", a.Name), Hint: "call again in a moment",
		}
	}
	if err != nil {
		return nil, outcome.NotSent(err)
	}
	return leave, nil
}

// An outgoing request, with what only the gateway knows.
type outgoing struct {
	request.Request
	api    *api
	job    sallyport.Job
	header http.Header // with credentials
	query  []string    // credentials
	cookie []string    // credentials
	hidden []hidden    // what must not come back
}

// safe tells whether HTTP says that the method asks only.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// new makes the request. The key's header has a name in small letters: Go's client
// would otherwise repeat requests with an Idempotency-Key by itself.
func (o *outgoing) new(ctx context.Context, target string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, o.Method, target, bytes.NewReader(o.Body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	for _, pair := range o.Header {
		h.Add(pair[0], pair[1])
	}
	if h.Get("Accept") == "" {
		h.Set("Accept", "application/json, */*;q=0.5")
	}
	h.Set("User-Agent", "sallyport/"+o.api.b.o.Version)
	if o.Type != "" && o.Body != nil {
		h.Set("Content-Type", o.Type)
	}
	if o.job.Key != "" && !safe(o.Method) {
		h["idempotency-key"] = []string{o.job.Key}
	}
	if o.job.Trace != "" {
		h.Set("Traceparent", o.job.Trace)
	}
	for name, values := range o.header {
		h[name] = values
	}
	cookies := o.cookie
	if o.Cookie != "" {
		cookies = append([]string{o.Cookie}, cookies...)
	}
	if len(cookies) > 0 {
		h.Set("Cookie", strings.Join(cookies, "; "))
	}
	return req, nil
}

// send sends the request, and again where the same origin says that what is asked
// for has moved: only what asks, and only without a credential.
func (o *outgoing) send(ctx context.Context) (*http.Response, error) {
	at, err := url.Parse(o.URL)
	if err != nil {
		return nil, outcome.NotSent(err)
	}
	for hop := 1; ; hop++ {
		target := at.String()
		if hop == 1 {
			target = o.URL // as it was built
		}
		if len(o.query) > 0 {
			join := "?"
			if strings.Contains(target, "?") {
				join = "&"
			}
			target += join + strings.Join(o.query, "&")
		}
		var began atomic.Bool
		// Other than of a message, a server may have acted on a part of a body.
		trace := &httptrace.ClientTrace{WroteHeaders: func() { began.Store(true) }}
		req, err := o.new(httptrace.WithClientTrace(ctx, trace), target)
		if err != nil {
			return nil, outcome.NotSent(err)
		}
		resp, err := o.api.b.client.Do(req)
		if err != nil {
			return nil, o.lost(ctx, began.Load(), plain(err))
		}
		next, moved := elsewhere(resp, at)
		if !moved || hop == maxHops || !safe(o.Method) || o.credentialed() {
			return resp, nil
		}
		_ = resp.Body.Close()
		at = next
	}
}

func (o *outgoing) credentialed() bool { return len(o.header)+len(o.query)+len(o.cookie) > 0 }

// elsewhere is where a redirect leads, if that is the same origin.
func elsewhere(resp *http.Response, at *url.URL) (*url.URL, bool) {
	switch resp.StatusCode {
	case 301, 302, 303, 307, 308:
	default:
		return nil, false
	}
	next, err := resp.Location()
	if err != nil || next.Scheme != at.Scheme || !strings.EqualFold(next.Host, at.Host) || next.User != nil {
		return nil, false
	}
	return next, true
}

// lost is the error of a request without an answer.
func (o *outgoing) lost(ctx context.Context, sent bool, err error) error {
	if ctx.Err() != nil {
		if sent {
			return ctx.Err()
		}
		return outcome.NotSent(ctx.Err())
	}
	if sent {
		return o.api.fail(ctx, err)
	}
	message, hint := "no connection", "try later; the operator must check the server's address"
	if r, ok := errors.AsType[refused](err); ok {
		message, hint = r.reason, "the operator must list the range in egress.private, if it is meant"
	}
	return outcome.Unavailable(err, fmt.Sprintf("server %q is not available: %s", o.api.Name, message), hint)
}

// refused is the error of an address that is not connected to.
type refused struct{ reason string }

func (r refused) Error() string { return r.reason }

// Refused is an error of Options.Dial that says why an address is not connected
// to, without the address.
func Refused(reason string) error { return refused{reason} }

// plain takes the address out of an error: it is the operator's, and may carry a
// credential.
func plain(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// fail is the error of a call that was sent and whose answer is not usable.
func (a *api) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &sallyport.Error{
		Code: sallyport.Upstream, Step: sallyport.Execute, Err: err,
		Message: fmt.Sprintf("server %q ended the connection before its answer was complete", a.Name),
		Hint:    outcome.MayHaveActed,
	}
	if errors.Is(err, errTooLarge) || errors.Is(err, errPacked) {
		e.Message = fmt.Sprintf("server %q: %v", a.Name, err)
	}
	return e
}

var (
	errTooLarge = errors.New("response_too_large: its answer has more bytes than are taken")
	errPacked   = errors.New("its answer is packed, though that was not asked for")
)

// read takes the answer in, without the credentials that it may repeat.
func (o *outgoing) read(ctx context.Context, resp *http.Response) (answer, error) {
	out := answer{status: resp.StatusCode, kind: resp.Header.Get("Content-Type"), method: o.Method}
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return out, errPacked
	}
	limit := cmp.Or(o.api.MaxBody, o.api.b.o.MaxBody)
	if resp.StatusCode >= 300 {
		limit = min(limit, maxError)
	}
	body, long, err := bulk.Read(ctx, resp.Body, resp.ContentLength, limit, o.job.Room)
	switch {
	case resp.StatusCode >= 300:
		out.cut = long || err != nil // what there is of it will do
		body = body[:min(len(body), limit)]
	case err != nil:
		return out, err
	case long:
		return out, errTooLarge
	}
	if at, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		out.moved = mask(at.Redacted(), o.hidden)
	}
	out.body = []byte(mask(string(body), o.hidden))
	for _, name := range []string{"Location", "Link", "ETag", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" && out.moved == "" && len(v) < maxError {
			out.notes = append(out.notes, name+": "+mask(v, o.hidden))
		}
	}
	return out, nil
}
