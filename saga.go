package sallyport

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// A SagaState is where a saga stands.
//
//	running ⇄ awaiting_approval, paused, parked → succeeded
//	   ↓ a step failed for good, or somebody cancelled
//	compensating ⇄ awaiting_approval, paused, parked → compensated
//	   ↓ an undo failed for good
//	compensation_failed, until a human decides
//
// What is parked or compensation_failed waits for a human, what is paused for
// whoever paused it. A saga that was ever compensating never succeeds.
type SagaState string

// The states of a saga.
const (
	SagaOpen         SagaState = "open"    // ad hoc: the agent still makes its calls
	SagaRunning      SagaState = "running" // steps forward
	SagaAwaiting     SagaState = "awaiting_approval"
	SagaPaused       SagaState = "paused"
	SagaParked       SagaState = "parked"       // Reason says what a human must do
	SagaCompensating SagaState = "compensating" // steps are undone, the last first
	SagaSucceeded    SagaState = "succeeded"
	SagaCompensated  SagaState = "compensated" // what could be undone is; kept steps say what could not
	SagaUndoFailed   SagaState = "compensation_failed"
	SagaCancelled    SagaState = "cancelled" // before anything was done
)

// SagaStates lists them all.
var SagaStates = []SagaState{
	SagaOpen, SagaRunning, SagaAwaiting, SagaPaused, SagaParked, SagaCompensating,
	SagaSucceeded, SagaCompensated, SagaUndoFailed, SagaCancelled,
}

// Final reports whether nothing will ever happen to the saga again.
func (s SagaState) Final() bool {
	return s == SagaSucceeded || s == SagaCompensated || s == SagaCancelled
}

// A StepState is where one step of a saga stands.
type StepState string

// The states of a step, forward and then back.
const (
	StepPending StepState = "pending"
	StepRunning StepState = "running" // its attempt is on record; whether the call began, the reservation knows
	StepDone    StepState = "done"
	StepFailed  StepState = "failed"  // it certainly had no effect, or the tool says that it failed
	StepUnknown StepState = "unknown" // it may have acted
	StepSkipped StepState = "skipped" // a human left it out, or it was cancelled before it began

	StepUndoing     StepState = "undoing"
	StepUndone      StepState = "undone"
	StepUndoFailed  StepState = "undo_failed"
	StepUndoUnknown StepState = "undo_unknown"
	StepUndoSkipped StepState = "undo_skipped" // a human took care of it, or left it
	StepKept        StepState = "kept"         // done, and nothing undoes it
)

// Done reports whether the step acted, or may have, and was not undone.
func (s StepState) Done() bool {
	switch s {
	case StepDone, StepUnknown, StepUndoing, StepUndoFailed, StepUndoUnknown:
		return true
	default:
		return false
	}
}

