package refusal

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// NewCall is what to do where an approval is used up or no longer holds.
const NewCall = "make a new call: it needs a new approval"

const cancelledBy = "cancelled by the "

// CancelledBy is why a ticket is taken back whose caller does not want the call any
// more: "client", or what else ended the wait.
func CancelledBy(who string) string { return cancelledBy + who }

// Ticket refuses a call by its ticket; nil only for an approved ticket of exactly the
// call whose binding has this hash.
func Ticket(t sallyport.Ticket, hash string) error {
	e := &sallyport.Error{Step: sallyport.Approve, Ticket: t.ID}
	switch {
	case t.State == sallyport.TicketRejected:
		e.Code, e.Message = sallyport.Rejected, "a human rejected this call"
		if t.Reason != "" {
			e.Message += ": " + t.Reason
		}
		e.Hint = "do not try the same in another form; ask the approver"
	case t.State == sallyport.TicketExpired:
		e.Code, e.Message = sallyport.Rejected, "nobody decided in time, so the call is rejected"
		e.Hint = NewCall
	case t.State == sallyport.TicketWithdrawn, t.State == sallyport.TicketVoid && strings.HasPrefix(t.VoidReason, cancelledBy):
		e.Code, e.Message = sallyport.Canceled, "the call was cancelled before it ran: its ticket was taken back"
		e.Hint = NewCall
	case t.State == sallyport.TicketVoid:
		e.Code, e.Message = sallyport.Rejected, "the approval is void: "+cmp.Or(t.VoidReason, "it was not used in time")
		e.Hint = NewCall
	case t.Hash != hash:
		e.Code, e.Message = sallyport.Conflict, "the tool, where it runs or who calls changed since the ticket was opened"
		e.Hint = NewCall
	case t.State == sallyport.TicketPending:
		e.Code, e.Message = sallyport.Pending, "a human must approve this call: ticket "+t.ID
		e.Hint = "call again with the same idempotency key or this ticket, or call approval_result, once it is decided"
	case t.State == sallyport.TicketApproved:
		return nil
	default: // consumed
		e.Code, e.Message = sallyport.InFlight, "the approval is already used: one approval is one execution"
		e.Hint = "wait and ask for the result again; a second execution needs a new call"
		e.RetryAfter = time.Second
	}
	return e
}

// NoTicket is what is said of a ticket that never was, and of somebody else's: the same.
func NoTicket(step sallyport.Step, id string) error {
	return &sallyport.Error{
		Code: sallyport.NotFound, Step: step, Message: fmt.Sprintf("unknown ticket %q", id),
		Hint: "use the ticket's id from the approval_pending answer, as the agent that made the call",
	}
}
