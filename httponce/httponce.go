// Package httponce sends HTTP requests that must not be acted on twice, and tells
// whether one may have been.
package httponce

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
)

// Client follows no redirect: what is sent goes where it was meant to go.
func Client(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// SetBody gives a request a body that Go's client cannot send again by itself, as it
// would where a kept connection breaks.
func SetBody(req *http.Request, b []byte) {
	req.Body, req.GetBody, req.ContentLength = io.NopCloser(bytes.NewReader(b)), nil, int64(len(b))
}

// Do sends a request whose body makes sense only as a whole. Where that fails, sent
// is false if the server certainly has not acted on it: nothing went out, or the body
// was cut short. The error does not hold the address, which may be a secret.
func Do(c *http.Client, req *http.Request) (resp *http.Response, sent bool, err error) {
	var began, cut atomic.Bool
	trace := &httptrace.ClientTrace{
		WroteHeaders: func() { began.Store(true); cut.Store(false) },
		WroteRequest: func(i httptrace.WroteRequestInfo) { cut.Store(i.Err != nil) },
	}
	resp, err = c.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return resp, began.Load() && !cut.Load(), err
}
