package openapi_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/backend/upstream/breaker"
)

// An API that does not serve gets no more calls, then one, and all again once it
// serves; what it answers, errors too, never counts.
func TestCircuit(t *testing.T) {
	var status, calls, passed atomic.Int64
	begun := time.Now()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if n := int(status.Load()); n > 0 {
			w.WriteHeader(n)
			return
		}
		if status.Load() < 0 {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(srv.Close)
	w := open(t, startPeer(t), func(c *openapi.Config, o *openapi.Options) {
		c.Document = `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"servers":[{"url":"` + srv.URL + `"}],"paths":{"/x":{"get":{"operationId":"x","responses":{"200":{"description":"ok"}}}}}}`
		o.Breaker = breaker.Config{Failures: 3, Now: func() time.Time { return begun.Add(time.Duration(passed.Load())) }}
	})
	circuit := func() openapi.Status { return w.Status()[0] }
	for _, n := range []int64{200, 400, 404, 429, 500, 501} {
		status.Store(n)
		for range 4 {
			_, _ = w.call(t, "x", `{}`)
		}
		if st := circuit(); st.Circuit != breaker.Closed {
			t.Errorf("status %d: %+v", n, st)
		}
	}
	for _, n := range []int64{502, 503, -1} {
		status.Store(n)
		for range 3 {
			_, _ = w.call(t, "x", `{}`)
		}
		before := calls.Load()
		_, err := w.call(t, "x", `{}`)
		e, _ := errors.AsType[*sallyport.Error](err)
		if e == nil || e.Code != sallyport.Unavailable || e.RetryAfter <= 0 || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(e.Message, "circuit open") || calls.Load() != before {
			t.Fatalf("status %d: %+v, %d calls more", n, e, calls.Load()-before)
		}
		if st := circuit(); st.Circuit != breaker.Open || !strings.Contains(st.Error, "circuit open") {
			t.Errorf("%+v", st)
		}
		status.Store(0)
		passed.Add(int64(e.RetryAfter))
		_, _ = w.call(t, "x", `{}`)
		if st := circuit(); st.Circuit != breaker.Closed || st.Error != "" {
			t.Errorf("it is well again, and %+v", st)
		}
	}
}
