package approval_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/store"
)

// FO-33: a call that is cancelled while it waits for a human takes its ticket
// back, so that a later approval does nothing; a connection that merely breaks
// leaves the ticket of a caller who can come back.
func TestFO33_CancelledWhileWaiting(t *testing.T) {
	client := func(_ chan struct{}, cancel context.CancelCauseFunc) { cancel(&sallyport.Cancellation{By: "client"}) }
	session := func(_ chan struct{}, cancel context.CancelCauseFunc) { cancel(&sallyport.Cancellation{By: "session"}) }
	stop := func(_ chan struct{}, cancel context.CancelCauseFunc) { cancel(&sallyport.Cancellation{By: "shutdown"}) }
	drop := func(_ chan struct{}, cancel context.CancelCauseFunc) { cancel(nil) }
	gone := func(gone chan struct{}, _ context.CancelCauseFunc) { close(gone) }
	for name, tt := range map[string]struct {
		end func(chan struct{}, context.CancelCauseFunc)
		key string
		by  string // "" where the ticket stays
	}{
		"cancelled":                  {client, "", "client"},
		"cancelled, with a key":      {client, "k", "client"},
		"session ended":              {session, "", "session"},
		"session ended, with a key":  {session, "k", ""},
		"the gateway stops":          {stop, "", ""},
		"connection dropped":         {drop, "", "disconnect"},
		"dropped, with a key":        {drop, "k", ""},
		"nobody listens":             {gone, "", "disconnect"},
		"nobody listens, with a key": {gone, "k", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, store.TicketRules{})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			req := request("pay", `{}`)
			req.Key = tt.key
			listener := make(chan struct{})
			req.Gone = listener
			id := make(chan string, 1)
			done := make(chan error, 1)
			go func() {
				_, err := s.Await(ctx, req, time.Minute, func(e *sallyport.Error) { id <- e.Ticket })
				done <- err
			}()
			ticket := <-id
			tt.end(listener, cancel)
			err := <-done
			tk := s.state(t, ticket)
			if tt.by == "" {
				if sallyport.CodeOf(err) != sallyport.Pending || tk.State != sallyport.TicketPending {
					t.Fatalf("%v, %s; the ticket should wait on", err, tk.State)
				}
				s.approve(t, ticket, "ann")
				req.Gone, req.Ticket = nil, ticket
				if _, err := s.Call(t.Context(), req); err != nil || len(s.ran) != 1 {
					t.Errorf("whoever comes back: %v, ran %d", err, len(s.ran))
				}
				return
			}
			if sallyport.CodeOf(err) != sallyport.Canceled || tk.State != sallyport.TicketWithdrawn {
				t.Fatalf("%v, the ticket is %s", err, tk.State)
			}
			_, err = s.engine.Decide(t.Context(), "t", sallyport.Decision{Ticket: ticket, Approve: true, By: "ann"})
			if sallyport.CodeOf(err) != sallyport.Conflict || !strings.Contains(err.Error(), "withdrawn") {
				t.Errorf("a later approval: %v", err)
			}
			req.Ticket = ticket
			if _, err := s.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Canceled || len(s.ran) != 0 {
				t.Errorf("resumed all the same: %v, ran %d", err, len(s.ran))
			}
			if s.onRecord(t, `"cancelled_by":"`+tt.by+`"`) != 1 {
				t.Errorf("the record does not say cancelled_by %s once", tt.by)
			}
		})
	}
}

// A running call that is cancelled says by whom on record.
func TestFO33_CancelledWhileRunning(t *testing.T) {
	for by, cause := range map[string]error{"client": &sallyport.Cancellation{By: "client"}, "disconnect": nil} {
		s := newStand(t, store.TicketRules{})
		s.Assessor = harmless{}
		ctx, cancel := context.WithCancelCause(t.Context())
		s.run = func(ctx context.Context, _ sallyport.Job) (sallyport.Output, error) {
			cancel(cause)
			<-ctx.Done()
			return sallyport.Output{}, ctx.Err()
		}
		_, err := s.Call(ctx, request("pay", `{}`))
		if sallyport.CodeOf(err) != sallyport.Canceled || s.onRecord(t, `"cancelled_by":"`+by+`"`) != 1 {
			t.Errorf("%s: %v, not on record once", by, err)
		}
	}
	// The control: a tool that is slow was not cancelled by anybody.
	s := newStand(t, store.TicketRules{})
	s.Assessor = harmless{}
	s.run = func(context.Context, sallyport.Job) (sallyport.Output, error) {
		return sallyport.Output{}, errors.New("broken")
	}
	if _, err := s.Call(t.Context(), request("pay", `{}`)); err == nil || s.onRecord(t, "cancelled_by") != 0 {
		t.Errorf("%v is called a cancellation", err)
	}
}

// An approval that comes while the caller cancels does not run later.
func TestFO33_ApprovedAndCancelled(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	_, id := s.pend(t, request("pay", `{}`))
	s.approve(t, id, "ann")
	tk, err := s.engine.Withdraw(t.Context(), s.who, id, "cancelled by the client")
	if err != nil || tk.State != sallyport.TicketVoid || tk.VoidReason != "cancelled by the client" {
		t.Errorf("%+v, %v", tk, err)
	}
	req := request("pay", `{}`)
	req.Ticket = id
	if _, err := s.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Canceled || len(s.ran) != 0 {
		t.Errorf("%v, ran %d", err, len(s.ran))
	}
}

// Who only asks for the result of another call does not take that call back,
// and whose token ran out meanwhile still can.
func TestFO33_WhoseCallItIs(t *testing.T) {
	s := newStand(t, store.TicketRules{})
	s.tool(gateway.ApprovalResult)
	_, id := s.pend(t, request("pay", `{}`))
	wait := func(req sallyport.Request) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		_, err := s.Await(ctx, req, time.Minute, func(*sallyport.Error) {
			go func() { // once it waits, or a moment before: it makes no difference
				time.Sleep(20 * time.Millisecond)
				s.mu.Lock()
				s.expired = true
				s.mu.Unlock()
				cancel(&sallyport.Cancellation{By: "client"})
			}()
		})
		s.expired = false
		return err
	}
	if err := wait(request(gateway.ApprovalResult, `{"ticket":"`+id+`"}`)); sallyport.CodeOf(err) != sallyport.Pending || s.state(t, id).State != sallyport.TicketPending {
		t.Errorf("whoever only asked: %v, the ticket is %s", err, s.state(t, id).State)
	}
	req := request("pay", `{}`)
	req.Ticket = id
	if err := wait(req); sallyport.CodeOf(err) != sallyport.Canceled || s.state(t, id).State != sallyport.TicketWithdrawn {
		t.Errorf("the call itself: %v, the ticket is %s", err, s.state(t, id).State)
	}
}
