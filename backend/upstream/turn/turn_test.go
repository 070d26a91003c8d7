package turn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport/backend/upstream/turn"
)

// Who has many waiting keeps nobody out: turns go round, and in a full line the one
// with the most gives way.
func TestTurnsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := turn.New(1, 6, time.Minute)
		first, err := l.Enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var came []string
		var full atomic.Int64
		enter := func(who string) {
			go func() {
				leave, err := l.Enter(t.Context(), who)
				if errors.Is(err, turn.ErrFull) {
					full.Add(1)
					return
				}
				mu.Lock()
				came = append(came, who)
				mu.Unlock()
				time.Sleep(time.Second)
				leave()
			}()
			synctest.Wait()
		}
		for range 7 {
			enter("a") // the last one finds the line full
		}
		if full.Load() != 1 {
			t.Errorf("%d were turned away, want 1", full.Load())
		}
		enter("b")
		enter("b")
		enter("c")
		if full.Load() != 4 {
			t.Errorf("%d were turned away, want 4", full.Load())
		}
		first()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := strings.Join(came, ""); got != "abcaba" {
			t.Errorf("they came in as %s", got)
		}
		if _, ok := l.Empty(); !ok {
			t.Error("somebody is still there")
		}
	})
}

// Whoever gives up, and however, there are never more inside than places, and none
// is lost.
func TestPlacesAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := turn.New(3, 20, 40*time.Millisecond)
		var inside, most atomic.Int64
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				time.Sleep(time.Duration(i%37) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%50)*time.Millisecond)
				defer cancel()
				leave, err := l.Enter(ctx, fmt.Sprint("who", i%5))
				if err != nil {
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				inside.Add(-1)
				leave()
			})
		}
		all.Wait()
		if most.Load() > 3 {
			t.Errorf("%d were inside at once", most.Load())
		}
		if _, ok := l.Empty(); !ok {
			t.Error("a place is lost")
		}
		for range 3 {
			if _, err := l.Enter(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		}
		if _, err := l.Enter(t.Context(), "x"); !errors.Is(err, turn.ErrLong) {
			t.Errorf("%v, want that the wait was too long", err)
		}
	})
}
