package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

// Notices keep what is to be sent. (store/sqlite)
type Notices interface {
	// PutNotices puts in what is not there yet, while fewer than most wait, and
	// notes how far the hook has looked; dropped ones are kept as dead.
	PutNotices(ctx context.Context, tenant, hook string, swept time.Time, all []store.Notice, most int) (dropped int, err error)

	// ClaimNotices takes what is due; nobody else gets it before lease has
	// passed. A claim counts as a try.
	ClaimNotices(ctx context.Context, tenant, hook string, now time.Time, lease time.Duration, most int) ([]store.Notice, error)

	// SettleNotice stores what came of a try.
	SettleNotice(ctx context.Context, n store.Notice) error

	// RetryNotices gives dead ones another life.
	RetryNotices(ctx context.Context, tenant, hook string, e sallyport.Entry) (int, error)

	// CountNotices counts by hook and state.
	CountNotices(ctx context.Context, tenant string) ([]store.NoticeCount, error)
}

// Moves tell which tickets moved. (store/sqlite)
type Moves interface {
	// MovedTickets returns those that moved at since or later, in the order in
	// which they did, and when the last of them did.
	MovedTickets(ctx context.Context, tenant string, since time.Time, most int) ([]sallyport.Ticket, time.Time, error)

	// Swept tells since when a hook is there, and how far it has looked; zero
	// for one that never has.
	Swept(ctx context.Context, tenant, hook string) (began, swept time.Time, err error)

	// PruneWebhooks forgets what is over since before a time.
	PruneWebhooks(ctx context.Context, before time.Time) error
}

// Options set the outbox's clocks. The zero value is the default.
type Options struct {
	Poll      time.Duration     // how often tickets are looked at unasked, default 2 s
	GiveUp    time.Duration     // after which a message is dead, default 24 h
	First     time.Duration     // pause after the first failure, default 2 s; doubles up to 10 min
	Waiting   int               // messages of one hook that may wait, default 10,000
	Transport http.RoundTripper // default: TLS 1.2 or newer, verified, no proxy
	Clock     func() time.Time  // default time.Now
	Log       *slog.Logger      // default: nothing is logged
}

// An Outbox sends what happens to tickets.
type Outbox struct {
	tenant  string
	hooks   []Hook
	page    string
	notices Notices
	moves   Moves
	secrets Secrets
	mask    Mask
	client  *http.Client
	o       Options

	wake map[string]chan struct{} // by hook, capacity 1

	mu   sync.Mutex
	seen map[string]map[string]time.Time // ids put in lately, by hook: not composed again
}

