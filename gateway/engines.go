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
	// Admit takes one slot and size bytes of rate. The caller must call release,
	// once or more often.
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

	// Listed reports whether a server has told its tools since the gateway
	// started: only then is a tool that is not there gone.
	Listed(server string) bool
}

// An Assessor judges what a call would really do. Pure: it touches nothing. What
// it cannot judge before ctx ends is critical. (risk)
type Assessor interface {
	Assess(ctx context.Context, tool sallyport.Tool, args json.RawMessage) sallyport.Risk
}

// An Action is what a policy decides about.
type Action string

// The actions.
const (
	ActionList Action = "list" // may the principal know that the tool exists
	ActionCall Action = "call"
	ActionRead Action = "read" // may the principal know of the resource or prompt, and read it
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
	Tainted bool // the principal has read what strangers wrote; only told where Risk is more than low
}

// A Verdict is the policy engine's answer.
type Verdict struct {
	Allow     bool
	Policies  []string           // ids of the policies that decided
	Reasons   []string           // for the agent: why not; "no policy allows this" if none matched
	Demands   []sallyport.Demand // what humans must say first; none if no policy asks for one
	NoNetwork bool               // a policy takes the network away
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
	Ticket      string             // "" if no approval was needed
	TicketHash  string             // of the binding as it is now; must equal the ticket's
	Plan        string             // the ticket of a plan that covers the call, where Ticket is ""
	Demands     []sallyport.Demand // what today's policies ask of the ticket, or the plan's; nil leaves that unchecked
	Risk        sallyport.Risk     // for what was rejected a moment ago
	Lease       time.Duration      // after which an execution without an outcome is unknown
	Repeats     bool               // nothing by itself: an outcome that is unknown does not stand in its way
	Intent      sallyport.Entry
	Unchanged   func() error // policy and catalogue generations; called inside the transaction

	Amounts []sallyport.Amount // money that the call moves: counts from now on, unless the call fails
	Windows []sallyport.Window // that the amounts must keep within, unless Ticket is set
	Quotas  []sallyport.Quota  // that the call counts towards
	Twin    *Twin              // set for a call without a key that may repeat another

	Saga  string              // ad-hoc saga that the call joins
	Joins *sallyport.SagaStep // appended to that saga, which must be open, else code NotFound; nil if there is nothing to undo
}

// A Twin describes a call without a key whose identical repetition counts as
// the same call.
type Twin struct {
	Fingerprint string        // of the arguments and the user on whose behalf
	Within      time.Duration // of the first call's beginning, or while that runs
}

// A Finish is the transaction after an execution.
type Finish struct {
	Key     sallyport.ReservationKey
	Fence   int64
	State   sallyport.ReservationState // Done, Failed or Unknown
	Output  json.RawMessage            // kept for replay when Done
	IsError bool
	Reason  json.RawMessage // kept when Failed: what the caller was told
	Outcome sallyport.Entry
}

// A Ledger is the durable state of calls: reservations and tickets, each
// change in one transaction with its audit entry. (store/relational)
type Ledger interface {
	// Find returns the reservation of a key, or nil if there is none. An
	// execution whose lease has run out is returned as unknown.
	Find(ctx context.Context, key sallyport.ReservationKey) (*sallyport.Reservation, error)

	// Ticket returns a ticket of the tenant, or code NotFound. One that nobody
	// decided, or ran, in time is returned (and stored) as expired or void.
	Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error)

	// Open stores a ticket and its reservation (reserved → awaiting_approval).
	// If the key already waits for a ticket with the same hash, that one is
	// returned; with other bytes, code Conflict. Codes: Rejected with RetryAfter
	// while something similar has just been rejected, RateLimited where too many
	// wait already.
	Open(ctx context.Context, t sallyport.Ticket, key sallyport.ReservationKey, fingerprint string, e sallyport.Entry) (sallyport.Ticket, error)

	// Begin makes ticket approved → consumed and reservation → executing, and
	// appends the intent; all or nothing. It returns the fence for Finish.
	// Codes: InFlight, Conflict, OutcomeUnknown, Rejected, Pending, RateLimited
	// (a quota, or too many open calls), and whatever Unchanged returned. A key
	// that is done is InFlight with no RetryAfter: look again. So is a call that
	// has a twin, or whose amounts would overrun a window by now. An approval
	// that does not meet Demands with the admins and groups of today becomes
	// void: code Conflict. That of a plan only does not cover the call: InFlight
	// with RetryAfter.
	Begin(ctx context.Context, b Begin) (fence int64, err error)

	// Finish stores the outcome, while the lease lasts. A stale fence is
	// refused, and so is an owner whose lease has run out: the outcome of such
	// a call stays unknown until an operator resolves it. Code Conflict.
	Finish(ctx context.Context, f Finish) error
}

