package failure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/backend/upstream/failure"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/wire"
)

func TestWhatFailedCallsSay(t *testing.T) {
	t.Parallel()
	noWay := outcome.NotSent(fmt.Errorf("%w: dial tcp 10.0.0.7:80: refused", link.ErrNoConnection))
	ours := &sallyport.Error{Code: sallyport.RateLimited, Message: "later"}
	for name, tt := range map[string]struct {
		err     error
		code    sallyport.Code
		never   bool // it certainly did not run
		says    string
		verdict breaker.Verdict
	}{
		"ours":          {ours, sallyport.RateLimited, false, "later", breaker.Failed},
		"too large":     {link.ErrTooLarge, sallyport.Upstream, false, "larger than 7 bytes", breaker.Served},
		"malformed":     {link.ErrMalformed, sallyport.Upstream, false, "malformed", breaker.Served},
		"unknown":       {&wire.Error{Code: wire.CodeMethodNotFound}, sallyport.Upstream, true, "(no message)", breaker.Served},
		"its own":       {&wire.Error{Code: wire.CodeInternal, Message: "a\x1bb"}, sallyport.Upstream, false, "error -32603", breaker.Served},
		"401":           {&status.Error{Code: 401}, sallyport.Upstream, true, "HTTP status 401", breaker.Served},
		"500":           {&status.Error{Code: 500}, sallyport.Upstream, false, "HTTP status 500", breaker.Failed},
		"502":           {&status.Error{Code: 502}, sallyport.Upstream, false, "HTTP status 502", breaker.Failed},
		"no connection": {noWay, sallyport.Unavailable, true, `server "s": no connection`, breaker.Untold},
		"breaks off":    {errors.New("unexpected EOF"), sallyport.Upstream, false, "unexpected EOF", breaker.Failed},
	} {
		err := failure.Of(tt.err, "s", 7)
		if sallyport.CodeOf(err) != tt.code || errors.Is(err, sallyport.ErrNotExecuted) != tt.never || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || strings.ContainsAny(e.Message, "\x1b") || strings.Contains(e.Message, "10.0.0.7") {
			t.Errorf("%s: %q is not safe to show", name, e.Message)
		}
		if got := failure.Verdict(tt.err); got != tt.verdict {
			t.Errorf("%s: verdict %v", name, got)
		}
	}
	if err := failure.Of(context.Canceled, "s", 7); err != context.Canceled || failure.Verdict(err) != breaker.Untold {
		t.Errorf("a call that was given up: %v", err)
	}
	if brief, detail := failure.Brief(noWay), failure.Detail(noWay); brief != "no connection" || !strings.HasSuffix(detail, "10.0.0.7:80: refused") {
		t.Errorf("%q to callers, %q to the operator", brief, detail)
	}
}
