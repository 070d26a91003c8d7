package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// Sagas are sequences of calls that end done or undone.
type Sagas interface {
	CreateSaga(ctx context.Context, s sallyport.Saga, e sallyport.Entry) (sallyport.Saga, error)
	Saga(ctx context.Context, tenant, id string) (sallyport.Saga, error)
	Sagas(ctx context.Context, f store.SagaFilter) ([]sallyport.Saga, error)
	MoveSaga(ctx context.Context, m store.SagaMove) (sallyport.Saga, error)
	LeaseSaga(ctx context.Context, tenant, id, owner string, fence int64, until time.Time) (sallyport.Saga, error)
}

func (f *fixture) saga(t *testing.T, id string, steps ...string) sallyport.Saga {
	t.Helper()
	s := sallyport.Saga{Tenant: "t", ID: id, Principal: "agent", Name: "p", State: sallyport.SagaRunning, CallID: "call-" + id, WakeAt: f.now(), Authorized: f.now()}
	for _, name := range steps {
		s.Steps = append(s.Steps, sallyport.SagaStep{ID: name, State: sallyport.StepPending,
			Do: sallyport.SagaCall{Tool: "pay__transfer", Args: json.RawMessage(`{"big":9007199254740993,"html":"<&>"}`)}})
	}
	s, err := f.CreateSaga(t.Context(), s, entry(sallyport.EntrySaga, s.CallID))
	must(t, err)
	return s
}

func move(s sallyport.Saga, steps ...int) store.SagaMove {
	return store.SagaMove{Saga: s, Steps: steps, Entry: entry(sallyport.EntrySaga, s.CallID)}
}

func testSagas(t *testing.T, f *fixture) {
	s := f.saga(t, "one", "a", "b")
	again, err := f.CreateSaga(t.Context(), sallyport.Saga{Tenant: "t", ID: "one", Principal: "other", State: sallyport.SagaOpen}, entry(sallyport.EntrySaga, "x"))
	if err != nil || again.Principal != "agent" || again.State != sallyport.SagaRunning || len(again.Steps) != 2 {
		t.Errorf("created twice: %+v, %v", again, err)
	}
	s.Steps[0].State, s.Steps[0].Key, s.Steps[0].Result = sallyport.StepDone, "k", json.RawMessage(`{"n": 1.50, "t":"\u2028"}`)
	s.Steps[1].State = sallyport.StepRunning // not among the steps that changed
	s.State, s.Reason = sallyport.SagaParked, "why"
	moved, err := f.MoveSaga(t.Context(), move(s, 0))
	must(t, err)
	if moved.Revision != s.Revision+1 {
		t.Errorf("revision %d after %d", moved.Revision, s.Revision)
	}
	got, err := f.Saga(t.Context(), "t", "one")
	must(t, err)
	if got.State != sallyport.SagaParked || got.Reason != "why" || got.Steps[0].State != sallyport.StepDone || got.Steps[1].State != sallyport.StepPending ||
		string(got.Steps[0].Result) != string(s.Steps[0].Result) || string(got.Steps[0].Do.Args) != `{"big":9007199254740993,"html":"<&>"}` || !got.WakeAt.Equal(s.WakeAt) {
		t.Errorf("%+v", got)
	}
	_, err = f.MoveSaga(t.Context(), move(s, 0))
	wantCode(t, "a move of what was read before", err, sallyport.Conflict)
	_, err = f.Saga(t.Context(), "u", "one")
	wantCode(t, "another tenant's saga", err, sallyport.NotFound)
	got.State = sallyport.SagaSucceeded
	over, err := f.MoveSaga(t.Context(), move(got))
	must(t, err)
	over.State = sallyport.SagaRunning
	_, err = f.MoveSaga(t.Context(), move(over))
	wantCode(t, "a move of what is over", err, sallyport.Conflict)
	if n := f.count(t, sallyport.EntrySaga); n != 3 {
		t.Errorf("%d entries, want 3: each move that took place, and none besides", n)
	}
	later := f.saga(t, "later", "a")
	later.WakeAt = f.now().Add(time.Hour)
	_, err = f.MoveSaga(t.Context(), move(later))
	must(t, err)
	for due, want := range map[time.Duration]int{0: 1, time.Hour: 2} { // one is over and still names a time
		all, err := f.Sagas(t.Context(), store.SagaFilter{Due: f.now().Add(due)})
		if err != nil || len(all) != want {
			t.Errorf("due within %s: %+v, %v", due, all, err)
		}
	}
	all, err := f.Sagas(t.Context(), store.SagaFilter{Tenant: "t", Principal: "agent", States: []sallyport.SagaState{sallyport.SagaSucceeded}})
	if err != nil || len(all) != 1 || all[0].ID != "one" || all[0].Steps != nil {
		t.Errorf("listed: %+v, %v", all, err)
	}
}

