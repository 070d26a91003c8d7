// Package failpoint names the moments at which a test kills the gateway: each is
// a durable boundary, before or after a transaction that the outside may learn of.
//
// Only a program built with the tag failpoints has the mechanism. There
// SALLYPORT_FAILPOINT=NAME, or NAME:N, ends the process with SIGKILL at the first
// or Nth Hit of that name. In any other build Hit is empty and costs nothing.
package failpoint

// The names, by what is durable when the process dies.
const (
	Commit    = "transact/commit"    // not yet what the transaction did
	Committed = "transact/committed" // what it did, not that the second place of the record knows
	Published = "transact/published" // both; whoever asked has no answer

	Begun    = "ledger/begun"    // intent and key; the backend was not called
	Finish   = "ledger/finish"   // the same; the backend has answered
	Finished = "ledger/finished" // the outcome; the caller has no answer
	Resolved = "ledger/resolved" // what an operator says of an unknown outcome
	Recover  = "ledger/recover"  // nothing yet of a start after a kill
	Pruned   = "ledger/pruned"   // one batch of what is forgotten, not the next

	Opened  = "ticket/opened"  // the ticket; nobody knows its id
	Decide  = "ticket/decide"  // not yet a human's word
	Decided = "ticket/decided" // a human's word; the human has no answer

	Created = "saga/created" // the saga; its agent does not know
	Leased  = "saga/leased"  // who drives it
	Move    = "saga/move"    // not yet what came of a step, or which is next
	Moved   = "saga/moved"   // that, and nothing was done about it

	Noticed = "webhook/noticed" // what is to be told
	Settle  = "webhook/settle"  // it was told, and that is not yet known
)

// All lists the names.
var All = []string{
	Commit, Committed, Published,
	Begun, Finish, Finished, Resolved, Recover, Pruned,
	Opened, Decide, Decided,
	Created, Leased, Move, Moved,
	Noticed, Settle,
}
