// Package limit bounds what one principal may ask for at once: calls and bytes
// per second, calls in flight, and the size of one request. It is the admit
// step of the path: cheap, in memory, and before anything that costs more.
//
// Limits belong to the principal, never to a connection or a session, so more
// sessions buy nothing.
package limit

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
)

// A Config says how much one principal may have. Zero fields mean the default;
// negative ones mean no limit.
type Config struct {
	Rate        float64 // calls per second, 100
	Burst       int     // calls at once, 2 × Rate
	Bytes       int64   // per second, 32 MiB
	Body        int     // bytes of one request, 4 MiB
	Concurrency int     // calls in flight of one principal, 64
	Total       int     // calls in flight of all principals, 4096
	Principals  int     // remembered at once, 65536

	Now func() time.Time // time.Now
}

// retryInFlight is the wait suggested when all slots are taken: nobody knows
// when one is given back.
const retryInFlight = 100 * time.Millisecond

const shards = 64

// A Limiter implements gateway.Limiter. It is safe for concurrent use.
type Limiter struct {
	calls, bytes gcra.Rate
	body         int   // bytes of one request
	concurrent   int   // calls in flight of one principal
	most         int64 // calls in flight of all
	each         int   // principals per shard
	now          func() time.Time
	total        atomic.Int64
	seed         maphash.Seed
	sets         [shards]shard
}

type key struct{ tenant, id string }

type shard struct {
	mu  sync.Mutex
	use map[key]*usage
}

// usage is what one principal has used; its shard's mu guards it.
type usage struct {
	calls, bytes int64 // time at which each is idle again
	inFlight     int
}

// New returns a limiter.
func New(c Config) *Limiter {
	c = c.withDefaults()
	l := &Limiter{
		calls: gcra.PerSecond(c.Rate, c.Burst),
		// One request of the allowed size always fits.
		bytes:      gcra.PerSecond(float64(c.Bytes), int(min(max(c.Bytes, int64(c.Body)), math.MaxInt32))),
		body:       c.Body,
		concurrent: c.Concurrency,
		most:       int64(c.Total),
		each:       max(1, c.Principals/shards),
		now:        c.Now,
		seed:       maphash.MakeSeed(),
	}
	for i := range l.sets {
		l.sets[i].use = make(map[key]*usage)
	}
	return l
}

func (c Config) withDefaults() Config {
	c.Rate = cmp.Or(c.Rate, 100)
	c.Burst = cmp.Or(c.Burst, max(1, int(2*max(0, c.Rate))))
	c.Bytes = cmp.Or(c.Bytes, 32<<20)
	c.Body = cmp.Or(c.Body, 4<<20)
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.Total = cmp.Or(c.Total, 4096)
	c.Principals = cmp.Or(c.Principals, 65536)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Admit takes one slot, one call and size bytes of the principal's rate; all
// or nothing. release gives the slot back; calling it again does nothing.
// Errors: TooLarge, and RateLimited with RetryAfter.
func (l *Limiter) Admit(who sallyport.Principal, size int) (release func(), err error) {
	if size < 0 || l.body > 0 && size > l.body {
		return nil, &sallyport.Error{
			Code: sallyport.TooLarge, Step: sallyport.Admit,
			Message: fmt.Sprintf("the request has %d bytes, at most %d are allowed", size, l.body),
			Hint:    "send less in one call; limits.body in sallyport.yaml sets the bound",
		}
	}
	if n := l.total.Add(1); l.most > 0 && n > l.most {
		l.total.Add(-1)
		return nil, limited("the gateway has its full number of calls in flight", retryInFlight)
	}
	k := key{who.Tenant, who.ID}
	s := l.shard(k)
	if err := l.take(s, k, size); err != nil {
		l.total.Add(-1)
		return nil, err
	}
	var released atomic.Bool
	return func() {
		if released.CompareAndSwap(false, true) {
			l.giveBack(s, k)
		}
	}, nil
}

func (l *Limiter) take(s *shard, k key, size int) error {
	now := l.now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.use[k]
	if u == nil {
		if len(s.use) >= l.each && !s.evict(now) {
			return limited("too many principals are active at once", retryInFlight)
		}
		u = &usage{}
		s.use[k] = u
	}
	if l.concurrent > 0 && u.inFlight >= l.concurrent {
		return limited(fmt.Sprintf("your calls in flight: %d, allowed at once: %d", u.inFlight, l.concurrent), retryInFlight)
	}
	calls, wait, ok := l.calls.Next(u.calls, now, 1)
	if !ok {
		return limited("too many calls", wait)
	}
	bytes, wait, ok := l.bytes.Next(u.bytes, now, size)
	if !ok {
		return limited("too many bytes", wait)
	}
	u.calls, u.bytes = calls, bytes
	u.inFlight++
	return nil
}

func (l *Limiter) giveBack(s *shard, k key) {
	l.total.Add(-1)
	s.mu.Lock()
	s.use[k].inFlight-- // an entry with calls in flight is never evicted
	s.mu.Unlock()
}

// evict frees at least one place if it can: a principal with nothing in flight
// and nothing to remember, else the one that will be idle soonest among a
// sample. It reports whether there is room.
// Preconditions: s.mu is held.
func (s *shard) evict(now int64) bool {
	const sample = 64
	var soonest key
	at, seen, freed := int64(math.MaxInt64), 0, false
	for k, u := range s.use {
		idle := max(u.calls, u.bytes)
		switch {
		case u.inFlight > 0:
		case idle <= now:
			delete(s.use, k)
			freed = true
		case idle < at:
			soonest, at = k, idle
		}
		if seen++; seen >= sample && (freed || at < math.MaxInt64) {
			break
		}
	}
	if !freed && at < math.MaxInt64 {
		delete(s.use, soonest)
		freed = true
	}
	return freed
}

// Principals returns how many principals are remembered.
func (l *Limiter) Principals() int {
	n := 0
	for i := range l.sets {
		l.sets[i].mu.Lock()
		n += len(l.sets[i].use)
		l.sets[i].mu.Unlock()
	}
	return n
}

func (l *Limiter) shard(k key) *shard {
	return &l.sets[maphash.Comparable(l.seed, k)%shards]
}

func limited(what string, wait time.Duration) error {
	return &sallyport.Error{
		Code: sallyport.RateLimited, Step: sallyport.Admit, Message: what,
		Hint: "wait for retry_after and try again", RetryAfter: max(wait, time.Millisecond),
	}
}
