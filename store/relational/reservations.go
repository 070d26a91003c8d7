package relational

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/store"
)

const reservationColumns = `tenant, principal, tool, key, fingerprint, state, call_id, ticket, fence, lease, writer,
	output, is_error, reason, created_at, updated_at FROM reservations`

const selectReservation = "SELECT " + reservationColumns + " WHERE tenant = ? AND principal = ? AND tool = ? AND key = ?"

func scanReservation(row scanner) (sallyport.Reservation, error) {
	var r sallyport.Reservation
	var lease, created, updated int64
	var output, reason []byte
	err := row.Scan(&r.Tenant, &r.Principal, &r.Tool, &r.Key, &r.Fingerprint, &r.State, &r.CallID, &r.Ticket, &r.Fence, &lease, &r.Writer,
		&output, &r.IsError, &reason, &created, &updated)
	if output != nil {
		r.Output = json.RawMessage(output)
	}
	if reason != nil {
		r.Reason = json.RawMessage(reason)
	}
	r.Lease, r.CreatedAt, r.UpdatedAt = timeAt(lease), timeAt(created), timeAt(updated)
	return r, err
}

func (t *txn) reservation(key sallyport.ReservationKey) (*sallyport.Reservation, error) {
	r, err := scanReservation(t.Know(reservationFact(key)))
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
	var output, reason any
	if r.Output != nil {
		output = []byte(r.Output)
	}
	if r.Reason != nil {
		reason = []byte(r.Reason)
	}
	return t.Alter([]any{r.ReservationKey, openOf(r.ReservationKey)}, 1, `INSERT INTO reservations (tenant, principal, tool, key, fingerprint, state, call_id, ticket, fence, lease, writer,
			output, is_error, reason, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, principal, tool, key) DO UPDATE SET state = excluded.state, call_id = excluded.call_id, ticket = excluded.ticket,
			fence = excluded.fence, lease = excluded.lease, writer = excluded.writer, output = excluded.output, is_error = excluded.is_error,
			reason = excluded.reason, updated_at = excluded.updated_at`,
		r.Tenant, r.Principal, r.Tool, r.Key, r.Fingerprint, string(r.State), r.CallID, r.Ticket, r.Fence, nanos(r.Lease), r.Writer,
		output, isError, reason, nanos(t.now), nanos(t.now))
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

// shownState is a reservation's state as of three times now: an execution whose
// lease has run out is unknown, and what awaits a ticket that is closed, or that
// the clock has closed, is as that is.
const shownState = `CASE WHEN state = 'executing' AND lease <= ? THEN 'unknown'
	WHEN state = 'awaiting_approval' THEN COALESCE((SELECT CASE
		WHEN k.state = 'pending' AND k.decide_by <= ? THEN 'expired'
		WHEN k.state = 'approved' AND k.run_by <= ? THEN 'void'
		WHEN k.state IN ('pending', 'approved', 'consumed') THEN 'awaiting_approval'
		ELSE k.state END FROM tickets k WHERE k.tenant = reservations.tenant AND k.id = reservations.ticket), state)
	ELSE state END`

// Reservations returns the reservations that match, without their outputs and reasons,
// newest first. One whose lease has run out is shown as unknown, one whose ticket
// is closed as that is.
func (s *Store) Reservations(ctx context.Context, f store.ReservationFilter) ([]sallyport.Reservation, error) {
	now := nanos(s.clock())
	var w where
	w.eq("tenant", f.Tenant)
	w.eq("principal", f.Principal)
	w.in(shownState, states(f.States), now, now, now)
	columns := strings.Replace(reservationColumns, " state,", " "+shownState+",", 1)
	out, err := list(ctx, s, scanReservation, "SELECT "+columns+w.sql()+" ORDER BY updated_at DESC LIMIT ?",
		slices.Concat([]any{now, now, now}, w.args, []any{limit(f.Limit)})...)
	for i := range out {
		out[i].Output, out[i].Reason = nil, nil
	}
	return out, s.storeError(sallyport.Reserve, err)
}

// Resolve settles a call whose outcome is unknown, by an operator's word. Codes:
// NotFound, Conflict if it is not unknown, or another than the one meant.
func (s *Store) Resolve(ctx context.Context, res store.Resolution) error {
	if res.State != sallyport.Done && res.State != sallyport.Failed || res.By == "" || res.Reason == "" {
		return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Reserve,
			Message: "a resolution says done or failed, who decided it and why"}
	}
	if len(res.Output) > maxOutput || res.Output != nil && res.State != sallyport.Done {
		return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Reserve,
			Message: fmt.Sprintf("a result belongs to a call that is done, and has at most %d bytes", maxOutput)}
	}
	return reached(failpoint.Resolved, s.update(ctx, sallyport.Reserve, func(t *txn) error {
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
		if err := meant(*r, res.Call); err != nil {
			return err
		}
		r.State, r.Output, r.IsError, r.Reason = res.State, nil, false, nil
		r.Fence++ // a late writer no longer owns it
		if res.State == sallyport.Done {
			out := res.Output
			if out == nil {
				out = textResult("This call was executed. Its result was lost; an operator confirmed that it took effect.", false)
			}
			r.Output = s.seal(outputRow, r.ReservationKey, out)
			err = t.keep(r)
		} else {
			err = t.refund(*r)
		}
		if err != nil {
			return err
		}
		if err := t.putReservation(*r); err != nil {
			return err
		}
		e, err := audit.AdminEntry(r.Tenant, sallyport.Change{Action: "reservations resolve", By: res.By, Target: r.Tool, Reason: res.Reason,
			Detail: map[string]any{"key": r.ReservationKey, "state": res.State, "call_id": r.CallID, "result_given": res.Output != nil}})
		e.CallID = r.CallID
		t.log(e)
		return err
	}, reservationFact(res.Key)))
}

// meant refuses a word on another execution under the key than the one that is
// unknown now. An operator whose command got no answer repeats it; by then the
// call may have been made again, and nobody has looked at that one.
func meant(r sallyport.Reservation, call string) error {
	if call == r.CallID || call == "" && r.Fence <= 1 {
		return nil
	}
	return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Reserve,
		Message: fmt.Sprintf("under this key a call was made more than once, and the one of unknown outcome is %s", r.CallID),
		Hint:    "look at the target again, for that call, and name it with --call"}
}
