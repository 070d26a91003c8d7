package sallyport

import (
	"context"
	"encoding/json"
	"time"
)

// A Job is a call that passed every check; it is all that a Backend ever sees.
type Job struct {
	CallID  string
	Kind    Kind // of the operation
	Who     Principal
	Tool    Tool
	Args    json.RawMessage // canonical; the bytes that were judged and approved
	Key     string          // idempotency key to forward, "" if the caller gave none
	Ticket  string          // that approved it, "" if none was needed
	Profile string          // that it came through, "" is the default one
	Tier    string          // that the code runs in, "" for tools without code
	Limits  Limits          // resolved, no zero fields, for sandbox tools
	Egress  []string
	Timeout time.Duration

	Trace, TraceState, Baggage string // see Request; the latter two hold no secrets

	// Room waits until there is room for an answer of so many bytes, which the call has
	// until its result is made; nil where there always is. The error is that ctx ended.
	Room func(ctx context.Context, bytes int) error

	Notify  func(Notice) // never nil
	Watched bool         // the caller wants to hear of progress, and of output as it comes
	Level   string       // of the log lines that the caller wants to hear, "" for none

	Ask Ask       // nil if the client cannot be asked
	Can Abilities // what it can be asked; zero where Ask is nil

	Transfer *Transfer // of a call that moves a file, else nil

	Reserved ReservationKey // under which the call is remembered
	Saga     string         // that it joins, "" if none

	TierReason string    // why it is that tier
	Since      time.Time // when it came in
}

// Output is what a Backend returned, before sanitising.
//
// The path knows one form of result, so that one set of rules cleans and bounds
// all of them: that of a tool. What a resource holds is content of the type
// "resource", one for each part. The messages of a prompt are content, and who
// speaks each is in structuredContent {roles, description?}. A completion is
// structuredContent {completion}. Doors give them the form of their method.
type Output struct {
	Content json.RawMessage // a complete MCP CallToolResult object
	IsError bool
	Again   bool // it came to no end of its own, and repeats nothing: its key may be used again
	Unclear bool // an error that does not say whether the call acted: the answer cannot be read, or the run was cut short

	Connections []Connection // what a sandboxed run reached, or tried to
	Receipt     *Receipt     // how it was held, nil for what is not sandboxed
}

// A Connection tells what a sandboxed run reached, or tried to, and how often.
type Connection struct {
	Target  string `json:"target"` // host:port, as far as it was understood
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"` // why not; the words are those of package egress
	Count   int    `json:"count"`
	Bytes   int64  `json:"bytes,omitempty"` // in both directions
}

// Info describes a Backend.
type Info struct {
	Name      string
	Isolation string // "gvisor", "uid", "remote", "none", "builtin"; of a job with a tier, that counts
}

// An Isolator is a Backend whose jobs do not all run in the same isolation.
type Isolator interface {
	// IsolationOf says how the tool's calls are isolated, in the words of Info.
	IsolationOf(t Tool) string
}

// A Backend runs jobs: a sandbox host, upstream MCP servers. The suite in
// backend/backendtest states what every Backend must do.
type Backend interface {
	// Info describes the backend. It never changes and never fails.
	Info() Info

	// Check reports why the backend cannot run jobs now, or nil.
	Check(ctx context.Context) error

	// Run runs one job to its end. When ctx ends, Run stops the job and returns
	// ctx.Err(); nothing of the job outlives Run, except for a remote upstream,
	// which is told to cancel.
	//
	// An error that wraps ErrNotExecuted means that the job certainly had no
	// effect. Every other error of a mutating job leaves its outcome unknown.
	Run(ctx context.Context, job Job) (Output, error)

	// Close stops every job and frees what the backend holds. It is idempotent.
	Close() error
}
