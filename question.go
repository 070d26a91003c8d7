package sallyport

import (
	"context"
	"encoding/json"
)

// Abilities are what a client says that it can be asked in the middle of a call.
type Abilities struct {
	Form     bool // to put a form to its user
	URL      bool // to send its user to an address
	Sampling bool // to have its model write; Tools and Context are parts of it
	Tools    bool
	Context  bool
	Roots    bool // to tell which folders it works on
}

// Any reports whether the client can be asked anything.
func (a Abilities) Any() bool { return a != Abilities{} }

// The methods of questions.
const (
	AskUser  = "elicitation/create"
	AskModel = "sampling/createMessage"
	AskRoots = "roots/list"
)

// A Question is what a server asks in the middle of a call: a client's user, its
// model, or which folders it works on.
type Question struct {
	Key    string          // by which its asker knows it, "" if by none
	Method string          // AskUser, AskModel or AskRoots
	Params json.RawMessage // an object, nil if there is none
}

// An Answer is what a client said to a Question.
type Answer struct {
	Result  json.RawMessage // an object, as the method has it; nil if there is none
	Refusal string          // why there is none; "" with no result: it was not answered yet
	Code    int             // of JSON-RPC, for the server, with a Refusal
}

// An Ask puts the questions of one server to the client of the call that it works
// for, and waits. There is one answer for each. The error is that the call is over:
// ctx has ended, or the client will not be back.
type Ask func(ctx context.Context, questions []Question) ([]Answer, error)

// An Inquiry is what a door gets to ask, cleaned.
type Inquiry struct {
	CallID    string
	Owner     string // names the principal, for bounds
	Binding   string // stands for who called what with which arguments through which profile
	Approved  bool   // by a human
	Questions []Question
}

// Asked tells in a Record what a server asked and what came of it. What was said
// is not kept, but for its length and hash.
type Asked struct {
	Method      string   `json:"method"`
	Mode        string   `json:"mode,omitempty"` // "form" or "url", of AskUser
	Bytes       int      `json:"bytes"`
	Hash        string   `json:"sha256"`
	Findings    []string `json:"findings,omitempty"` // what was masked or flagged in it
	Answer      string   `json:"answer"`             // "accept", "decline", "cancel", "result", "refused", "none"
	Reason      string   `json:"reason,omitempty"`   // why it was not put to the client, or the answer not passed on
	AnswerBytes int      `json:"answer_bytes,omitempty"`
	AnswerHash  string   `json:"answer_sha256,omitempty"`
}

// A Return is a client that comes back with answers, as the path judged it today.
type Return struct {
	Owner, Binding string // see Inquiry
	State          string
	Answers        map[string]json.RawMessage
	Notify         func(Notice)
	Tasks          bool // see Request
	Mutating       bool // what the call would do
	NeedsHuman     bool // by today's policies
}

// A MissingAbility is the cause of an error: the server needs its client to be
// able to do something that this call's client is not.
type MissingAbility struct{ Needs Abilities }

func (e *MissingAbility) Error() string { return "the client lacks an ability that the server needs" }
