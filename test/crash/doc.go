// Package crash kills a gateway's state with SIGKILL, again and again, at
// random moments, and looks at what is left: nothing may have been executed
// twice, no decision and no outcome that was confirmed may be lost, and the
// audit log must verify. What really happened is written down by a process of
// its own, which is never killed.
//
// It kills the real programs too, at chosen moments: before an approved call
// and in the middle of one. No sandbox and no server may outlive them for long.
//
// And it kills a real gateway at each durable boundary (package failpoint, in a
// program built for that) and at random moments, on SQLite and on PostgreSQL,
// while clients and operators go on as if nothing were. The targets of their calls
// are a process of their own, which is never killed and writes down each effect.
//
// The normal suite kills the stores' process 30 times and gateways 64 times; with
// SALLYPORT_SOAK=1 it is 1,000 times each.
package crash
