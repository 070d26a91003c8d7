package approval

import (
	"context"

	"sallyport.dev/sallyport"
)

// An Event is something that happened to a ticket.
type Event string

// The events.
const (
	Opened    Event = "opened"
	Voted     Event = "voted"     // one more approval; others are still needed
	Decided   Event = "decided"   // approved, rejected or expired: Ticket.State says which
	Escalated Event = "escalated" // Ticket.EscalatedTo may decide, too
	Withdrawn Event = "withdrawn"
	Voided    Event = "voided" // approved, but it no longer holds: Ticket.VoidReason
)

// A Notifier is told what happens to tickets, by the gateway at which it
// happened. What it is told is stored already.
type Notifier interface {
	// Ticket must return soon: whoever decides, or calls, waits for it. An
	// event is not repeated; a notifier that must not lose one looks at the
	// store as well.
	Ticket(ctx context.Context, event Event, t sallyport.Ticket)
}
