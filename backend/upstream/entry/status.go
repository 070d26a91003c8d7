package entry

import (
	"encoding/json"

	"sallyport.dev/sallyport/backend/upstream/breaker"
)

// A State says how a server does.
type State string

// The states of a server.
const (
	Idle     State = "idle"     // lazy, not called yet
	Starting State = "starting" // connecting
	Ready    State = "ready"
	Down     State = "down"    // waiting to try again; Error says why
	Refused  State = "refused" // its configuration cannot be used
	Stopped  State = "stopped"
)

// A Status tells how one server does.
type Status struct {
	Name      string          `json:"name"`
	State     State           `json:"state"`
	Isolation string          `json:"isolation"`
	Era       string          `json:"era,omitempty"`         // "modern" or "legacy"
	Version   string          `json:"version,omitempty"`     // of the protocol
	Info      json.RawMessage `json:"server_info,omitempty"` // as the server says; not to be trusted
	Error     string          `json:"error,omitempty"`
	Circuit   breaker.State   `json:"circuit,omitempty"`  // which calls pass
	Opened    uint64          `json:"opened,omitempty"`   // how often none did
	Degraded  string          `json:"degraded,omitempty"` // e.g. "pagination"
	Tools     int             `json:"tools"`
	Restarts  int             `json:"restarts"`
	Warnings  []string        `json:"warnings,omitempty"`
	Stderr    []string        `json:"stderr,omitempty"` // last lines, control characters escaped
}
