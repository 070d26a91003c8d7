package relational

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/failpoint"
	"sallyport.dev/sallyport/store"
)

const sagaColumns = `tenant, id, principal, state, doc, wake_at, revision, fence, owner, lease, created_at, updated_at FROM sagas`

func scanSaga(r scanner) (sallyport.Saga, error) {
	var s, kept sallyport.Saga
	var doc string
	var wake, lease, created, updated int64
	if err := r.Scan(&kept.Tenant, &kept.ID, &kept.Principal, &kept.State, &doc, &wake, &kept.Revision, &kept.Fence, &kept.Owner, &lease, &created, &updated); err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(doc), &s); err != nil {
		return s, fmt.Errorf("saga %s is malformed: %w", kept.ID, err)
	}
	s.Tenant, s.ID, s.Principal, s.State = kept.Tenant, kept.ID, kept.Principal, kept.State
	s.Revision, s.Fence, s.Owner = kept.Revision, kept.Fence, kept.Owner
	s.WakeAt, s.Lease, s.CreatedAt, s.UpdatedAt = timeAt(wake), timeAt(lease), timeAt(created), timeAt(updated)
	return s, nil
}

const sagaStepColumns = `doc, result FROM saga_steps`

func scanSagaStep(r scanner) (sallyport.SagaStep, error) {
	var st sallyport.SagaStep
	var doc string
	var result []byte
	if err := r.Scan(&doc, &result); err != nil {
		return st, err
	}
	err := json.Unmarshal([]byte(doc), &st)
	if result != nil {
		st.Result = json.RawMessage(result)
	}
	return st, err
}

// plainJSON writes v without escaping what only HTML needs escaped.
func plainJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.String(), err
}

// sagaDoc is a saga without its steps.
func sagaDoc(s sallyport.Saga) (string, error) {
	s.Steps = nil
	return plainJSON(s)
}

func noSaga(id string) error {
	return notFound(sallyport.Execute, fmt.Sprintf("there is no saga %.64q", id))
}

