package sallyport

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// A TicketState is where a ticket stands.
type TicketState string

// The states of a ticket. Only pending moves to approved, rejected, expired or
// withdrawn; only approved moves to consumed or void.
const (
	TicketPending   TicketState = "pending"
	TicketApproved  TicketState = "approved"
	TicketRejected  TicketState = "rejected"
	TicketExpired   TicketState = "expired"   // nobody decided in time: counts as rejected
	TicketWithdrawn TicketState = "withdrawn" // the caller gave up
	TicketConsumed  TicketState = "consumed"  // its one execution began
	TicketVoid      TicketState = "void"      // approved, but not run in time
)

// A Binding is everything that an approval stands for. Its hash is the
// ticket's hash: change one byte of it and the approval no longer applies.
type Binding struct {
	Tenant      string          `json:"tenant"`
	Principal   string          `json:"principal"`
	OnBehalfOf  string          `json:"on_behalf_of"`
	Profile     string          `json:"profile"`
	Tool        string          `json:"tool"`
	ToolVersion string          `json:"tool_version"`
	ToolDigest  string          `json:"tool_digest"`
	Args        json.RawMessage `json:"args"`       // canonical
	Endpoint    string          `json:"endpoint"`   // upstream URL or command digest
	Credential  string          `json:"credential"` // identity, never the value
	Image       string          `json:"image"`
	Tier        string          `json:"tier"`
	Egress      []string        `json:"egress"`
}

// Hash returns the sha256 hex of the binding. Each field is written with its
// length first, so that no two bindings share an encoding.
func (b Binding) Hash() string {
	h := sha256.New()
	put := func(s string) {
		var n [8]byte
		for i, v := 0, uint64(len(s)); i < 8; i++ {
			n[i] = byte(v >> (8 * (7 - i)))
		}
		h.Write(n[:])
		h.Write([]byte(s))
	}
	put("sallyport ticket v1")
	for _, s := range []string{
		b.Tenant, b.Principal, b.OnBehalfOf, b.Profile, b.Tool, b.ToolVersion, b.ToolDigest,
		string(b.Args), b.Endpoint, b.Credential, b.Image, b.Tier,
	} {
		put(s)
	}
	for _, s := range b.Egress {
		put(s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A Ticket asks a human about one concrete call.
type Ticket struct {
	ID        string      `json:"id"`
	CallID    string      `json:"call_id"`
	Key       string      `json:"key"` // reservation key of the call it belongs to
	Binding   Binding     `json:"binding"`
	Hash      string      `json:"hash"`
	Risk      Risk        `json:"risk"`
	Policies  []string    `json:"policies"` // ids of the policies that demanded it
	State     TicketState `json:"state"`
	CreatedAt time.Time   `json:"created_at"`
	DecideBy  time.Time   `json:"decide_by"`
	RunBy     time.Time   `json:"run_by"` // set with the decision
	DecidedBy string      `json:"decided_by"`
	DecidedAt time.Time   `json:"decided_at"`
	Reason    string      `json:"reason"`
	Trace     string      `json:"trace"`
}

// A Decision is a human's word on a ticket.
type Decision struct {
	Ticket  string
	Approve bool
	By      string // admin name
	Reason  string
	At      time.Time
}