// An Estimator words the question how many rows a call would touch, for the
// database itself. (risk)
type Estimator interface {
	// Explain returns a query that has the database plan the SQL of a call, and
	// run none of it. The error says why there is none.
	Explain(ctx context.Context, tool sallyport.Tool, args json.RawMessage) (query string, err error)

	// Rows finds the database's estimate in the answer to such a query.
	Rows(answer json.RawMessage) (rows int64, ok bool)
}

// A Past tells what was done before. (store/relational)
type Past interface {
	// Overruns returns the windows that amounts would overrun if they were
	// moved now. Without amounts, or windows, there are none.
	Overruns(ctx context.Context, who sallyport.ReservationKey, amounts []sallyport.Amount, windows []sallyport.Window) ([]sallyport.Overrun, error)

	// TwinOf returns the key of the call that an identical one repeats, or "".
	// In who, Key is not used.
	TwinOf(ctx context.Context, who sallyport.ReservationKey, twin Twin) (key string, err error)
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
	// error. findings name what was done, never the secret. What goes to one
	// reader, here and by Notice and Stream, is looked at together.
	Result(reader string, tool sallyport.Tool, out sallyport.Output) (clean json.RawMessage, isError bool, findings []string, err error)

	// Notice does the same for one notification.
	Notice(reader string, n sallyport.Notice) sallyport.Notice

	// Stream returns what cleans one text that comes in pieces: it returns what
	// can be told by now, and keeps back what could be part of a secret.
	Stream(reader string) func(piece []byte) string

	// JSON masks secrets in canonical arguments, for the record.
	JSON(v json.RawMessage) json.RawMessage

	// Text masks secrets and control characters in an error message.
	Text(s string) string
}

// Tickets follows tickets beyond one call. (approval)
type Tickets interface {
	// Wait returns when the ticket is no longer pending, or ctx ends.
	Wait(ctx context.Context, tenant, id string) error

	// Opened is told of each new ticket, once it is stored.
	Opened(ctx context.Context, t sallyport.Ticket)

	// Withdraw takes back the caller's own ticket: a pending one is withdrawn,
	// an approved one that has not run is void.
	Withdraw(ctx context.Context, who sallyport.Principal, ticket, reason string) (sallyport.Ticket, error)

	// Void ends an approval that no longer holds. A ticket that is not approved
	// stays as it is: code Conflict.
	Void(ctx context.Context, tenant, ticket, reason string) error
}

// Taints remember who has read what strangers wrote. (store/relational)
type Taints interface {
	// Taint keeps t until t.Until, for every gateway. One of the same principal
	// that lasts longer stays.
	Taint(ctx context.Context, t sallyport.Taint) error

	// Tainted returns the taint of a principal that holds at a time, or nil.
	Tainted(ctx context.Context, tenant, principal string, at time.Time) (*sallyport.Taint, error)
}

// Held are the calls that wait for their clients to come back with answers. (gateway/held)
type Held interface {
	// Resume hands a client's answers to its call, and follows that to its end or
	// its next questions. A state that is wrong, used up or not the caller's is an
	// error in the same words, code Invalid.
	Resume(ctx context.Context, r sallyport.Return) (sallyport.Result, error)

	// Named reads the name of a task. One that is wrong, or not of who the binding
	// stands for, is code NotFound.
	Named(task, binding string) (sallyport.Lasting, error)

	// Visit does what is wanted to a call that is held, here or by another gateway,
	// and returns what it asks. The error is what the call has just ended with, or that it
	// cannot be reached. Where Held is nil, the call is one that is under way.
	Visit(ctx context.Context, l sallyport.Lasting, v sallyport.Visit) ([]sallyport.Question, error)

	// Underway notes how a call is cancelled that somebody may want to be, held or not,
	// until over is called, which cancels it.
	Underway(callID string, cancel context.CancelCauseFunc) (over func())
}

// Plans knows what a call has to do with a saga. (saga)
type Plans interface {
	// Enter checks that a call through a profile may speak for a saga. One that does
	// not exist, is not the caller's or takes no calls is code NotFound, in the same
	// words; one of another profile is code Conflict.
	Enter(ctx context.Context, who sallyport.Principal, profile, saga string) error

	// During reports whether the caller had an ad-hoc saga open at a time.
	During(ctx context.Context, who sallyport.Principal, at time.Time) (bool, error)

	// Judge says what the saga means for a call that policies let through. now
	// is what humans must say before it runs, if anything.
	Judge(ctx context.Context, q Question, saga string, now []sallyport.Demand) PlanVerdict
}

// A PlanVerdict is what a saga means for one call. Zero: nothing.
type PlanVerdict struct {
	Digest  string              // of the plan that the call starts or is a step of; a ticket binds it
	Ticket  string              // approved the whole plan, and covers exactly this call
	Refused string              // why the call cannot be part of the saga that it names
	Strayed string              // why the call left the plan and needs a human, whatever its risk
	Joins   *sallyport.SagaStep // to be put on the saga's list in the transaction that begins the call
}
