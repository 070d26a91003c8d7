package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
)

// Calls beyond a server's places wait in a line, and beyond that are told to
// come back; none of those reached the server.
func TestFO19CallsWaitInLineThenComeBack(t *testing.T) {
	t.Parallel()
	c := server("s", "legacy")
	c.Calls, c.Queue = 2, 3
	b := open(t, options(), c)
	mustText(t, b, "s", "echo", `{}`)
	var wait sync.WaitGroup
	release := filepath.Join(t.TempDir(), "release")
	results := make(chan error, 20)
	for range 5 { // two run, three wait
		wait.Go(func() {
			err := error(&sallyport.Error{Code: sallyport.RateLimited})
			for sallyport.CodeOf(err) == sallyport.RateLimited { // a probe below may stand in the line just then
				_, err = b.Run(t.Context(), backendtest.Job(tool("s", "hold"), fmt.Sprintf(`{"until":%q}`, release)))
			}
			results <- err
		})
	}
	await.That(t, "the line is full", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // while there is room it waits, too
		defer cancel()
		_, err := b.Run(ctx, backendtest.Job(tool("s", "echo"), `{}`))
		e, ok := errors.AsType[*sallyport.Error](err)
		if ok && e.Code == sallyport.RateLimited && (e.RetryAfter <= 0 || !errors.Is(err, sallyport.ErrNotExecuted)) {
			t.Errorf("%+v", e)
		}
		return ok && e.Code == sallyport.RateLimited
	})
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	for range 5 {
		if err := <-results; err != nil {
			t.Errorf("a call that ran or waited: %v", err)
		}
	}
	mustText(t, b, "s", "echo", `{}`)
}

// A server that nobody calls is stopped, and the next call starts it again.
func TestFO19IdleServerIsStopped(t *testing.T) {
	t.Parallel()
	c := server("s", "legacy")
	c.Idle = 300 * time.Millisecond
	b := open(t, options(), c)
	var first string
	job := backendtest.Job(tool("s", "hang"), `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	job.Notify = func(sallyport.Notice) { // it is not idle meanwhile
		defer cancel()
		first = mustText(t, b, "s", "pid", `{}`)
		if _, err := os.Stat("/proc/" + strings.TrimSpace(first)); err != nil {
			t.Errorf("control: %v", err)
		}
	}
	if _, err := b.Run(ctx, job); err == nil {
		t.Error("it does not hang")
	}
	await.That(t, "it is stopped", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(first))
		return err != nil && status(t, b, "s").State == upstream.StateIdle
	})
	if st := status(t, b, "s"); st.Restarts != 0 || st.Error != "" {
		t.Errorf("being idle is no failure: %+v", st)
	}
	if second := mustText(t, b, "s", "pid", `{}`); second == first {
		t.Error("the same process answers")
	}
}
