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
	State  sallyport.ReservationState // Done: it took effect; Failed: it certainly did not, the key is free again
	By     string
	Reason string
}

// A Pin is what a team agreed that a tool is. The catalogue compares what an
// upstream lists with it.
type Pin struct {
	Tenant     string          `json:"tenant"`
	Server     string          `json:"server"`
	Name       string          `json:"name"`       // at its origin
	Digest     string          `json:"digest"`     // sha256 hex of Definition
	Definition json.RawMessage `json:"definition"` // byte-exact
	Status     string          `json:"status"`     // the catalogue's word, e.g. "active", "quarantined"
	ApprovedBy string          `json:"approved_by"`
	ApprovedAt time.Time       `json:"approved_at"`
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
