package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

const reservationColumns = `tenant, principal, tool, key, fingerprint, state, call_id, ticket, fence, lease, writer,
	output, is_error, created_at, updated_at FROM reservations`

const selectReservation = "SELECT " + reservationColumns + " WHERE tenant = ? AND principal = ? AND tool = ? AND key = ?"

func scanReservation(row scanner) (sallyport.Reservation, error) {
	var r sallyport.Reservation
	var lease, created, updated int64
	var output []byte
	err := row.Scan(&r.Tenant, &r.Principal, &r.Tool, &r.Key, &r.Fingerprint, &r.State, &r.CallID, &r.Ticket, &r.Fence, &lease, &r.Writer,
		&output, &r.IsError, &created, &updated)
	if output != nil {
		r.Output = json.RawMessage(output)
	}
	r.Lease, r.CreatedAt, r.UpdatedAt = timeAt(lease), timeAt(created), timeAt(updated)
	return r, err
}

func (t *txn) reservation(key sallyport.ReservationKey) (*sallyport.Reservation, error) {
	r, err := scanReservation(t.row(selectReservation, key.Tenant, key.Principal, key.Tool, key.Key))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

func (t *txn) putReservation(r sallyport.Reservation) error {
	isError := 0
	if r.IsError {
		isError = 1
	}
	var output any
	if r.Output != nil {
		output = []byte(r.Output)
	}
	_, err := t.exec(`INSERT INTO reservations (tenant, principal, tool, key, fingerprint, state, call_id, ticket, fence, lease, writer,
			output, is_error, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?14)
		ON CONFLICT (tenant, principal, tool, key) DO UPDATE SET state = ?6, call_id = ?7, ticket = ?8, fence = ?9, lease = ?10, writer = ?11,
			output = ?12, is_error = ?13, updated_at = ?14`,
		r.Tenant, r.Principal, r.Tool, r.Key, r.Fingerprint, string(r.State), r.CallID, r.Ticket, r.Fence, nanos(r.Lease), r.Writer,
		output, isError, nanos(t.now))
	return err
}

// textResult is a CallToolResult that says one thing.
func textResult(text string, isError bool) json.RawMessage {
	b, _ := json.Marshal(map[string]any{ // strings and a bool always marshal
		"content": []map[string]string{{"type": "text", "text": text}}, "isError": isError})
	return b
}

func tooLargeToKeep(size int, isError bool) json.RawMessage {
	return textResult(fmt.Sprintf("This call was executed once. Its result (%d bytes) was too large to be kept for a repeated request.", size), isError)
}

// logUnknown tells that a call was left without an outcome.
func (t *txn) logUnknown(r sallyport.Reservation, why string) error {
	e, err := audit.NewEntry(r.Tenant, sallyport.EntryOutcome, r.CallID, lost{
		Principal: r.Principal, Target: r.Tool, Key: r.Key, Ticket: r.Ticket, Code: sallyport.OutcomeUnknown, Message: why, Writer: r.Writer})
	t.log(e)
	return err
}

// lost is the payload of an outcome that nobody saw; its names are those of
// sallyport.Record, so that a search finds both.
type lost struct {
	Principal string         `json:"principal"`
	Target    string         `json:"target"`
	Key       string         `json:"key"`
	Ticket    string         `json:"ticket,omitempty"`
	Code      sallyport.Code `json:"code"`
	Message   string         `json:"message"`
	Writer    string         `json:"writer"`
}

// Recover is the first act of a gateway that holds the data folder alone: what
// any process but writer (see Store.Writer) left executing becomes unknown. It
// returns how many there were, and logs each of them and the start itself.
func (s *Store) Recover(ctx context.Context, writer string) (int, error) {
	n := 0
	err := s.update(ctx, sallyport.Execute, func(t *txn) error {
		rows, err := t.rows("SELECT "+reservationColumns+" WHERE state = 'executing' AND writer <> ?", writer)
		if err != nil {
			return err
		}
		left, err := scanAll(rows, scanReservation)
		if err != nil {
			return err
		}
		for _, r := range left {
			r.State = sallyport.Unknown
			if err := t.putReservation(r); err != nil {
				return err
			}
			if err := t.logUnknown(r, "its gateway ended while it was executing"); err != nil {
				return err
			}
		}
		n = len(left)
		e, err := audit.NewEntry(sallyport.DefaultTenant, sallyport.EntryStart, "", map[string]any{"writer": writer, "left_executing": n})
		t.log(e)
		return err
	})
	return n, err
}

// Reservations returns the reservations that match, without their outputs,
// newest first. One whose lease has run out is shown as unknown.
func (s *Store) Reservations(ctx context.Context, f store.ReservationFilter) ([]sallyport.Reservation, error) {
	now := s.clock()
	w := where{conds: []string{"?1 <> 0"}, args: []any{nanos(now)}} // ?1 is the present, for the state below
	w.eq("tenant", f.Tenant)
	w.eq("principal", f.Principal)
	w.in("CASE WHEN state = 'executing' AND lease <= ?1 THEN 'unknown' ELSE state END", states(f.States))
	out, err := list(ctx, s, scanReservation, "SELECT "+reservationColumns+w.sql()+" ORDER BY updated_at DESC LIMIT ?", append(w.args, limit(f.Limit))...)
	for i := range out {
		out[i].Output = nil
		if leaseOut(out[i], now) {
			out[i].State = sallyport.Unknown
		}
	}
	return out, storeError(sallyport.Reserve, err)
}

// Resolve settles a call whose outcome is unknown, by an operator's word. Codes:
// NotFound, Conflict if it is not unknown.
func (s *Store) Resolve(ctx context.Context, res store.Resolution) error {
	if res.State != sallyport.Done && res.State != sallyport.Failed || res.By == "" || res.Reason == "" {
		return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Reserve,
			Message: "a resolution says done or failed, who decided it and why"}
	}
	return s.update(ctx, sallyport.Reserve, func(t *txn) error {
		r, err := t.reservation(res.Key)
		if err != nil {
			return err
		}
		if r == nil {
			return notFound(sallyport.Reserve, fmt.Sprintf("there is no reservation %.64q", res.Key.Key))
		}
		if r.State != sallyport.Unknown && !leaseOut(*r, t.now) {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Reserve,
				Message: fmt.Sprintf("the call is %s; only an unknown outcome can be resolved", r.State)}
		}
		r.State, r.Output, r.IsError = res.State, nil, false
		r.Fence++ // a late writer no longer owns it
		if res.State == sallyport.Done {
			r.Output = textResult("This call was executed. Its result was lost; an operator confirmed that it took effect.", false)
		}
		if err := t.putReservation(*r); err != nil {
			return err
		}
		e, err := audit.AdminEntry(r.Tenant, sallyport.Change{Action: "reservations resolve", By: res.By, Target: r.Tool, Reason: res.Reason,
			Detail: map[string]any{"key": r.ReservationKey, "state": res.State, "call_id": r.CallID}})
		e.CallID = r.CallID
		t.log(e)
		return err
	})
}

