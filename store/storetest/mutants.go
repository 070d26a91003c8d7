package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
)

// A mutant is a store that is broken in one way.
type mutant struct {
	Store
	begin  func(int64, error) (int64, error)
	finish func(error) error
	decide func(error) error
	find   func(*sallyport.Reservation) *sallyport.Reservation
}

func (m mutant) Begin(ctx context.Context, b gateway.Begin) (int64, error) {
	fence, err := m.Store.Begin(ctx, b)
	if m.begin != nil {
		return m.begin(fence, err)
	}
	return fence, err
}

func (m mutant) Finish(ctx context.Context, f gateway.Finish) error {
	err := m.Store.Finish(ctx, f)
	if m.finish != nil {
		return m.finish(err)
	}
	return err
}

func (m mutant) Decide(ctx context.Context, tenant string, d sallyport.Decision, run time.Duration) (sallyport.Ticket, error) {
	tk, err := m.Store.Decide(ctx, tenant, d, run)
	if m.decide != nil {
		return tk, m.decide(err)
	}
	return tk, err
}

func (m mutant) Find(ctx context.Context, k sallyport.ReservationKey) (*sallyport.Reservation, error) {
	r, err := m.Store.Find(ctx, k)
	if m.find != nil && err == nil {
		r = m.find(r)
	}
	return r, err
}

func forgive(code sallyport.Code) func(error) error {
	return func(err error) error {
		if err != nil && sallyport.CodeOf(err) == code {
			return nil
		}
		return err
	}
}

func takes(code sallyport.Code) func(int64, error) (int64, error) {
	return func(fence int64, err error) (int64, error) {
		if err != nil && sallyport.CodeOf(err) == code {
			return 1, nil
		}
		return fence, err
	}
}

// The control: the model notices a ledger that is broken.
func testLinearMutants(t *testing.T, f *fixture) {
	f.ticking()
	other := f.another(t)
	seed := seeds(t, 1, 1)[0] + 1_000_000_000
	for name, m := range map[string]mutant{
		"a key is begun while it runs":             {begin: takes(sallyport.InFlight)},
		"an unknown outcome is retried":            {begin: takes(sallyport.OutcomeUnknown)},
		"a ticket, or other arguments, are reused": {begin: takes(sallyport.Conflict)},
		"a fence does not grow": {begin: func(fence int64, err error) (int64, error) {
			return min(fence, 1), err
		}},
		"an owner of old is believed": {finish: forgive(sallyport.Conflict)},
		"a ticket is decided twice":   {decide: forgive(sallyport.Conflict)},
		"an unknown outcome looks failed": {find: func(r *sallyport.Reservation) *sallyport.Reservation {
			if r != nil && r.State == sallyport.Unknown {
				r.State = sallyport.Failed
			}
			return r
		}},
		"a result is lost": {find: func(r *sallyport.Reservation) *sallyport.Reservation {
			if r != nil {
				r.Output = nil
			}
			return r
		}},
	} {
		caught := false
		for try := 0; try < 20 && !caught; try++ {
			seed++
			one, two := m, m
			one.Store, two.Store = f.Store, other
			caught = porcupine.CheckOperationsTimeout(model, history(t, seed, [2]Store{one, two}), time.Minute) == porcupine.Illegal
		}
		if !caught {
			t.Errorf("%s, and the model does not notice", name)
		}
	}
}
