package held_test

import (
	"context"
	"errors"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/test/await"
)

// lasting is a call of who that becomes a task, if there is room, and ends with err when
// end is closed.
func lasting(who string, end <-chan struct{}, err error) held.Run {
	return func(ctx context.Context, req sallyport.Request) (sallyport.Result, error) {
		req.Lasts(sallyport.Lasting{CallID: "call_1", Owner: who, Binding: "binding of " + who})
		select {
		case <-end:
		case <-ctx.Done():
		}
		return sallyport.Result{}, err
	}
}

// Tasks that have ended keep no others away, however they did. Those that run do.
func TestTasksThatEndedMakeRoom(t *testing.T) {
	c := open(t, func(o *held.Options) { o.PerOwner = 1 })
	begin := func(end <-chan struct{}, err error) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience) // one that becomes no task is waited for
		defer cancel()
		res, _ := c.Begin(ctx, sallyport.Request{Tasks: true}, lasting("ann", end, err))
		return res.Task
	}
	for _, err := range []error{errors.New("it broke"), nil} {
		end := make(chan struct{})
		if begin(end, err) == "" {
			t.Fatal("no task")
		}
		close(end)
		await.That(t, "it ends", func() bool { return c.Waiting() == 0 })
	}
	now, later := make(chan struct{}), make(chan struct{})
	close(now)
	if begin(later, nil) == "" || begin(now, nil) != "" {
		t.Error("a task that runs made room")
	}
	close(later)
	await.That(t, "it ends", func() bool { return c.Waiting() == 0 })
}
