// Package sallyport is the vocabulary of the project: what an operation is,
// who may ask for it, how dangerous it is, what runs it and what is kept of it.
// It imports nothing of ours; everything else imports it.
//
// One call takes one path, and Steps names it in order:
//
//	receive → authenticate → admit → resolve → validate → assess → authorize →
//	reserve → approve → execute → sanitise → respond
//
// The path itself is gateway.Gateway.Call.
package sallyport

// A Step is one stop on the path of a call. Errors, audit records, spans and
// metrics all carry one.
type Step string

// The steps of the path.
const (
	Receive      Step = "receive"
	Authenticate Step = "authenticate"
	Admit        Step = "admit"
	Resolve      Step = "resolve"
	Validate     Step = "validate"
	Assess       Step = "assess"
	Authorize    Step = "authorize"
	Reserve      Step = "reserve"
	Approve      Step = "approve"
	Execute      Step = "execute"
	Sanitise     Step = "sanitise"
	Respond      Step = "respond"
)

// Steps lists the path in order. A test compares it with what calls recorded.
var Steps = []Step{
	Receive, Authenticate, Admit, Resolve, Validate, Assess,
	Authorize, Reserve, Approve, Execute, Sanitise, Respond,
}
