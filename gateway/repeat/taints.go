package repeat

import (
	"sync"
	"time"

	"sallyport.dev/sallyport"
)

// Taints remembers until when a principal is known to be tainted, so that not every
// result is a write.
type Taints struct {
	mu    sync.Mutex // guards until
	until map[[2]string]time.Time
}

const maxTaints = 10_000

// Lasts tells whether a taint that is on record lasts nearly as long as t.
func (c *Taints) Lasts(t sallyport.Taint, length time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until[[2]string{t.Tenant, t.Principal}].After(t.Until.Add(-length / 10))
}

// Wrote notes that a taint is on record.
func (c *Taints) Wrote(t sallyport.Taint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxTaints {
		c.until = map[[2]string]time.Time{}
	}
	c.until[[2]string{t.Tenant, t.Principal}] = t.Until
}
