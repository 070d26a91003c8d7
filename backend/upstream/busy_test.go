package upstream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream/breaker"
)

// A call does not wait in line for longer than is said.
func TestWaitInLineIsBounded(t *testing.T) {
	t.Parallel()
	c := server("s", "legacy")
	c.Calls, c.Wait = 1, 100*time.Millisecond
	b := open(t, options(), c)
	mustText(t, b, "s", "echo", `{}`)
	running := make(chan struct{})
	go func() {
		job := backendtest.Job(tool("s", "hang"), `{}`)
		job.Notify = func(sallyport.Notice) { close(running) }
		_, _ = b.Run(t.Context(), job)
	}()
	<-running
	_, err := call(t, b, "s", "echo", `{}`)
	e, _ := errors.AsType[*sallyport.Error](err)
	if e == nil || e.Code != sallyport.RateLimited || e.RetryAfter <= 0 || !errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(e.Message, "1 calls at once for 100ms") {
		t.Errorf("%+v", e)
	}
	if st := status(t, b, "s"); st.Circuit != breaker.Closed {
		t.Errorf("%+v", st)
	}
}
