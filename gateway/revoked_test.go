package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/standing"
)

// stopped is an authenticator whose agents were stopped at some time.
type stopped struct {
	Authenticator
	now bool
}

func (s *stopped) Authenticate(ctx context.Context, profile, bearer string) (sallyport.Principal, error) {
	if s.now {
		return sallyport.Principal{}, &sallyport.Error{Code: sallyport.Unauthenticated, Message: "not active", Err: sallyport.ErrRevoked}
	}
	return s.Authenticator.Authenticate(ctx, profile, bearer)
}

// TO-09: a call of an agent that is stopped is cancelled where it runs, and its agent
// hears nothing more of it.
func TestTO09_RunningCallsEndWithTheirAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		who := &stopped{Authenticator: w}
		w.Gateway.Authenticator = who
		w.run = func(ctx context.Context, _ sallyport.Job) (sallyport.Output, error) {
			<-ctx.Done()
			return sallyport.Output{}, ctx.Err()
		}
		time.AfterFunc(15*time.Second, func() { who.now = true })
		began := time.Now()
		_, err := w.Call(t.Context(), call(`{"n":1}`))
		if sallyport.CodeOf(err) != sallyport.Canceled || time.Since(began) > 2*standing.Every {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if r := w.last(t); r.CancelledBy != standing.Lost {
			t.Errorf("cancelled by %q", r.CancelledBy)
		}
	})
}

// TO-09: the question that an agent waits with is taken back when the agent is stopped,
// though it could have come back with a key.
func TestTO09_QuestionsEndWithTheirAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		who := &stopped{Authenticator: w}
		w.Gateway.Authenticator = who
		w.risk.Irreversible = true
		req := call(`{"n":1}`)
		req.Key = "k"
		time.AfterFunc(15*time.Second, func() { who.now = true })
		began := time.Now()
		_, err := w.Await(t.Context(), req, 5*time.Minute, nil)
		e, _ := errors.AsType[*sallyport.Error](err)
		if e == nil || e.Code != sallyport.Canceled || time.Since(began) > 2*standing.Every {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if got, err := w.ledger.Ticket(t.Context(), "t1", e.Ticket); err != nil || got.State == sallyport.TicketPending {
			t.Errorf("the ticket is %s, %v", got.State, err)
		}
	})
}