// Exactly one drives a saga; whoever lost it cannot write.
func testSagaLease(t *testing.T, f *fixture) {
	s := f.saga(t, "s", "a")
	stores := []Store{f.Store, f.another(t)}
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			_, err := stores[i%2].LeaseSaga(context.Background(), "t", "s", fmt.Sprint("gateway", i), 0, f.now().Add(time.Minute))
			if err == nil {
				won.Add(1)
			} else if sallyport.CodeOf(err) != sallyport.InFlight {
				t.Errorf("LeaseSaga: %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d drive it", won.Load())
	}
	held, err := f.Saga(t.Context(), "t", "s")
	must(t, err)
	_, err = f.LeaseSaga(t.Context(), "t", "s", "somebody", held.Fence, f.now().Add(time.Hour))
	wantCode(t, "another's lease prolonged", err, sallyport.InFlight)
	f.pass(time.Minute)
	taken, err := f.LeaseSaga(t.Context(), "t", "s", "next", 0, f.now().Add(time.Minute))
	must(t, err)
	if taken.Fence <= held.Fence || taken.Revision != s.Revision || len(taken.Steps) != 1 {
		t.Errorf("%+v after %+v", taken, held)
	}
	m := move(held)
	m.Fence = held.Fence
	_, err = f.MoveSaga(t.Context(), m)
	wantCode(t, "a move by who lost it", err, sallyport.Conflict)
	m = move(taken)
	m.Fence = taken.Fence
	_, err = f.MoveSaga(t.Context(), m)
	wantCode(t, "a move by who drives it", err, "")
	_, err = f.LeaseSaga(t.Context(), "t", "s", "next", taken.Fence, time.Time{})
	wantCode(t, "given back", err, "")
	_, err = f.LeaseSaga(t.Context(), "t", "s", "third", 0, f.now().Add(time.Minute))
	wantCode(t, "taken again", err, "")
}

// A closed key lets no call begin any more, whatever it was before; one that
// is executing refuses the move that would close it.
func testSagaClose(t *testing.T, f *fixture) {
	s := f.saga(t, "s", "a")
	fence, err := f.Begin(t.Context(), begin("failed", transfer))
	must(t, err)
	must(t, f.Finish(t.Context(), finish("failed", fence, sallyport.Failed)))
	tk := f.decide(t, f.open(t, "approved", transfer).ID, true)
	_, err = f.Begin(t.Context(), begin("running", transfer))
	must(t, err)
	m := move(s)
	m.Close = []sallyport.ReservationKey{key("new"), key("running")}
	_, err = f.MoveSaga(t.Context(), m)
	wantCode(t, "closing what executes", err, sallyport.InFlight)
	if r, err := f.Find(t.Context(), key("new")); r != nil || err != nil {
		t.Errorf("a refused move closed %+v, %v", r, err)
	}
	m.Close = []sallyport.ReservationKey{key("new"), key("failed"), key("approved")}
	_, err = f.MoveSaga(t.Context(), m)
	must(t, err)
	for _, k := range []string{"new", "failed", "approved"} {
		b := begin(k, transfer)
		if k == "approved" {
			b.Ticket, b.TicketHash = tk.ID, tk.Hash
		}
		if _, err := f.Begin(t.Context(), b); err == nil {
			t.Errorf("%s: a call began under a closed key", k)
		}
	}
	got, err := f.Ticket(t.Context(), "t", tk.ID)
	if err != nil || got.State != sallyport.TicketVoid {
		t.Errorf("the ticket of a closed key: %+v, %v", got.State, err)
	}
}

