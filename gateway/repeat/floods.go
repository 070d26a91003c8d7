package repeat

import (
	"sync"
	"time"
)

// Floods notes which principals ask humans for too much, so that each is
// reported once a minute.
type Floods struct {
	mu   sync.Mutex
	told map[string]time.Time // guarded by mu; by tenant and principal
}

const (
	floodPause = time.Minute
	maxFloods  = 10_000
)

// Speak reports whether this flood is to be told.
func (f *Floods) Speak(who string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.told[who]); since >= 0 && since < floodPause {
		return false
	}
	if f.told == nil || len(f.told) >= maxFloods {
		f.told = map[string]time.Time{}
	}
	f.told[who] = now
	return true
}