// Prune forgets what ended before the given time: reservations that are done or
// failed, those whose ticket was closed without an execution, and closed
// tickets that no reservation speaks of. Unknown outcomes stay. After that, an
// old key may be used again.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	total := 0
	err := s.update(ctx, sallyport.Reserve, func(t *txn) error {
		for _, q := range []string{
			`DELETE FROM reservations WHERE state IN ('done', 'failed') AND updated_at < ?`,
			`DELETE FROM reservations WHERE state = 'awaiting_approval' AND updated_at < ?1 AND EXISTS (SELECT 1 FROM tickets t
				WHERE t.tenant = reservations.tenant AND t.id = reservations.ticket
				AND t.state IN ('rejected', 'expired', 'withdrawn', 'void') AND t.updated_at < ?1)`,
			`DELETE FROM tickets WHERE state NOT IN ('pending', 'approved') AND updated_at < ? AND NOT EXISTS (SELECT 1 FROM reservations r
				WHERE r.tenant = tickets.tenant AND r.principal = tickets.principal AND r.tool = tickets.tool AND r.key = tickets.key)`,
		} {
			n, err := t.exec(q, nanos(before))
			if err != nil {
				return err
			}
			total += int(n)
		}
		if total == 0 {
			return nil
		}
		e, err := audit.AdminEntry(sallyport.DefaultTenant, sallyport.Change{Action: "reservations prune", By: "system",
			Detail: map[string]any{"before": before.UTC(), "rows": total}})
		t.log(e)
		return err
	})
	return total, err
}
