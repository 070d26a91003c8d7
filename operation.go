package sallyport

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// A Kind is one thing that an agent can ask for. Each door maps each of its
// methods to a Kind, or states why the method needs none.
type Kind string

// The kinds of operation.
const (
	CallTool     Kind = "call_tool"
	MoveFile     Kind = "move_file"     // a call of FilesTool whose file comes or goes in a Transfer
	ReadResource Kind = "read_resource" // what a server holds under an address
	GetPrompt    Kind = "get_prompt"    // a text for the model, made of arguments
	Complete     Kind = "complete"      // how an argument of a prompt, or of a template, could go on
	Subscribe    Kind = "subscribe"     // to hear when a resource changes
)

// FilesTool is the built-in tool that looks after the sessions of a sandbox, and
// their files.
const FilesTool = "sandbox_session"

// A Transfer carries a file beside an operation, so that no step holds it in
// memory. Its content is not judged: which file goes where is in the arguments.
type Transfer struct {
	From io.Reader // of a file that comes in; an error means that it is not whole
	Size int64     // of From in bytes, -1 where it is not known
	To   io.Writer // for a file that goes out
}

// An Operation is what an agent asks for: what to do, to what, with what.
type Operation struct {
	Kind   Kind
	Target string          // the exposed name of the tool or the prompt, or the exposed address of the resource or the template
	Args   json.RawMessage // as received; nothing in it is trusted yet
}

// A Request is an operation as a door received it. Nothing in it is trusted yet.
type Request struct {
	Credential string // the bearer token, without the scheme
	Operation  Operation
	Profile    string // "" is the default profile
	Key        string // idempotency key chosen by the caller, may be empty
	Ticket     string // resumes a call that waited for approval, may be empty
	Saga       string // ad-hoc saga that the call joins, may be empty
	CallID     string // set by a door that runs Call again for a waiting caller, else empty
	Trace      string // W3C traceparent, may be empty
	TraceState string // W3C tracestate of that trace, may be empty
	Baggage    string // W3C baggage, may be empty
	Parent     string // id of the call whose script makes this one, may be empty
	Door       string // "mcp", "admin"
	Size       int    // bytes the door read for this request

	Transfer *Transfer // of an operation of kind MoveFile

	// Notify, if set, receives progress and log notifications of the running
	// call, already sanitised. It must not block for long.
	Notify  func(Notice)
	Watched bool   // the caller asked for progress
	Level   string // of the log lines that the caller wants, "" for none

	// Ask, if set, puts what the call's server asks to the client.
	Ask func(context.Context, Inquiry) ([]Answer, error)
	Can Abilities // what the client can be asked

	// A client that comes back with answers makes its request again, with the State
	// that it was given. Answers without a State are to questions that it expects.
	State   string
	Answers map[string]json.RawMessage // by the questions' keys

	// Tasks says that the client takes the name of a task instead of an answer that
	// takes long. Lasts, set by who holds such calls, is told when this one's outcome will
	// be found later whatever becomes of the client, and reports whether it is held.
	Tasks bool
	Lasts func(Lasting) bool

	// Gone, if set, is closed when nobody listens any more, though that does not
	// cancel the call: a caller without a key is then not waited for any longer.
	Gone <-chan struct{}
}

// A Lasting is a call whose outcome is kept for later.
type Lasting struct {
	CallID  string         `json:"call"`
	Key     ReservationKey `json:"key"`  // under which its outcome is kept
	Held    []byte         `json:"held"` // names it where it runs
	Replica string         `json:"replica"`
	Owner   string         `json:"-"` // see Inquiry
	Binding string         `json:"-"` // stands for who may ask for it, through which profile

	// Still says why the call would not be let go on by now, for its caller as known today.
	Still func(Principal) error `json:"-"`
}

// A Visit is what somebody wants who asks how a call of theirs is.
type Visit struct {
	Task    string                     // its name
	Who     Principal                  // as known now
	Answers map[string]json.RawMessage // to what it asks
	Cancel  bool
}

// A Cancellation is the cause of a context that somebody ended on purpose.
type Cancellation struct {
	By string // "client": it said so; "session": its session has ended; "unanswered": it did not come back with an answer; "revocation": its agent was stopped; "shutdown": the gateway ends
}

func (c *Cancellation) Error() string { return "cancelled by the " + c.By }

// A Notice is one message in mid-call: progress or a log line.
type Notice struct {
	Method string          // JSON-RPC method, e.g. "notifications/progress"
	Params json.RawMessage // as the backend sent it; the door replaces the token

	// From a backend: a piece of what a program writes, and to what, "stdout" or
	// "stderr". Method and Params are then empty, and made of it by the gateway.
	Stream string
	Output []byte
}

// A Result is what the caller gets.
type Result struct {
	CallID  string
	Content json.RawMessage // a complete MCP CallToolResult object, sanitised; of a reading, in the form that Output describes
	IsError bool            // the tool failed; Content says how
	Replay  bool            // an earlier call with the same key did the work
	Twin    string          // the id of the identical earlier call, without a key, that did it; "" if none
	At      time.Time       // when the outcome was recorded, or a human decided that there is none; else zero

	// Questions, if there are any, stand in the place of Content: the call waits for
	// its client to come back with answers, and with State.
	Questions []Question
	State     string

	Task      string // names the call, which goes on, in the place of Content
	Untrusted bool   // whoever reads it is tainted
}
