// Package repeat keeps a gateway from writing down again what it has written a
// moment ago. It remembers in this process only: each zero value is ready for use.
package repeat

import (
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// strangerEvery is how often a refusal of somebody unknown is written down.
const strangerEvery = time.Second

// Strangers keeps those who have no good token from filling the record: of
// their refusals one per second is an entry, which says for how many it stands.
type Strangers struct {
	mu     sync.Mutex
	last   time.Time
	silent int
}

// Speak reports whether this refusal becomes an entry, and counts it if not.
func (s *Strangers) Speak(r *sallyport.Record, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.last); since >= 0 && since < strangerEvery { // a clock set back silences nobody
		s.silent++
		return false
	}
	r.Unrecorded, s.silent, s.last = s.silent, 0, now
	return true
}