func (t *txn) saga(tenant, id string) (sallyport.Saga, error) {
	s, err := scanSaga(t.row("SELECT "+sagaColumns+" WHERE tenant = ? AND id = ?", tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = noSaga(id)
	}
	return s, err
}

func (t *txn) fullSaga(tenant, id string) (sallyport.Saga, error) {
	s, err := t.saga(tenant, id)
	if err != nil {
		return s, err
	}
	rows, err := t.rows("SELECT "+sagaStepColumns+" WHERE tenant = ? AND saga = ? ORDER BY idx", tenant, id)
	if err == nil {
		s.Steps, err = scanAll(rows, scanSagaStep)
	}
	return s, err
}

func (t *txn) putStep(tenant, saga string, i int, st sallyport.SagaStep) error {
	doc, err := plainJSON(st)
	if err != nil {
		return err
	}
	var result any
	if st.Result != nil {
		result = []byte(st.Result)
	}
	_, err = t.exec(`INSERT INTO saga_steps (tenant, saga, idx, key, undo_key, doc, result) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, saga, idx) DO UPDATE SET key = excluded.key, undo_key = excluded.undo_key, doc = excluded.doc, result = excluded.result`,
		tenant, saga, i, st.Key, st.UndoKey, doc, result)
	return err
}

// CreateSaga stores a saga with its steps; see saga.Store.
func (s *Store) CreateSaga(ctx context.Context, v sallyport.Saga, e sallyport.Entry) (sallyport.Saga, error) {
	var out sallyport.Saga
	err := s.update(ctx, sallyport.Execute, func(t *txn) error {
		old, err := t.fullSaga(v.Tenant, v.ID)
		if err == nil || sallyport.CodeOf(err) != sallyport.NotFound {
			out = old
			return err
		}
		out = v
		out.Revision, out.Fence, out.Owner, out.Lease, out.UpdatedAt = 1, 0, "", time.Time{}, t.now
		if out.CreatedAt.IsZero() {
			out.CreatedAt = t.now
		}
		doc, err := sagaDoc(out)
		if err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO sagas (tenant, id, principal, state, doc, wake_at, revision, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, out.Tenant, out.ID, out.Principal, string(out.State), doc, nanos(out.WakeAt),
			out.Revision, nanos(out.CreatedAt), nanos(t.now)); err != nil {
			return err
		}
		for i, st := range out.Steps {
			if err := t.putStep(out.Tenant, out.ID, i, st); err != nil {
				return err
			}
		}
		t.log(e)
		return nil
	})
	return out, reached(failpoint.Created, err)
}

// Saga returns a saga of the tenant with its steps, or code NotFound.
func (s *Store) Saga(ctx context.Context, tenant, id string) (sallyport.Saga, error) {
	for {
		v, err := scanSaga(s.row(ctx, "SELECT "+sagaColumns+" WHERE tenant = ? AND id = ?", tenant, id))
		if errors.Is(err, sql.ErrNoRows) {
			return v, noSaga(id)
		}
		if err == nil {
			v.Steps, err = list(ctx, s, scanSagaStep, "SELECT "+sagaStepColumns+" WHERE tenant = ? AND saga = ? ORDER BY idx", tenant, id)
		}
		if err != nil {
			return v, s.storeError(sallyport.Execute, err)
		}
		var now int64 // two reads are one picture only if nothing moved between them
		err = s.row(ctx, "SELECT revision FROM sagas WHERE tenant = ? AND id = ?", tenant, id).Scan(&now)
		if err != nil || now == v.Revision {
			return v, s.storeError(sallyport.Execute, err)
		}
	}
}

// Sagas returns the sagas that match, without their steps, the newest first.
func (s *Store) Sagas(ctx context.Context, f store.SagaFilter) ([]sallyport.Saga, error) {
	var w where
	w.eq("tenant", f.Tenant)
	w.eq("principal", f.Principal)
	w.in("state", states(f.States))
	order := "created_at DESC, id"
	if !f.Due.IsZero() {
		w.conds, w.args = append(w.conds, "wake_at > 0", "wake_at <= ?"), append(w.args, nanos(f.Due))
		order = "wake_at, id"
	}
	out, err := list(ctx, s, scanSaga, "SELECT "+sagaColumns+w.sql()+" ORDER BY "+order+" LIMIT ?", append(w.args, limit(f.Limit))...)
	return out, s.storeError(sallyport.Execute, err)
}

// MoveSaga stores a change; see store.SagaMove.
func (s *Store) MoveSaga(ctx context.Context, m store.SagaMove) (sallyport.Saga, error) {
	out := m.Saga
	failpoint.Hit(failpoint.Move)
	err := s.update(ctx, sallyport.Execute, func(t *txn) error {
		out = m.Saga
		old, err := t.saga(out.Tenant, out.ID)
		if err != nil {
			return err
		}
		if old.Revision != out.Revision || m.Fence != 0 && old.Fence != m.Fence {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute,
				Message: fmt.Sprintf("saga %s has moved meanwhile", out.ID), Hint: "look again"}
		}
		if old.State.Final() {
			return &sallyport.Error{Code: sallyport.Conflict, Step: sallyport.Execute, Message: fmt.Sprintf("saga %s is %s", out.ID, old.State)}
		}
		for _, key := range m.Close {
			if err := t.closeKey(key); err != nil {
				return err
			}
		}
		out.Fence, out.Owner, out.Lease, out.UpdatedAt = old.Fence, old.Owner, old.Lease, t.now
		out.Revision++
		doc, err := sagaDoc(out)
		if err != nil {
			return err
		}
		if _, err := t.exec("UPDATE sagas SET state = ?, doc = ?, wake_at = ?, revision = ?, updated_at = ? WHERE tenant = ? AND id = ?",
			string(out.State), doc, nanos(out.WakeAt), out.Revision, nanos(t.now), out.Tenant, out.ID); err != nil {
			return err
		}
		for _, i := range m.Steps {
			if err := t.putStep(out.Tenant, out.ID, i, out.Steps[i]); err != nil {
				return err
			}
		}
		t.log(m.Entry)
		return nil
	})
	if err != nil {
		return m.Saga, err
	}
	failpoint.Hit(failpoint.Moved)
	return out, nil
}

