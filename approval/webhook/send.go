package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sallyport.dev/sallyport/store"
)

// tryTime bounds one try.
const tryTime = 15 * time.Second

// newClient follows no redirect: a signed message goes where the operator said
// and nowhere else. What the operator wrote may be a private address.
func newClient(t http.RoundTripper) *http.Client {
	if t == nil {
		t = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		}
	}
	return &http.Client{Transport: t, Timeout: tryTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// A badStatus is an answer that is no success.
type badStatus int

func (s badStatus) Error() string {
	if s >= 300 && s < 400 {
		return fmt.Sprintf("it answered %d: redirects are not followed", int(s))
	}
	return fmt.Sprintf("it answered %d", int(s))
}

// gone reports whether the receiver said that it wants no more of this.
func gone(err error) bool {
	s, ok := errors.AsType[badStatus](err)
	return ok && s == http.StatusGone
}

// maxPause bounds how long a receiver may ask to be left alone.
const maxPause = time.Hour

// send sends a message once. Where it fails, after is how long the receiver
// asked to be left alone, if it did.
func (b *Outbox) send(ctx context.Context, h Hook, n store.Notice) (after time.Duration, err error) {
	text, err := b.secrets.Resolve(ctx, b.tenant, h.Secret)
	if err != nil {
		return 0, fmt.Errorf("its signing secret %s: %w", h.Secret, err)
	}
	key, err := parseSecret(text)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(n.Body))
	if err != nil {
		return 0, errors.New("its URL is none") // the error would quote the path
	}
	at := clock(b.o.Clock).Unix()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Sallyport")
	req.Header.Set(headerID, n.ID)
	req.Header.Set(headerTimestamp, strconv.FormatInt(at, 10))
	req.Header.Set(headerSignature, sign(key, n.ID, at, n.Body))
	resp, err := b.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, whose path may be a secret
		}
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // what it says does not matter
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return 0, nil
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		after = min(time.Duration(min(s, 86400))*time.Second, maxPause)
	}
	return after, badStatus(resp.StatusCode)
}
