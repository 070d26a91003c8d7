package relational

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// bounds holds a call that is about to take its key against what was done
// before, and counts it.
func (t *txn) bounds(b gateway.Begin) error {
	if err := t.single(b); err != nil {
		return err
	}
	for _, q := range b.Quotas {
		if err := t.count(b.Key, q); err != nil {
			return err
		}
	}
	return t.spend(b)
}

// single refuses a call that repeats another, and remembers it otherwise.
func (t *txn) single(b gateway.Begin) error {
	if b.Twin == nil {
		return nil
	}
	first, err := twinOf(t.row, b.Key, *b.Twin, t.now)
	if err != nil {
		return err
	}
	if first != "" && first != b.Key.Key {
		return &sallyport.Error{Code: sallyport.InFlight, Step: sallyport.Execute,
			Message: "an identical call has just begun", Hint: "look again for its result"}
	}
	return t.Alter(nil, 1, `INSERT INTO twins (tenant, principal, tool, fingerprint, key, at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, principal, tool, fingerprint) DO UPDATE SET key = excluded.key, at = excluded.at`,
		b.Key.Tenant, b.Key.Principal, b.Key.Tool, b.Twin.Fingerprint, b.Key.Key, nanos(t.now))
}

func twinOf(row func(q string, args ...any) scanner, who sallyport.ReservationKey, twin gateway.Twin, now time.Time) (key string, err error) {
	err = row(`SELECT w.key FROM twins w JOIN reservations r
			ON r.tenant = w.tenant AND r.principal = w.principal AND r.tool = w.tool AND r.key = w.key
		WHERE w.tenant = ? AND w.principal = ? AND w.tool = ? AND w.fingerprint = ? AND r.state <> 'failed'
			AND (w.at > ? OR r.state = 'executing' AND r.lease > ?)`,
		who.Tenant, who.Principal, who.Tool, twin.Fingerprint, nanos(now.Add(-twin.Within)), nanos(now)).Scan(&key)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return key, err
}

// TwinOf returns the key of the call that an identical one repeats; see
// gateway.Past.
func (s *Store) TwinOf(ctx context.Context, who sallyport.ReservationKey, twin gateway.Twin) (string, error) {
	key, err := twinOf(func(q string, args ...any) scanner { return s.row(ctx, q, args...) }, who, twin, s.clock())
	return key, s.storeError(sallyport.Reserve, err)
}

// count counts a call towards a quota, or refuses it. Spans begin at whole
// multiples of their length. A clock that goes back, or another gateway's that is
// behind, opens no new span: such a call counts in the one that has begun. A span
// that begins later than the next is the mistake of a clock, and is forgotten.
func (t *txn) count(key sallyport.ReservationKey, q sallyport.Quota) error {
	name := fmt.Sprintf("%s calls of %q by %q", q.Per, q.Tool, key.Principal)
	if q.Agent != "" { // beside one for each agent
		name += ", its own"
	}
	starts := t.now.Truncate(q.Per)
	var n int
	var counted int64
	err := t.row(`INSERT INTO quotas (tenant, name, starts, n) VALUES (?, ?, ?, 1) ON CONFLICT (tenant, name) DO UPDATE
		SET n = CASE WHEN quotas.starts BETWEEN excluded.starts AND ? THEN quotas.n + 1 ELSE 1 END,
			starts = CASE WHEN quotas.starts BETWEEN excluded.starts AND ? THEN quotas.starts ELSE excluded.starts END RETURNING n, starts`,
		key.Tenant, name, nanos(starts), nanos(starts.Add(q.Per)), nanos(starts.Add(q.Per))).Scan(&n, &counted)
	if err != nil || n <= q.Calls {
		return err
	}
	return &sallyport.Error{Code: sallyport.RateLimited, Step: sallyport.Execute,
		Message: fmt.Sprintf("this agent has made its %d calls in %s that may change something", q.Calls, q.Per),
		Hint:    "the operator sets limits.quotas", RetryAfter: timeAt(counted).Add(q.Per).Sub(t.now)}
}