// closeKey uses a key up: a call under it that has not begun never will.
func (t *txn) closeKey(key sallyport.ReservationKey) error {
	r, err := t.reservation(key)
	if err != nil {
		return err
	}
	if r == nil {
		r = &sallyport.Reservation{ReservationKey: key}
	}
	switch {
	case r.State == sallyport.Done:
		return nil
	case r.State == sallyport.Executing && !leaseOut(*r, t.now):
		return &sallyport.Error{Code: sallyport.InFlight, Step: sallyport.Execute, Message: "a call of the saga is still running",
			RetryAfter: time.Second}
	case r.State == sallyport.AwaitingApproval:
		if err := t.withdrawFor(r, "its saga no longer asks"); err != nil {
			return err
		}
	}
	r.State, r.IsError, r.Lease = sallyport.Done, true, time.Time{}
	r.Fence++ // whoever still owns it does not any more
	r.Output = t.s.seal(outputRow, key, textResult("This call was not carried out: its saga went on without it.", true))
	if _, err := t.account(key.Tenant, key.Principal, int64(len(r.Output))); err != nil {
		return err
	}
	return t.putReservation(*r)
}

// withdrawFor closes the ticket that a key waits for.
func (t *txn) withdrawFor(r *sallyport.Reservation, why string) error {
	tk, err := t.ticket(sallyport.Execute, r.Tenant, r.Ticket)
	if err != nil {
		return err
	}
	if err := t.age(&tk, t.now); err != nil {
		return err
	}
	switch tk.State {
	case sallyport.TicketPending:
		return t.decide(&tk, sallyport.TicketWithdrawn, tk.Binding.Principal, why)
	case sallyport.TicketApproved:
		return t.moveTicket(&tk, sallyport.TicketVoid, tk.Binding.Principal, why)
	default:
		return nil
	}
}

// LeaseSaga takes, prolongs or gives back the right to drive a saga; see
// saga.Store. It is no change of the saga, and leaves no entry.
func (s *Store) LeaseSaga(ctx context.Context, tenant, id, owner string, fence int64, until time.Time) (sallyport.Saga, error) {
	var out sallyport.Saga
	err := s.update(context.WithoutCancel(ctx), sallyport.Execute, func(t *txn) error {
		v, err := t.fullSaga(tenant, id)
		if err != nil {
			return err
		}
		if fence == 0 && v.Lease.After(t.now) || fence != 0 && (v.Fence != fence || v.Owner != owner) {
			return &sallyport.Error{Code: sallyport.InFlight, Step: sallyport.Execute, Message: fmt.Sprintf("another gateway drives saga %s", id)}
		}
		if fence == 0 {
			v.Fence++
		}
		v.Owner, v.Lease = owner, until
		out = v
		_, err = t.exec("UPDATE sagas SET fence = ?, owner = ?, lease = ? WHERE tenant = ? AND id = ?", v.Fence, owner, nanos(until), tenant, id)
		return err
	})
	return out, reached(failpoint.Leased, err)
}

// joinSaga puts a call on the list of an open ad-hoc saga, once.
func (t *txn) joinSaga(tenant, principal, id string, st sallyport.SagaStep) error {
	s, err := t.fullSaga(tenant, id)
	if err != nil || s.Principal != principal || s.State != sallyport.SagaOpen {
		if err == nil || sallyport.CodeOf(err) == sallyport.NotFound {
			err = notFound(sallyport.Execute, fmt.Sprintf("unknown saga %.64q", id))
		}
		return err
	}
	for _, have := range s.Steps {
		if have.Key == st.Key && have.Do.Tool == st.Do.Tool {
			return nil
		}
	}
	if len(s.Steps) >= store.MaxSagaSteps {
		return &sallyport.Error{Code: sallyport.TooLarge, Step: sallyport.Execute, Message: fmt.Sprintf("saga %s has %d calls, more are not taken", id, len(s.Steps)),
			Hint: "commit it and begin another"}
	}
	if err := t.putStep(tenant, id, len(s.Steps), st); err != nil {
		return err
	}
	_, err = t.exec("UPDATE sagas SET revision = revision + 1, updated_at = ? WHERE tenant = ? AND id = ?", nanos(t.now), tenant, id)
	return err
}