// A Saga is a sequence of calls that ends done or undone. Every change of it is
// one transaction with its audit entry.
type Saga struct {
	Tenant     string `json:"tenant"`
	ID         string `json:"id"`
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"` // the plan's, in the words of who wrote it
	AdHoc      bool   `json:"ad_hoc,omitempty"`  // made of calls, not of a plan
	Principal  string `json:"principal"`
	OnBehalfOf string `json:"on_behalf_of,omitempty"`
	Actor      string `json:"actor,omitempty"`
	Profile    string `json:"profile,omitempty"`
	CallID     string `json:"call_id"`          // of the call that started it
	Trace      string `json:"trace,omitempty"`  // of that call
	Digest     string `json:"digest,omitempty"` // over all steps and compensations, "" ad hoc

	Ticket  string   `json:"ticket,omitempty"`  // that approved all of it, "" if none was needed
	Demands []Demand `json:"demands,omitempty"` // that this ticket satisfied; without them it covers no step that needs a human

	State    SagaState  `json:"state"`
	Undoing  bool       `json:"undoing"`          // the direction, whatever the state
	Reason   string     `json:"reason,omitempty"` // of the state, for people
	Failure  string     `json:"failure,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`
	Steps    []SagaStep `json:"steps"`

	Authorized time.Time `json:"authorized,omitzero"` // tokens of the agent issued before a later NotBefore do not count
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`       // set by the store
	WakeAt     time.Time `json:"wake_at,omitzero"` // when to look at it again; zero: when somebody acts
	Revision   int64     `json:"revision"`         // grows with each change
	Fence      int64     `json:"fence"`            // grows with each driver; an older driver's writes are refused
	Owner      string    `json:"owner,omitempty"`  // the gateway process that drives it
	Lease      time.Time `json:"lease,omitzero"`   // until when
}

// A SagaStep is one call of a saga, with what undoes it.
type SagaStep struct {
	ID       string          `json:"id"`
	Do       SagaCall        `json:"do"`
	Undo     *SagaCall       `json:"undo,omitempty"` // nil: nothing undoes it
	NoReturn bool            `json:"point_of_no_return,omitempty"`
	State    StepState       `json:"state"`
	Key      string          `json:"key,omitempty"`      // of the last attempt forward
	UndoKey  string          `json:"undo_key,omitempty"` // of the last attempt back
	Budget   int             `json:"budget,omitempty"`   // attempts in this direction so far that a human has granted anew
	Attempts []SagaAttempt   `json:"attempts,omitempty"`
	Result   json.RawMessage `json:"-"` // what the step returned, sanitised; kept apart
}

// A SagaCall is a call as the plan has it: arguments may refer to results.
type SagaCall struct {
	Tool       string          `json:"tool"`
	Version    string          `json:"version,omitempty"`
	Digest     string          `json:"digest,omitempty"` // of the tool when the plan was judged
	Endpoint   string          `json:"endpoint,omitempty"`
	Credential string          `json:"credential,omitempty"`
	Args       json.RawMessage `json:"arguments"`
	Risk       Risk            `json:"risk"` // as far as it could be told beforehand
	Idempotent bool            `json:"idempotent,omitempty"`
	Timeout    time.Duration   `json:"timeout,omitempty"`
	Attempts   int             `json:"attempts,omitempty"` // at most, 0 = the default of the direction
	Backoff    time.Duration   `json:"backoff,omitempty"`  // before the second, doubled for each after
}

// A SagaAttempt is one line of the step ledger.
type SagaAttempt struct {
	N          int       `json:"n"` // 1, 2, … in its direction
	Undo       bool      `json:"undo,omitempty"`
	Key        string    `json:"key"`
	CallID     string    `json:"call_id,omitempty"`
	Ticket     string    `json:"ticket,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
	Outcome    StepState `json:"outcome,omitempty"` // "" while it runs
	Code       Code      `json:"code,omitempty"`
	Message    string    `json:"message,omitempty"`
	ResultHash string    `json:"result_sha256,omitempty"`
}

// SagaKeyPrefix begins the id of every saga, and so the keys of its steps: no
// caller may send a key that begins so.
const SagaKeyPrefix = "saga_"

// SagaKey is the idempotency key of one attempt of one step.
func SagaKey(saga, step string, undo bool, n int) string {
	way := "do"
	if undo {
		way = "undo"
	}
	return saga + "/" + step + "/" + way + "/" + strconv.Itoa(n)
}

// ParseSagaKey takes apart the key of a step, also with the user for whom it is
// used. ok is false for any other key.
func ParseSagaKey(key string) (saga, step string, undo bool, n int, ok bool) {
	key, _, _ = strings.Cut(key, Scope)
	parts := strings.Split(key, "/")
	if len(parts) != 4 || !strings.HasPrefix(key, SagaKeyPrefix) {
		return "", "", false, 0, false
	}
	n, err := strconv.Atoi(parts[3])
	return parts[0], parts[1], parts[2] == "undo", n, err == nil
}

// Tries counts the attempts in one direction.
func (s SagaStep) Tries(undo bool) int {
	n := 0
	for _, a := range s.Attempts {
		if a.Undo == undo {
			n++
		}
	}
	return n
}

// Last is the last attempt in one direction, nil if there was none.
func (s SagaStep) Last(undo bool) *SagaAttempt {
	for i := len(s.Attempts) - 1; i >= 0; i-- {
		if s.Attempts[i].Undo == undo {
			return &s.Attempts[i]
		}
	}
	return nil
}

// LeftToSaga answers an agent that asks with the ticket of a step of its saga,
// nil for any other. Only the saga carries that out: a call at another door is
// none of the plan, and would void the approval. What is over says why itself.
func (t Ticket) LeftToSaga() error {
	if !strings.HasPrefix(t.Key, SagaKeyPrefix) {
		return nil
	}
	e := &Error{Ticket: t.ID, Hint: "nothing needs to be called: saga_status tells how the saga goes"}
	switch t.State {
	case TicketPending:
		e.Code, e.Message = Pending, "a human must approve this step of a saga: ticket "+t.ID
	case TicketApproved, TicketConsumed:
		e.Code, e.Message, e.RetryAfter = InFlight, "the step is approved, and its saga carries it out", time.Second
	default:
		return nil
	}
	return e
}