// spend counts what a call moves, unless that is more than may be moved without
// a human and none was asked.
func (t *txn) spend(b gateway.Begin) error {
	if b.Ticket == "" {
		over, err := overruns(t.moved, b.Key, b.Amounts, b.Windows, t.now)
		if err != nil {
			return err
		}
		if len(over) > 0 {
			return &sallyport.Error{Code: sallyport.InFlight, Step: sallyport.Execute, RetryAfter: 10 * time.Millisecond,
				Message: "other calls have moved money since this one was judged", Hint: "call again: it is judged anew"}
		}
	}
	for i, a := range b.Amounts {
		if err := t.Alter(nil, 1, `INSERT INTO amounts (tenant, call_id, n, principal, tool, currency, recipient, value, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			b.Key.Tenant, b.CallID, i, b.Key.Principal, b.Key.Tool, strings.ToUpper(strings.TrimSpace(a.Currency)), recipient(a), a.Value, nanos(t.now)); err != nil {
			return err
		}
	}
	return nil
}

// refund takes back what a call that had no effect was counted for.
func (t *txn) refund(r sallyport.Reservation) error {
	return t.Alter(nil, 0, "DELETE FROM amounts WHERE tenant = ? AND call_id = ?", r.Tenant, r.CallID)
}

// recipient is how one is remembered, or each of several: however it is spaced or
// capitalised, and as a hash, for it is nobody's business at rest.
func recipient(a sallyport.Amount) string {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '-' || r == '.' {
			return -1
		}
		return unicode.ToUpper(r)
	}, a.Recipient)
	var out []string
	for one := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == ',' }) {
		sum := sha256.Sum256([]byte(one))
		out = append(out, hex.EncodeToString(sum[:]))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// Overruns returns the windows that amounts would overrun; see gateway.Past.
func (s *Store) Overruns(ctx context.Context, who sallyport.ReservationKey, amounts []sallyport.Amount, windows []sallyport.Window) ([]sallyport.Overrun, error) {
	over, err := overruns(func(q string, args ...any) ([]moved, error) { return list(ctx, s, scanMoved, q, args...) }, who, amounts, windows, s.clock())
	return over, s.storeError(sallyport.Reserve, err)
}

type moved struct{ tool, currency, recipient, value string }

func scanMoved(r scanner) (m moved, err error) {
	err = r.Scan(&m.tool, &m.currency, &m.recipient, &m.value)
	return m, err
}

func (t *txn) moved(q string, args ...any) ([]moved, error) {
	rows, err := t.rows(q, args...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, scanMoved)
}

func overruns(load func(q string, args ...any) ([]moved, error), who sallyport.ReservationKey, amounts []sallyport.Amount, windows []sallyport.Window, now time.Time) (over []sallyport.Overrun, err error) {
	for _, w := range windows {
		mine := relevant(amounts, w)
		if len(mine) == 0 {
			continue
		}
		q := "SELECT tool, currency, recipient, value FROM amounts WHERE tenant = ? AND at > ?"
		args := []any{who.Tenant, nanos(now.Add(-w.Per))}
		if w.By == sallyport.ByPrincipal {
			q, args = q+" AND principal = ?", append(args, who.Principal)
		}
		before, err := load(q, args...)
		if err != nil {
			return nil, err
		}
		if o, is := overrun(w, mine, before); is {
			over = append(over, o)
		}
	}
	return over, nil
}

// relevant are the amounts that a window counts.
func relevant(amounts []sallyport.Amount, w sallyport.Window) (out []moved) {
	for _, a := range amounts {
		if w.Counts(a.Currency) {
			out = append(out, moved{currency: a.Currency, recipient: recipient(a), value: a.Value})
		}
	}
	return out
}

// overrun adds up mine and what was moved before, for each recipient apart
// where the window wants that. What cannot be counted exactly is too much.
func overrun(w sallyport.Window, mine, before []moved) (sallyport.Overrun, bool) {
	limit, err := sallyport.ParseAmount(w.Limit)
	if err != nil { // the configuration was checked
		return sallyport.Overrun{Window: w}, true
	}
	sums := map[string]*big.Rat{}
	add := func(m moved, first bool) bool {
		groups := []string{""}
		if w.By == sallyport.ByRecipient {
			groups = strings.Split(m.recipient, ",") // each may get the whole of it
		}
		for _, group := range groups {
			if sums[group] == nil && !first {
				continue // nothing goes there now
			}
			v, err := sallyport.ParseAmount(m.value)
			if err != nil {
				return false
			}
			if sums[group] == nil {
				sums[group] = new(big.Rat)
			}
			sums[group].Add(sums[group], v)
		}
		return true
	}
	for _, m := range mine {
		if !add(m, true) {
			return sallyport.Overrun{Window: w}, true
		}
	}
	for _, m := range before {
		if w.Counts(m.currency) && sallyport.Matches(w.Tool, m.tool) && !add(m, false) {
			return sallyport.Overrun{Window: w}, true
		}
	}
	worst := new(big.Rat)
	for _, s := range sums {
		if s.Cmp(worst) > 0 {
			worst = s
		}
	}
	return sallyport.Overrun{Window: w, Sum: sallyport.FormatAmount(worst)}, worst.Cmp(limit) > 0
}
