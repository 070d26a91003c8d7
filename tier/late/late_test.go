package late

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

type one struct {
	tier.Tier
	mu     sync.Mutex
	closed int
}

func (*one) Probe(context.Context, string) (string, error) { return "it ran", nil }
func (*one) List() []tier.Running                          { return []tier.Running{{ID: "a"}} }
func (*one) Kill(id string) bool                           { return id == "a" }
func (o *one) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed++
	return nil
}

func TestOpensOnceWhenNeeded(t *testing.T) {
	inner, opened := &one{}, 0
	l := New(func(context.Context) (Opened, error) { opened++; return inner, nil })
	if l.List() != nil || l.Kill("a") || opened != 0 {
		t.Fatal("it was opened before anybody needed it")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if said, err := l.Probe(t.Context(), ""); said != "it ran" || err != nil {
				t.Error(said, err)
			}
		})
	}
	all.Wait()
	if opened != 1 || len(l.List()) != 1 || !l.Kill("a") {
		t.Errorf("opened %d times, %v", opened, l.List())
	}
	if err := l.Close(); err != nil || inner.closed != 1 {
		t.Error(err, inner.closed)
	}
	if _, err := l.Run(t.Context(), tier.Request{}); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Error(err)
	}
}

// What is lacking is said by all, and looked for again later, not at once.
func TestLacking(t *testing.T) {
	tries := 0
	l := New(func(context.Context) (Opened, error) { tries++; return nil, tier.Unavailable("install it", "no QEMU") })
	for range 3 {
		_, err := l.Probe(t.Context(), "")
		_, runErr := l.Run(t.Context(), tier.Request{})
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Message != "no QEMU" || !errors.Is(runErr, err) {
			t.Fatal(err, runErr)
		}
	}
	if tries != 1 {
		t.Errorf("tried %d times", tries)
	}
	l.tried = l.tried.Add(-again)
	_, _ = l.Probe(t.Context(), "")
	if tries != 2 {
		t.Errorf("tried %d times", tries)
	}
	if err := Lacking(errors.New("x")).Close(); err != nil {
		t.Error(err)
	}
}

// Who waits can give up; who closes waits for what is being opened, and closes it.
func TestEndsWhileItOpens(t *testing.T) {
	inner := &one{}
	l := New(func(ctx context.Context) (Opened, error) {
		<-ctx.Done()
		return inner, nil
	})
	l.Begin()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Probe(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := l.Close(); err != nil || inner.closed != 1 {
		t.Error(err, inner.closed)
	}
}
