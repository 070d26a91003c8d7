// Package gcra counts events against rates: the generic cell rate algorithm,
// one time stamp per key, with a bound on how many keys are remembered.
package gcra

import (
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// A Rate allows Burst events at once and one more every Every after that.
type Rate struct {
	Every time.Duration // zero means no limit
	Burst int           // at least 1
}

// PerSecond returns the rate of n events a second with a burst.
// n ≤ 0 means no limit.
func PerSecond(n float64, burst int) Rate {
	if n <= 0 {
		return Rate{}
	}
	return Rate{Every: max(1, time.Duration(float64(time.Second)/n)), Burst: max(1, burst)}
}

// Next says whether n events may happen at now, given tat, the time at which
// the key is idle again. It returns the new tat; or, when they may not, the
// time to wait. More than Burst events at once are never allowed; wait is then
// the time until the key is idle.
//
// Times are nanoseconds of any one clock.
func (r Rate) Next(tat, now int64, n int) (next int64, wait time.Duration, ok bool) {
	if r.Every == 0 || n <= 0 {
		return tat, 0, true
	}
	every := int64(r.Every)
	if int64(n) > math.MaxInt64/4/every || int64(r.Burst) > math.MaxInt64/4/every {
		return tat, time.Duration(max(0, tat-now)), false
	}
	next = max(tat, now) + every*int64(n)
	over := next - now - every*int64(r.Burst)
	if over > 0 {
		return tat, time.Duration(over), false
	}
	return next, 0, true
}

const shards = 16

// A Table remembers a rate for each of many keys. When it is full, idle keys
// go first, then the one of a small sample that will be idle soonest.
// It is safe for concurrent use.
type Table struct {
	rate Rate
	each int // keys per shard
	seed maphash.Seed
	sets [shards]shard
}

type shard struct {
	mu   sync.Mutex
	tats map[string]int64
}

// NewTable returns a table of at most about keys keys.
func NewTable(rate Rate, keys int) *Table {
	t := &Table{rate: rate, each: max(1, keys/shards), seed: maphash.MakeSeed()}
	for i := range t.sets {
		t.sets[i].tats = make(map[string]int64)
	}
	return t
}

// Wait reports how long the key must wait for one event, without counting it.
func (t *Table) Wait(key string, now time.Time) time.Duration {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wait, _ := t.rate.Next(s.tats[key], now.UnixNano(), 1)
	return wait
}

// Add counts one event. It reports whether the rate allowed it; one that it
// did not allow is not counted.
func (t *Table) Add(key string, now time.Time) bool {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	tat, known := s.tats[key]
	next, _, ok := t.rate.Next(tat, now.UnixNano(), 1)
	if !ok {
		return false
	}
	if !known && len(s.tats) >= t.each {
		s.evict(now.UnixNano())
	}
	s.tats[key] = next
	return true
}

// Len returns the number of keys remembered.
func (t *Table) Len() int {
	n := 0
	for i := range t.sets {
		t.sets[i].mu.Lock()
		n += len(t.sets[i].tats)
		t.sets[i].mu.Unlock()
	}
	return n
}

func (t *Table) shard(key string) *shard {
	return &t.sets[maphash.String(t.seed, key)%shards]
}

// evict frees at least one place. It looks at a bounded number of keys (map
// order is random), so that a flood of keys does not make each of them slow.
// Preconditions: s.mu is held and s.tats is not empty.
func (s *shard) evict(now int64) {
	const sample = 32
	soonest, at, seen, freed := "", int64(math.MaxInt64), 0, false
	for key, tat := range s.tats {
		if tat <= now {
			delete(s.tats, key)
			freed = true
		} else if tat < at {
			soonest, at = key, tat
		}
		if seen++; seen >= sample {
			break
		}
	}
	if !freed {
		delete(s.tats, soonest)
	}
}
