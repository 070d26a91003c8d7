package gateway

import (
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// strangerEvery is how often a refusal of somebody unknown is written down.
const strangerEvery = time.Second

// strangers keeps those who have no good token from filling the record: of
// their refusals one per second is an entry, which says for how many it stands.
type strangers struct {
	mu     sync.Mutex
	last   time.Time
	silent int
}

// speak reports whether this refusal becomes an entry, and counts it if not.
func (s *strangers) speak(r *sallyport.Record, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.last); since >= 0 && since < strangerEvery { // a clock set back silences nobody
		s.silent++
		return false
	}
	r.Unrecorded, s.silent, s.last = s.silent, 0, now
	return true
}
