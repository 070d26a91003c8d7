// Package tenant bounds what all agents of one tenant do together, at every
// gateway of a database: calls a second, and calls in flight.
//
// The database counts, so the bounds are exact, and a gateway more does not add
// to them. A call costs one commit, and another in the background when it ends.
// Where the database does not answer, no call of a bounded tenant begins: it could
// be one too many, and its outcome could not be recorded either. The calls of a
// gateway that died count for Lasts more.
package tenant

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
	"sallyport.dev/sallyport/store"
)

const (
	patience  = 2 * time.Second // for the database to count a call
	lookAgain = 50 * time.Millisecond
	maxBatch  = 256
)

// Bounds are those of each tenant. Zero fields are no bound.
type Bounds struct {
	Rate        float64       // calls a second
	Burst       int           // calls at once, Rate if 0
	Concurrency int           // calls in flight
	Lasts       time.Duration // that a call counts after the last sign of its gateway, 15 s
}

// Any tells whether there is a bound.
func (b Bounds) Any() bool { return b.Rate > 0 || b.Concurrency > 0 }

// A Book counts for all gateways.
type Book interface {
	EnterCall(ctx context.Context, c store.TenantCall) (store.TenantRefusal, error)
	LeaveCalls(ctx context.Context, ids []string) error
	KeepCalls(ctx context.Context, ids []string, lasts time.Duration) error
}

// A Next is the limiter of each principal, which is asked first.
type Next interface {
	Admit(who sallyport.Principal, size int) (release func(), err error)
}

// A Limiter implements gateway.Limiter. Run must run beside it.
type Limiter struct {
	next   Next
	book   Book
	bounds Bounds
	log    *slog.Logger
	left   chan struct{} // holds one: there are calls that ended

	mu     sync.Mutex           // guards what follows
	open   map[string]bool      // calls in flight
	ended  []string             // calls that the book still counts
	closed map[string]time.Time // until when a tenant need not ask again
}

// New returns a limiter.
func New(next Next, book Book, b Bounds, log *slog.Logger) *Limiter {
	if b.Lasts == 0 {
		b.Lasts = 15 * time.Second
	}
	if b.Burst == 0 {
		b.Burst = max(1, int(b.Rate))
	}
	return &Limiter{
		next: next, book: book, bounds: b, log: log,
		left: make(chan struct{}, 1), open: map[string]bool{}, closed: map[string]time.Time{},
	}
}

// Admit takes what Next gives, and a place among the calls of the tenant.
func (l *Limiter) Admit(who sallyport.Principal, size int) (release func(), err error) {
	give, err := l.next.Admit(who, size)
	if err != nil {
		return nil, err
	}
	id, err := l.enter(who.Tenant)
	if err != nil {
		give()
		return nil, err
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			give()
			l.leave(id)
		})
	}, nil
}

func (l *Limiter) enter(of string) (id string, err error) {
	if wait := l.shut(of); wait > 0 {
		return "", limited("too many calls of your tenant", wait)
	}
	c := store.TenantCall{
		Tenant: of, ID: rand.Text(), Every: gcra.PerSecond(l.bounds.Rate, l.bounds.Burst).Every, Burst: l.bounds.Burst,
		Concurrency: l.bounds.Concurrency, Lasts: l.bounds.Lasts,
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.mu.Lock()
	l.open[c.ID] = true // from before it counts: a sign that comes too early does no harm
	l.mu.Unlock()
	refused, err := l.book.EnterCall(ctx, c)
	if err == nil && refused == (store.TenantRefusal{}) {
		return c.ID, nil
	}
	l.leave(c.ID) // nobody knows whether a failed transaction counted it
	switch {
	case err != nil:
		l.log.Error("the calls of a tenant cannot be counted", "tenant", of, "err", err)
		return "", &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Admit, RetryAfter: time.Second, Err: err,
			Message: "the calls of your tenant cannot be counted just now, so none begins", Hint: "try again after retry_after",
		}
	case refused.InFlight > 0:
		l.keepShut(of, lookAgain)
		return "", limited(fmt.Sprintf("calls of your tenant in flight: %d, allowed at once: %d", refused.InFlight, l.bounds.Concurrency), lookAgain)
	}
	l.keepShut(of, min(refused.Wait, time.Second))
	return "", limited(fmt.Sprintf("too many calls of your tenant: %g a second are allowed", l.bounds.Rate), refused.Wait)
}

func limited(what string, wait time.Duration) error {
	return &sallyport.Error{
		Code: sallyport.RateLimited, Step: sallyport.Admit, RetryAfter: wait,
		Message: what, Hint: "wait for retry_after and try again",
	}
}

// shut tells for how long a tenant that was refused need not ask the book again:
// one that floods costs the others nothing there.
func (l *Limiter) shut(of string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := time.Until(l.closed[of])
	if wait <= 0 {
		delete(l.closed, of)
	}
	return wait
}

func (l *Limiter) keepShut(of string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed[of] = time.Now().Add(d)
}

func (l *Limiter) leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
	l.ended = append(l.ended, id)
	select {
	case l.left <- struct{}{}:
	default:
	}
}

// Run tells the book which calls have ended, and of those that have not that they
// are in flight, until ctx ends; then of all that have ended until then.
func (l *Limiter) Run(ctx context.Context) {
	sign := time.NewTicker(l.bounds.Lasts / 5)
	defer sign.Stop()
	for {
		select {
		case <-l.left:
			l.tellEnded()
		case <-sign.C:
			l.tellOpen()
			l.tellEnded() // those that could not be told
		case <-ctx.Done():
			l.tellEnded()
			return
		}
	}
}

func (l *Limiter) tellEnded() {
	l.mu.Lock()
	ids := l.ended
	l.ended = nil
	l.mu.Unlock()
	for batch := range slices.Chunk(ids, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := l.book.LeaveCalls(ctx, batch)
		cancel()
		if err != nil { // they count until they lapse, or the next time
			l.log.Warn("ended calls cannot be told to the database", "err", err)
			l.mu.Lock()
			l.ended = append(l.ended, batch...)
			if over := len(l.ended) - 64*maxBatch; over > 0 {
				l.ended = l.ended[over:] // they lapse by themselves
			}
			l.mu.Unlock()
			return
		}
	}
}

func (l *Limiter) tellOpen() {
	l.mu.Lock()
	ids := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for batch := range slices.Chunk(ids, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := l.book.KeepCalls(ctx, batch, l.bounds.Lasts)
		cancel()
		if err != nil {
			l.log.Warn("calls in flight cannot be told to the database", "err", err)
			return
		}
	}
}
