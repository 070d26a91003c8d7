// Package crash kills a gateway's state with SIGKILL, again and again, at
// random moments, and looks at what is left: nothing may have been executed
// twice, no decision and no outcome that was confirmed may be lost, and the
// audit log must verify. What really happened is written down by a process of
// its own, which is never killed.
//
// It kills the real programs too, at chosen moments: before an approved call
// and in the middle of one. No sandbox and no server may outlive them for long.
//
// The normal suite kills 30 times; SALLYPORT_SOAK=1 kills 1,000 times.
package crash