// A call joins an open saga in the transaction that begins it, or does not begin.
func testSagaJoin(t *testing.T, f *fixture) {
	s := f.saga(t, "s")
	step := sallyport.SagaStep{ID: "c1", Key: "k1", State: sallyport.StepRunning, Do: sallyport.SagaCall{Tool: "pay__transfer"}}
	b := begin("k1", transfer)
	b.Saga, b.Joins = "s", &step
	_, err := f.Begin(t.Context(), b)
	wantCode(t, "a saga that is not open", err, sallyport.NotFound)
	if r, _ := f.Find(t.Context(), key("k1")); r != nil {
		t.Error("the call began all the same")
	}
	s.State = sallyport.SagaOpen
	s, err = f.MoveSaga(t.Context(), move(s))
	must(t, err)
	fence, err := f.Begin(t.Context(), b)
	must(t, err)
	must(t, f.Finish(t.Context(), finish("k1", fence, sallyport.Failed)))
	_, err = f.Begin(t.Context(), b) // the same key once more: the same step
	must(t, err)
	got, err := f.Saga(t.Context(), "t", "s")
	if err != nil || len(got.Steps) != 1 || got.Steps[0].Key != "k1" || got.Revision == s.Revision {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = f.MoveSaga(t.Context(), move(s))
	wantCode(t, "a move that does not know of the call", err, sallyport.Conflict)
	b = begin("k2", transfer)
	b.Key.Principal, b.Saga, b.Joins = "other", "s", &step
	_, err = f.Begin(t.Context(), b)
	wantCode(t, "another principal's saga", err, sallyport.NotFound)
}

// What a saga that is not over may ask for is not forgotten.
func testSagaPrune(t *testing.T, f *fixture) {
	s := f.saga(t, "s", "a")
	fence, err := f.Begin(t.Context(), begin("kept", transfer))
	must(t, err)
	must(t, f.Finish(t.Context(), finish("kept", fence, sallyport.Done)))
	s.Steps[0].Key = "kept"
	s, err = f.MoveSaga(t.Context(), move(s, 0))
	must(t, err)
	f.pass(time.Minute)
	_, err = f.Prune(t.Context(), f.now())
	must(t, err)
	if st := f.state(t, "kept"); st != sallyport.Done {
		t.Errorf("the key of a running saga is %q", st)
	}
	s.State = sallyport.SagaSucceeded
	_, err = f.MoveSaga(t.Context(), move(s))
	must(t, err)
	f.pass(time.Minute)
	_, err = f.Prune(t.Context(), f.now())
	must(t, err)
	_, err = f.Saga(t.Context(), "t", "s")
	wantCode(t, "a saga that was over long ago", err, sallyport.NotFound)
	if st := f.state(t, "kept"); st != "" {
		t.Errorf("its key is still %q", st)
	}
}

// A saga keeps what its approval was asked for, and that approval covers a step
// only while the admins of today, in the groups of today, meet what is asked
// today; checked in the transaction that begins the step.
func testSagaCovered(t *testing.T, f *fixture) {
	f.putAdmin(t, "ann", "finance")
	f.putAdmin(t, "bob", "finance")
	tk := f.demanding(t, "plan", finance2)
	for _, by := range []string{"ann", "bob"} {
		var err error
		tk, err = f.vote(tk.ID, by, "finance")
		must(t, err)
	}
	s := sallyport.Saga{Tenant: "t", ID: "s", Principal: "agent", State: sallyport.SagaRunning, Ticket: tk.ID, Demands: tk.Demands}
	s, err := f.CreateSaga(t.Context(), s, entry(sallyport.EntrySaga, "x"))
	must(t, err)
	s, err = f.MoveSaga(t.Context(), move(s))
	must(t, err)
	s, err = f.Saga(t.Context(), "t", s.ID)
	must(t, err)
	same(t, "what the plan's ticket asked", s.Demands, []sallyport.Demand{finance2})
	more := finance2
	more.Quorum = 3
	n := 0
	try := func(what string, code sallyport.Code, today ...sallyport.Demand) {
		t.Helper()
		n++
		k := fmt.Sprint("step", n)
		b := begin(k, transfer)
		b.Plan, b.Demands = tk.ID, today
		_, err := f.Begin(t.Context(), b)
		wantCode(t, what, err, code)
		r, err := f.Find(t.Context(), key(k))
		must(t, err)
		if (r != nil) != (code == "") || r != nil && r.Ticket != tk.ID {
			t.Errorf("%s: the reservation is %+v", what, r)
		}
	}
	try("what was asked", "", finance2)
	try("nothing is asked", "")
	try("a larger quorum", sallyport.InFlight, more)
	try("another group", sallyport.InFlight, finance2, security)
	f.putAdmin(t, "bob", "sales")
	try("an approver left the group", sallyport.InFlight, finance2)
	try("less is asked", "", sallyport.Demand{Policy: "pay", Groups: []string{"finance"}})
	must(t, f.DeleteAdmin(t.Context(), "t", "ann", f.admin(t)))
	try("an approver is no admin", sallyport.InFlight, sallyport.Demand{Policy: "pay", Groups: []string{"finance"}})
}
