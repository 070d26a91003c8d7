package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/gatewaytest"
	"sallyport.dev/sallyport/limit/bulk"
)

// large is a backend whose answers need room.
type large struct {
	backendFake
	fail   error
	inside atomic.Int64 // between the backend and the result
	most   atomic.Int64
}

func (b *large) Run(ctx context.Context, j sallyport.Job) (out sallyport.Output, err error) {
	if err := j.Room(ctx, 5*bulk.Light); err != nil {
		return out, err
	}
	if n := b.inside.Add(1); n > b.most.Load() {
		b.most.Store(n)
	}
	if b.fail != nil {
		b.inside.Add(-1)
	}
	return sallyport.Output{Content: json.RawMessage(`{"content":[]}`)}, b.fail
}

// slowly cleans, as it does what is large.
type slowly struct {
	gatewaytest.Plain
	b    *large
	meet *sync.WaitGroup // whom it waits for, nil for nobody
}

func (s slowly) Result(_ string, _ sallyport.Tool, out sallyport.Output) (json.RawMessage, bool, []string, error) {
	if time.Sleep(2 * time.Millisecond); s.meet != nil {
		s.meet.Done()
		s.meet.Wait()
	}
	s.b.inside.Add(-1)
	return out.Content, false, nil, nil
}

// FO-30: a large answer has its room until its result is made, whatever becomes of it.
func TestFO30_RoomUntilTheResult(t *testing.T) {
	w := newWorld(t)
	b := &large{backendFake: backendFake{w}}
	w.Backends["fake"], w.Sanitiser, w.Room = b, slowly{b: b}, bulk.New(10*bulk.Light)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := w.Call(t.Context(), call(`{}`)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := b.most.Load(); n > 2 {
		t.Errorf("%d large answers at once, there is room for 2", n)
	}
	var meet sync.WaitGroup // the control: without a bound three meet
	meet.Add(3)
	w.Room, w.Sanitiser = nil, slowly{b: b, meet: &meet}
	for range 3 {
		all.Go(func() { _, _ = w.Call(t.Context(), call(`{}`)) })
	}
	all.Wait()
	w.Room, b.fail = bulk.New(10*bulk.Light), errors.New("broken")
	for range 5 {
		if _, err := w.Call(t.Context(), call(`{}`)); err == nil {
			t.Error("no error")
		}
	}
}
