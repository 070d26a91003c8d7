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

// Tasks that have failed are kept for as long as there is room: they keep no others away.
// Those that run do, and nobody makes room at another's cost.
func TestFailedTasksMakeRoom(t *testing.T) {
	c := open(t, func(o *held.Options) { o.PerOwner = 1 })
	begin := func(who string, end <-chan struct{}, err error) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience) // one that becomes no task is waited for
		defer cancel()
		res, _ := c.Begin(ctx, sallyport.Request{Tasks: true}, lasting(who, end, err))
		return res.Task
	}
	now, later := make(chan struct{}), make(chan struct{})
	close(now)
	broke := errors.New("it broke")
	why := func(who, task string) error {
		l, err := c.Named(task, "binding of "+who)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Visit(t.Context(), l, sallyport.Visit{})
		return err
	}
	failed := func(who string) (task string) {
		end := make(chan struct{})
		if task = begin(who, end, broke); task == "" {
			t.Fatalf("no task of %s's", who)
		}
		close(end)
		await.That(t, "it fails", func() bool { return errors.Is(why(who, task), broke) })
		return task
	}
	bobs, first := failed("bob"), failed("ann")
	if begin("ann", later, nil) == "" {
		t.Fatal("a task that has failed keeps another one away")
	}
	if errors.Is(why("ann", first), broke) || !errors.Is(why("bob", bobs), broke) {
		t.Error("it did not make room, or another's did")
	}
	if begin("ann", now, nil) != "" {
		t.Error("a task that runs made room")
	}
	close(later)
	await.That(t, "it ends", func() bool { return c.Waiting() == 1 })
}
