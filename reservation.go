package sallyport

import (
	"encoding/json"
	"time"
)

// A ReservationState is where one keyed call stands.
//
//	reserved → awaiting_approval → executing → done | failed | unknown
//
// Only executing can become unknown (a crash, or an answer that never came),
// and unknown is never retried silently.
type ReservationState string

// The states of a reservation.
const (
	Reserved         ReservationState = "reserved"
	AwaitingApproval ReservationState = "awaiting_approval"
	Executing        ReservationState = "executing"
	Done             ReservationState = "done"
	Failed           ReservationState = "failed"  // the call is known to have had no effect
	Unknown          ReservationState = "unknown" // it may have acted
)

// A ReservationKey names one keyed call.
type ReservationKey struct {
	Tenant    string `json:"tenant"`
	Principal string `json:"principal"`
	Tool      string `json:"tool"`
	Key       string `json:"key"`
}

// A Reservation is the memory that makes a retry harmless.
type Reservation struct {
	ReservationKey
	Fingerprint string           `json:"fingerprint"` // sha256 hex of the canonical arguments
	State       ReservationState `json:"state"`
	CallID      string           `json:"call_id"` // of the call that owns it
	Ticket      string           `json:"ticket"`
	Fence       int64            `json:"fence"`  // grows with each owner; an older owner's writes are refused
	Lease       time.Time        `json:"lease"`  // executing beyond it, with its writer gone, is unknown
	Writer      string           `json:"writer"` // the gateway process that executes it
	Output      json.RawMessage  `json:"-"`      // raw output of a done call, sanitised anew at each replay
	IsError     bool             `json:"is_error"`
	CreatedAt   time.Time        `json:"created_at"`
	UpdatedAt   time.Time        `json:"updated_at"`
}
