package sallyport

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxKey is the greatest length of an idempotency key in bytes.
const MaxKey = 255

// Scope stands between a caller's key and the user on whose behalf it was used.
// No key of a caller's holds it.
const Scope = " → "

// CheckKey reports why a caller cannot use an idempotency key, or nil. A key is
// 1 to MaxKey printable ASCII characters, with no space at either end: two keys
// that look the same are the same, and one to which the gateway has added
// something (see Scope) is nobody's to choose.
func CheckKey(key string) error {
	bad := func(format string, args ...any) error {
		return &Error{Code: Invalid, Message: fmt.Sprintf(format, args...),
			Hint: fmt.Sprintf("use 1 to %d printable ASCII characters, with no space at either end, such as a UUID", MaxKey)}
	}
	switch {
	case key == "":
		return bad("the idempotency key is empty")
	case len(key) > MaxKey:
		return bad("the idempotency key has %d bytes, more than %d", len(key), MaxKey)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' || key[i] == ' ' && (i == 0 || i == len(key)-1) {
			return bad("the idempotency key holds a character that is not allowed, at byte %d", i+1)
		}
	}
	return nil
}

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

// ClosedReservations are what lists show in place of AwaitingApproval once the
// ticket is closed without an execution: the ticket's own state. The call under
// that key never runs.
var ClosedReservations = []ReservationState{
	ReservationState(TicketRejected), ReservationState(TicketExpired), ReservationState(TicketWithdrawn), ReservationState(TicketVoid),
}

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
	Fence       int64            `json:"fence"`          // grows with each owner; an older owner's writes are refused
	Lease       time.Time        `json:"lease,omitzero"` // executing beyond it, with its writer gone, is unknown
	Writer      string           `json:"writer"`         // the gateway process that executes it
	Output      json.RawMessage  `json:"-"`              // raw output of a done call, sanitised anew at each replay; nil if it is not kept
	IsError     bool             `json:"is_error"`
	Reason      json.RawMessage  `json:"-"` // of a failed call: what its caller was told, in a form of the gateway's; nil if it is not known
	CreatedAt   time.Time        `json:"created_at"`
	UpdatedAt   time.Time        `json:"updated_at"`
}
