package gateway

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.dev/sallyport"
)

// The interfaces below are what the path needs from its engines. Each is
// implemented by the package named in its comment; only cmd/ wires them.

// An Authenticator turns a credential into a principal. (oauth)
type Authenticator interface {
	// Authenticate verifies signature, audience (each profile has its own),
	// expiry and the agent's state.
	// It returns an *sallyport.Error with code Unauthenticated when it cannot.
	Authenticate(ctx context.Context, profile, bearer string) (sallyport.Principal, error)
}

// A Limiter bounds what one principal may ask for at once. (limit)
type Limiter interface {
	// Admit takes one slot and size bytes of rate. The caller must call release.
	// It returns code RateLimited with RetryAfter, or TooLarge.
	Admit(who sallyport.Principal, size int) (release func(), err error)
}

// A Catalog holds the tools. (catalog)
type Catalog interface {
	// Resolve finds a tool by exposed name. It returns code NotFound, never more.
	// A quarantined tool is returned with its status.
	Resolve(profile, name string) (sallyport.Tool, error)

	// List returns every tool of a profile, quarantined ones too, in a
	// deterministic order. The caller must not modify it.
	List(profile string) ([]sallyport.Tool, error)

	// Validate checks canonical arguments against the tool's input schema.
	// The error says where and what, for the agent to read.
	Validate(tool sallyport.Tool, args json.RawMessage) error

	// Generation changes whenever any tool does.
	Generation() uint64
}

// An Assessor judges what a call would really do. Pure: it touches nothing. (risk)
type Assessor interface {
	Assess(tool sallyport.Tool, args json.RawMessage) sallyport.Risk
}

// An Action is what a policy decides about.
type Action string

// The actions.
const (
	ActionList Action = "list" // may the principal know that the tool exists
	ActionCall Action = "call"
)

// A Question is put to the policy engine.
type Question struct {
	Who     sallyport.Principal
	Profile string
	Action  Action
	Tool    sallyport.Tool
	Args    json.RawMessage // canonical; nil for ActionList
	Risk    sallyport.Risk  // zero for ActionList
	Tier    string
}

// A Verdict is the policy engine's answer.
type Verdict struct {
	Allow      bool
	Policies   []string // ids of the policies that decided
	Reasons    []string // for the agent: why not; "no policy allows this" if none matched
	Approval   bool     // a policy demands a human
	ApprovalBy []string // ids of the policies that demand it
	NoNetwork  bool     // a policy takes the network away
}

// An Authorizer decides by policy, default deny. (cedar)
type Authorizer interface {
	// Authorize never allows on an error.
	Authorize(q Question) (Verdict, error)

	// Generation changes whenever any policy does.
	Generation() uint64
}

// A Begin is the transaction before an execution.
type Begin struct {
	Key         sallyport.ReservationKey
	Fingerprint string
	CallID      string
	Ticket      string        // "" if no approval was needed
	TicketHash  string        // of the binding as it is now; must equal the ticket's
	Lease       time.Duration // after which an execution without an outcome is unknown
	Intent      sallyport.Entry
	Unchanged   func() error // policy and catalogue generations; called inside the transaction
}

// A Finish is the transaction after an execution.
type Finish struct {
	Key     sallyport.ReservationKey
	Fence   int64
	State   sallyport.ReservationState // Done, Failed or Unknown
	Output  json.RawMessage            // kept for replay when Done
	IsError bool
	Outcome sallyport.Entry
}

// A Ledger is the durable state of calls: reservations and tickets, each
// change in one transaction with its audit entry. (store/sqlite)
type Ledger interface {
	// Find returns the reservation of a key, or nil if there is none. An
	// execution whose lease has run out is returned as unknown.
	Find(ctx context.Context, key sallyport.ReservationKey) (*sallyport.Reservation, error)

	// Ticket returns a ticket of the tenant, or code NotFound. One that nobody
	// decided, or ran, in time is returned (and stored) as expired or void.
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)

	// Open stores a ticket and its reservation (reserved → awaiting_approval).
	// If the key already waits for a ticket with the same hash, that one is
	// returned; with other bytes, code Conflict.
	Open(ctx context.Context, t sallyport.Ticket, key sallyport.ReservationKey, fingerprint string, e sallyport.Entry) (sallyport.Ticket, error)

	// Begin makes ticket approved → consumed and reservation → executing, and
	// appends the intent; all or nothing. It returns the fence for Finish.
	// Codes: InFlight, Conflict, OutcomeUnknown, Rejected, Pending, and
	// whatever Unchanged returned. A key that is done is InFlight with no
	// RetryAfter: look again.
	Begin(ctx context.Context, b Begin) (fence int64, err error)

	// Finish stores the outcome. A stale fence is refused.
	Finish(ctx context.Context, f Finish) error
}

// A Journal takes audit entries of calls that change nothing, and of refusals.
// They are durable within 100 ms. (audit)
type Journal interface {
	// Append queues an entry.
	Append(e sallyport.Entry) error

	// Healthy returns an error once a flush has failed: no record, no call.
	Healthy() error
}

// A Sanitiser cleans what comes out. (redact)
type Sanitiser interface {
	// Result masks secrets, makes hidden characters visible and bounds the
	// size of a CallToolResult. Malformed output becomes a well-formed tool
	// error. findings name what was done, never the secret.
	Result(tool sallyport.Tool, out sallyport.Output) (clean json.RawMessage, isError bool, findings []string, err error)

	// Notice does the same for one notification.
	Notice(n sallyport.Notice) sallyport.Notice

	// JSON masks secrets in canonical arguments, for the record.
	JSON(v json.RawMessage) json.RawMessage

	// Text masks secrets and control characters in an error message.
	Text(s string) string
}

// Tickets tells when a ticket moves. (approval)
type Tickets interface {
	// Wait returns when the ticket is no longer pending, or ctx ends.
	Wait(ctx context.Context, tenant, id string) error
}
