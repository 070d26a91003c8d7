// Package store names what is kept besides calls: pins of tool definitions,
// servers added at run time, and what lists are filtered by. The stores
// themselves are beneath it; storetest says what each of them must do.
package store

import (
	"encoding/json"
	"time"

	"sallyport.dev/sallyport"
)

// MaxList bounds every list; a limit of 0 means this.
const MaxList = 10_000

// A TicketFilter chooses tickets. Empty fields match everything.
type TicketFilter struct {
	Tenant    string
	Principal string
	Tool      string
	States    []sallyport.TicketState
	Limit     int
}

// A ReservationFilter chooses reservations. Empty fields match everything.
type ReservationFilter struct {
	Tenant    string
	Principal string
	States    []sallyport.ReservationState
	Limit     int
}

// A Resolution is an operator's word on a call whose outcome is unknown.
type Resolution struct {
	Key    sallyport.ReservationKey
	Call   string                     // the execution that was looked at; "" will do where the key had one only
	State  sallyport.ReservationState // Done: it took effect; Failed: it certainly did not, the key is free again
	By     string
	Reason string
	Output json.RawMessage // for Done: what a repeated call gets, a CallToolResult; nil says only that it took effect
}

// SealedRow is the first byte of a sealed row. No JSON text begins with it.
const SealedRow = 1

// A Box makes rows illegible at rest. (secret)
type Box interface {
	// Seal returns plain in sealed form, which begins with SealedRow and is bound
	// to the tenant and the row: it cannot stand for another.
	Seal(tenant, row string, plain []byte) []byte

	// Open is the reverse. It returns code Unavailable for what was altered or
	// sealed with another key.
	Open(tenant, row string, sealed []byte) ([]byte, error)
}

// A Pin is what a team agreed that a tool is. The catalogue compares what an
// upstream lists with it.
type Pin struct {
	Tenant     string          `json:"tenant"`
	Server     string          `json:"server"`
	Name       string          `json:"name"`       // at its origin
	Digest     string          `json:"digest"`     // sha256 hex of Definition
	Definition json.RawMessage `json:"definition"` // byte-exact
	Version    string          `json:"version"`    // semantic; "" is stored as 1.0.0
	Accepted   []string        `json:"accepted"`   // remarks that whoever approved it has seen
	Endpoint   string          `json:"endpoint"`   // where its server was then, "" if nobody noted it
	Status     string          `json:"status"`     // the catalogue's word, e.g. "active", "quarantined"
	ApprovedBy string          `json:"approved_by"`
	ApprovedAt time.Time       `json:"approved_at,omitzero"`
	UpdatedAt  time.Time       `json:"updated_at"` // set by the store
}

// A Server is an upstream added at run time.
type Server struct {
	Tenant    string          `json:"tenant"`
	Name      string          `json:"name"`
	Config    json.RawMessage `json:"config"`
	UpdatedAt time.Time       `json:"updated_at"` // set by the store
}

// A SecretInfo tells that a secret exists, never its value.
type SecretInfo struct {
	Name      string    `json:"name"`
	UpdatedAt time.Time `json:"updated_at"`
}

// MaxSagaSteps bounds the calls of one ad-hoc saga.
const MaxSagaSteps = 100

// A SagaFilter chooses sagas. Empty fields match everything.
type SagaFilter struct {
	Tenant    string
	Principal string
	States    []sallyport.SagaState
	Due       time.Time // only those that are to be looked at by then, the most urgent first
	Limit     int
}

// A SagaMove is one change of a saga. Saga is as it is to be, and its Revision
// the one that was read: if the saga has moved since, or Fence is not 0 and no
// longer the driver's, the move is refused with code Conflict, and nothing of
// it is stored.
type SagaMove struct {
	Saga  sallyport.Saga
	Fence int64
	Steps []int // indexes of the steps that changed
	Entry sallyport.Entry

	// Close uses keys up, so that no call under them can begin any more. A key
	// under which a call is executing refuses the move; one that is done stays.
	Close []sallyport.ReservationKey
}
