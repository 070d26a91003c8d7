package oauth_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

func TestAgentCache(t *testing.T) {
	w := newWorld(t)
	for range 100 {
		if _, err := w.cache.Agent(context.Background(), "default", "claude"); err != nil {
			t.Fatal(err)
		}
	}
	if w.people.asked != 1 {
		t.Errorf("%d look-ups, want 1", w.people.asked)
	}
	w.advance(2 * time.Minute) // another gateway may have changed it
	_, _ = w.cache.Agent(context.Background(), "default", "claude")
	w.cache.Invalidate()
	_, _ = w.cache.Agent(context.Background(), "default", "claude")
	if w.people.asked != 3 {
		t.Errorf("%d look-ups, want 3", w.people.asked)
	}
	for range 3 { // what does not exist is not remembered
		if _, err := w.cache.Agent(context.Background(), "default", "nobody"); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Error(err)
		}
	}
	if w.people.asked != 6 {
		t.Errorf("%d look-ups, want 6", w.people.asked)
	}
}

// After Invalidate returns, nobody gets the agent as it was before.
func TestAgentCacheNeverServesTheOldOne(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = w.cache.Agent(context.Background(), "default", "claude")
				}
			}
		})
	}
	for i := range 2000 {
		a := sallyport.Agent{Tenant: "default", ID: "claude", State: "active", Roles: []string{fmt.Sprint(i)}}
		w.people.put(a)
		w.cache.Invalidate()
		if got, _ := w.cache.Agent(context.Background(), "default", "claude"); got.Roles[0] != a.Roles[0] {
			t.Errorf("roles %v, want %v", got.Roles, a.Roles)
			break
		}
	}
	close(done)
	wg.Wait()
}
