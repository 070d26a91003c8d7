package gateway

import (
	"context"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/test/await"
)

// approvedCall starts an approved call that runs until it is cancelled.
func approvedCall(t *testing.T, w *world) (ticket string, ended <-chan error) {
	t.Helper()
	started, done := make(chan struct{}), make(chan error, 1)
	w.risk.Irreversible = true
	w.run = func(ctx context.Context, _ sallyport.Job) (sallyport.Output, error) {
		close(started)
		<-ctx.Done()
		return sallyport.Output{}, ctx.Err()
	}
	req := call(`{"n":1}`)
	req.Ticket = pend(t, w, req)
	w.ledger.decide(req.Ticket, sallyport.TicketApproved)
	go func() {
		_, err := w.Call(context.WithoutCancel(t.Context()), req)
		done <- err
	}()
	<-started
	return req.Ticket, done
}

func withdraw(g *Gateway, who, ticket string) error {
	return g.Withdraw(context.Background(), sallyport.Request{Credential: "token-of-" + who, Ticket: ticket})
}

// Who takes back a ticket whose call runs has the call cancelled, and nobody else can.
func TestACallIsCancelledByItsTicket(t *testing.T) {
	w, _ := asking(t)
	ticket, ended := approvedCall(t, w)
	for _, who := range []string{"bob", "ann@t2", "ann+cy"} {
		if err := withdraw(w.Gateway, who, ticket); sallyport.CodeOf(err) != sallyport.NotFound {
			t.Errorf("%s: %v", who, err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("somebody else ended it: %v", err)
	default:
	}
	if err := withdraw(w.Gateway, "ann", ticket); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if sallyport.CodeOf(err) != sallyport.OutcomeUnknown {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(await.Patience):
		t.Fatal("it runs on")
	}
	if r := w.last(t); r.CancelledBy != "client" {
		t.Errorf("cancelled by %q", r.CancelledBy)
	}
	if err := withdraw(w.Gateway, "ann", ticket); err != nil { // it is over
		t.Error(err)
	}
}

// A call that waits for a human is not cancelled by that its caller goes: its ticket is
// taken back, or it stays.
func TestWhatWaitsIsNotCancelled(t *testing.T) {
	w := newWorld(t)
	w.risk.Irreversible = true
	ctx, gone := context.WithCancel(t.Context())
	gone()
	if _, err := w.Call(ctx, call(`{}`)); sallyport.CodeOf(err) != sallyport.Pending {
		t.Fatal(err)
	}
	if r := w.last(t); r.CancelledBy != "" {
		t.Errorf("cancelled by %q", r.CancelledBy)
	}
}

// It may run at another gateway.
func TestACallIsCancelledWhereItRuns(t *testing.T) {
	w := newWorld(t)
	_, second, reachable := two(t, w)
	w.ledger.writer = "first"
	ticket, ended := approvedCall(t, w)
	if err := withdraw(second, "ann", ticket); err != nil { // the other one is not there: nothing is promised
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("nobody told it: %v", err)
	default:
	}
	reachable(true)
	if err := withdraw(second, "ann", ticket); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(await.Patience):
		t.Fatal("it runs on")
	}
}
