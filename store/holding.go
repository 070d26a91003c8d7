package store

import "time"

// The kinds of a Holding.
const (
	HoldsIssuer = "issuer" // of a server, confirmed by an operator; it has no name
	HoldsClient = "client" // a registration, by issuer
	HoldsGrant  = "grant"  // tokens, by whom they are for
	HoldsLogin  = "login"  // one that a human has begun, by the sha256 of its state
)

// A Holding is what the gateway holds at the authorization server of one upstream.
type Holding struct {
	Tenant, Server, Kind, Name string

	Body      []byte // sealed; see secret/vault
	Version   int64  // as it was read; 0: there is none yet; Any: whatever there is
	Holder    string // the gateway that refreshes it now, "" if none does
	HeldUntil time.Time
	ExpiresAt time.Time // zero is never
	UpdatedAt time.Time // set by the store
}

// Any is the version of a Holding that replaces whatever there is.
const Any = -1
