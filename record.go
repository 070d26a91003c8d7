package sallyport

import (
	"encoding/json"
	"time"
)

// An EntryKind says what an audit entry tells.
type EntryKind string

// The kinds of audit entry.
const (
	EntryIntent   EntryKind = "intent"   // a mutating call is about to execute
	EntryOutcome  EntryKind = "outcome"  // how a call ended, refusals included
	EntryTicket   EntryKind = "ticket"   // a ticket was opened or withdrawn
	EntryDecision EntryKind = "decision" // a human or the clock decided a ticket
	EntryAdmin    EntryKind = "admin"    // an operator changed something
	EntryStart    EntryKind = "start"    // a gateway started; calls left executing became unknown
	EntrySaga     EntryKind = "saga"     // a saga or one of its steps moved
	EntryServer   EntryKind = "server"   // what a third-party server did beside its answers
)

// EntryKinds are all of them.
var EntryKinds = []EntryKind{EntryIntent, EntryOutcome, EntryTicket, EntryDecision, EntryAdmin, EntryStart, EntrySaga, EntryServer}

// An Entry is one audit record before it is sealed. The audit package gives it
// a writer, a sequence number and a place in the Merkle log.
type Entry struct {
	Tenant  string          `json:"tenant"`
	Time    time.Time       `json:"time"`
	Kind    EntryKind       `json:"kind"`
	CallID  string          `json:"call_id,omitempty"`
	Payload json.RawMessage `json:"payload"` // a Record, a Ticket or its movement, a Change, a ServerReport; kept apart, committed to
}

// A Record tells one call: who, what, how far it came and how it ended.
type Record struct {
	CallID      string          `json:"call_id"`
	Door        string          `json:"door"`
	Tenant      string          `json:"tenant,omitempty"`
	Principal   string          `json:"principal,omitempty"`
	OnBehalfOf  string          `json:"on_behalf_of,omitempty"`
	Actor       string          `json:"actor,omitempty"`
	Profile     string          `json:"profile,omitempty"`
	Kind        Kind            `json:"operation"`
	Target      string          `json:"target"`
	ToolDigest  string          `json:"tool_digest,omitempty"`
	Server      string          `json:"server,omitempty"`
	Upstream    string          `json:"upstream_name,omitempty"`
	Args        json.RawMessage `json:"args,omitempty"` // canonical, secrets masked
	Key         string          `json:"key,omitempty"`
	Ticket      string          `json:"ticket,omitempty"`
	Saga        string          `json:"saga,omitempty"` // that the call belongs to
	Risk        *Risk           `json:"risk,omitempty"`
	Policies    []string        `json:"policies,omitempty"`
	Path        []Step          `json:"path"`
	Code        Code            `json:"code,omitempty"` // "" = ok
	Message     string          `json:"message,omitempty"`
	IsError     bool            `json:"is_error,omitempty"`
	Replay      bool            `json:"replay,omitempty"`
	Twin        string          `json:"twin,omitempty"`     // call that this one, without a key, repeats
	Findings    []string        `json:"findings,omitempty"` // what sanitise masked or flagged
	ResultHash  string          `json:"result_sha256,omitempty"`
	Isolation   string          `json:"isolation,omitempty"`
	Tier        string          `json:"tier,omitempty"` // chosen for code, also where the call did not come to run
	TierReason  string          `json:"tier_reason,omitempty"`
	Reached     []Connection    `json:"connections,omitempty"` // of a sandboxed run
	Receipt     *Receipt        `json:"receipt,omitempty"`     // of a sandboxed run
	Asked       []Asked         `json:"asked,omitempty"`       // what its server asked the client
	Waits       int             `json:"waits_for,omitempty"`   // this many answers of its client; the call goes on
	Continues   bool            `json:"continues,omitempty"`   // the client came back with answers to the call of this id
	Trace       string          `json:"trace,omitempty"`
	TraceState  string          `json:"tracestate,omitempty"` // that went on to the server, and
	Baggage     string          `json:"baggage,omitempty"`
	Parent      string          `json:"parent,omitempty"`       // call whose script made this one
	CancelledBy string          `json:"cancelled_by,omitempty"` // who ended it early: "client", "disconnect", "session", "unanswered", "revocation", "shutdown"
	Unrecorded  int             `json:"unrecorded,omitempty"`   // refusals of strangers since the last entry, which this one stands for
	Started     time.Time       `json:"started"`
	Duration    time.Duration   `json:"duration_ns"`
}

// A ServerReport tells what a server in a sandbox did beside its answers.
type ServerReport struct {
	Server      string       `json:"server"`
	Since       time.Time    `json:"since"`
	Connections []Connection `json:"connections,omitempty"` // bounded: what is beyond is counted as "others"
	LimitsHit   []string     `json:"limits_hit,omitempty"`
}

// A Change tells what an operator, or the gateway by itself, changed.
type Change struct {
	Action string `json:"action"` // in the words of the command line: "agents add", "secrets set"
	By     string `json:"by"`     // an admin's name, "uid:N", "init" or "system"
	Target string `json:"target,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail any    `json:"detail,omitempty"`
}