// NewOutbox returns an outbox for the hooks that have a URL. page is where
// humans decide, "" for nowhere. Run sends.
func NewOutbox(tenant string, hooks []Hook, page string, notices Notices, moves Moves, secrets Secrets, mask Mask, o Options) *Outbox {
	def(&o.Poll, 2*time.Second)
	def(&o.GiveUp, 24*time.Hour)
	def(&o.First, 2*time.Second)
	def(&o.Waiting, 10_000)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Outbox{tenant: tenant, page: page, notices: notices, moves: moves, secrets: secrets, mask: mask, o: o,
		client: newClient(o.Transport), wake: map[string]chan struct{}{}, seen: map[string]map[string]time.Time{}}
	for _, h := range hooks {
		if h.URL != "" {
			b.hooks = append(b.hooks, h)
			b.wake[h.Name] = make(chan struct{}, 1)
			b.seen[h.Name] = map[string]time.Time{}
		}
	}
	return b
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Ticket implements approval.Notifier. The outbox is woken and looks for itself,
// so that what it tells does not depend on who was told what.
func (b *Outbox) Ticket(context.Context, approval.Event, sallyport.Ticket) { b.wakeAll() }

// wakeAll makes the outbox look now. It never waits.
func (b *Outbox) wakeAll() {
	for _, c := range b.wake {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Run sends until ctx ends. One hook that is slow or broken holds up no other.
func (b *Outbox) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, h := range b.hooks {
		wg.Go(func() { b.serve(ctx, h) })
	}
	if len(b.hooks) > 0 {
		wg.Go(func() { b.prune(ctx) })
	}
	wg.Wait()
}

func (b *Outbox) serve(ctx context.Context, h Hook) {
	t := time.NewTicker(b.o.Poll)
	defer t.Stop()
	for {
		if err := b.sweep(ctx, h); err != nil && ctx.Err() == nil {
			b.o.Log.Error("webhook: looking for news", "hook", h.Name, "err", err)
		}
		if err := b.deliver(ctx, h); err != nil && ctx.Err() == nil {
			b.o.Log.Error("webhook: sending", "hook", h.Name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.wake[h.Name]:
		}
	}
}

// overlap is how far back a sweep looks again: a ticket's time is taken before
// its transaction commits, and clocks of several gateways differ.
const overlap = time.Minute

const page = 200

// sweep puts what happened since the last one into the outbox. A hook that is
// new begins now: it is told of no ticket that was there before.
func (b *Outbox) sweep(ctx context.Context, h Hook) error {
	now := clock(b.o.Clock)
	began, swept, err := b.moves.Swept(ctx, b.tenant, h.Name)
	if err != nil {
		return err
	}
	if swept.IsZero() {
		_, err := b.notices.PutNotices(ctx, b.tenant, h.Name, now, nil, b.o.Waiting)
		return err
	}
	if began.After(now) { // by a clock that has been set back since
		began = time.Time{}
	}
	b.forget(h.Name, now)
	for since := b.since(swept, now); ; {
		moved, last, err := b.moves.MovedTickets(ctx, b.tenant, since, page)
		if err != nil || len(moved) == 0 {
			return err
		}
		young := slices.DeleteFunc(moved, func(t sallyport.Ticket) bool { return t.CreatedAt.Before(began) })
		if err := b.put(ctx, h, young, swept, last, now); err != nil {
			return err
		}
		if full := len(moved) == page; !full {
			return nil
		}
		if !last.After(since) { // a page full of one moment
			last = last.Add(1)
		}
		since = last
	}
}

// since is where a sweep begins: at what may have been overlooked, but never at
// what nobody would be told any more, and which the outbox may have forgotten.
func (b *Outbox) since(swept, now time.Time) time.Time {
	if swept.After(now) { // a clock was ahead: what it had seen says nothing about what moves now
		swept = now
	}
	since := swept.Add(-overlap)
	if now.Sub(swept) > kept/2 {
		since = swept.Add(1)
	}
	if oldest := now.Add(-b.o.GiveUp); since.Before(oldest) {
		return oldest
	}
	return since
}

func (b *Outbox) put(ctx context.Context, h Hook, moved []sallyport.Ticket, swept, last, now time.Time) error {
	var all []store.Notice
	for _, t := range moved {
		for _, what := range happened(t) {
			if !h.wants(what.event) || b.known(h.Name, what.id, now) {
				continue
			}
			body, err := compose(what, t, b.mask, b.page, now)
			if err != nil {
				return err
			}
			all = append(all, store.Notice{ID: what.id, Type: string(what.event), Ticket: t.ID, Body: body, NextAt: now})
		}
	}
	if len(all) == 0 && last.Sub(swept) < overlap {
		return nil // no write for nothing: the next sweep looks at these again
	}
	dropped, err := b.notices.PutNotices(ctx, b.tenant, h.Name, last, all, b.o.Waiting)
	if err != nil {
		return err
	}
	if dropped > 0 {
		b.o.Log.Error("webhook: the outbox is full, messages are dropped", "hook", h.Name, "dropped", dropped)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range all {
		b.seen[h.Name][n.ID] = now
	}
	return nil
}

// known reports whether a message is in the outbox for sure. What is asked for
// is remembered longer.
func (b *Outbox) known(hook, id string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.seen[hook][id]
	if ok {
		b.seen[hook][id] = now
	}
	return ok
}

func (b *Outbox) forget(hook string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, at := range b.seen[hook] {
		if now.Sub(at) > 2*overlap {
			delete(b.seen[hook], id)
		}
	}
}

// lease is how long a claimed message is nobody else's: longer than a try takes.
const lease = time.Minute

// deliver sends what is due, one message after the other.
func (b *Outbox) deliver(ctx context.Context, h Hook) error {
	for ctx.Err() == nil {
		due, err := b.notices.ClaimNotices(ctx, b.tenant, h.Name, clock(b.o.Clock), lease, 1)
		if err != nil || len(due) == 0 {
			return err
		}
		b.try(ctx, h, &due[0])
		// What was sent is noted even where the gateway stops just now.
		if err := b.notices.SettleNotice(context.WithoutCancel(ctx), due[0]); err != nil {
			return err
		}
		if due[0].State == store.NoticeWaiting {
			return nil // it fails: the others can wait as well
		}
	}
	return nil
}

// try sends one message once, and writes into it what came of it.
func (b *Outbox) try(ctx context.Context, h Hook, n *store.Notice) {
	after, err := b.send(ctx, h, *n)
	now := clock(b.o.Clock)
	switch {
	case err == nil:
		n.State, n.Error = store.NoticeSent, ""
		return
	case ctx.Err() != nil: // the gateway stops: this try does not count against anybody
		n.NextAt, n.Error = now, "the gateway stopped"
		return
	}
	n.Error = err.Error()
	pause := max(after, b.backoff(n.Tries))
	n.NextAt = now.Add(pause)
	if gone(err) || now.Add(pause).Sub(n.CreatedAt) > b.o.GiveUp {
		n.State = store.NoticeDead
		b.o.Log.Error("webhook: a message is given up", "hook", h.Name, "id", n.ID, "tries", n.Tries, "err", err)
		return
	}
	b.o.Log.Warn("webhook: a message was not taken", "hook", h.Name, "id", n.ID, "tries", n.Tries, "again_in", pause.Round(time.Second), "err", err)
}

// backoff doubles, up to ten minutes, and is never quite the same.
func (b *Outbox) backoff(tries int) time.Duration {
	d := b.o.First << min(max(tries-1, 0), 20)
	d = min(d, 10*time.Minute)
	return d + time.Duration(rand.Int64N(int64(d)/4+1)) //nolint:gosec // spreads retries, protects nothing
}

// kept is how long the outbox and the inbox remember. A message's time may be
// off by Tolerance, so its id must be remembered for longer than that.
const kept = 7 * 24 * time.Hour

func (b *Outbox) prune(ctx context.Context) { Prune(ctx, b.moves, b.o.Clock, b.o.Log) }

// Prune forgets, day by day, what is over. It returns when ctx ends.
func Prune(ctx context.Context, moves Moves, now func() time.Time, log *slog.Logger) {
	t := time.NewTicker(24 * time.Hour)
	defer t.Stop()
	for {
		if err := moves.PruneWebhooks(ctx, clock(now).Add(-kept)); err != nil && ctx.Err() == nil {
			log.Error("webhook: forgetting old messages", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Counts counts the outbox, by hook and state.
func (b *Outbox) Counts(ctx context.Context) ([]store.NoticeCount, error) {
	return b.notices.CountNotices(ctx, b.tenant)
}

func (b *Outbox) hook(name string) (Hook, error) {
	for _, h := range b.hooks {
		if h.Name == name {
			return h, nil
		}
	}
	return Hook{}, &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Approve, Message: fmt.Sprintf("no webhook %.64q sends messages", name),
		Hint: "`sallyport webhooks list` shows them; they are in sallyport.yaml, under approvals.webhooks"}
}

// Retry gives the dead messages of a hook another life.
func (b *Outbox) Retry(ctx context.Context, name, by string) (int, error) {
	h, err := b.hook(name)
	if err != nil {
		return 0, err
	}
	e, err := audit.AdminEntry(b.tenant, sallyport.Change{Action: "webhooks retry", By: by, Target: h.Name})
	if err != nil {
		return 0, err
	}
	n, err := b.notices.RetryNotices(ctx, b.tenant, h.Name, e)
	b.wakeAll()
	return n, err
}

// Probe sends a message of type test at once, and returns what went wrong.
func (b *Outbox) Probe(ctx context.Context, name string) error {
	h, err := b.hook(name)
	if err != nil {
		return err
	}
	now := clock(b.o.Clock)
	m := message{Type: test, ID: fmt.Sprintf("msg_test_%d", now.UnixNano()), At: now.UTC()}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := b.send(ctx, h, store.Notice{ID: m.ID, Body: body}); err != nil {
		return &sallyport.Error{Code: sallyport.Upstream, Step: sallyport.Approve, Message: fmt.Sprintf("webhook %s: %v", h.Name, err), Err: err}
	}
	return nil
}
