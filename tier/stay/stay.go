// Package stay is what a tier whose sandboxes can stay has to offer to who keeps
// them for callers that come back (tier/session).
package stay

import (
	"context"
	"io"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// A Host makes sandboxes that stay until they are destroyed.
type Host interface {
	// Keep makes one. Of r, Argv, Files and Stdin are not used.
	Keep(ctx context.Context, r tier.Request) (Kept, error)
}

// A Kept is a sandbox that stays. Its process 1 takes requests, one at a time, as
// package tier/payload says.
type Kept struct {
	Box
	ID  string
	In  io.Writer // requests
	Out io.Reader // answers; ends when the sandbox does
}

// A Box is a sandbox that stays, as whoever keeps it holds and ends it.
type Box interface {
	// Begin says that a program runs now, for whom, and lets it reach what it may, for
	// as long as within, or until End. What was held before is not counted for it.
	Begin(callID string, within time.Duration) error
	// End tells how the program was held, and lets nothing more out.
	End(l sallyport.Limits) Held
	// OutOfMemory tells whether the sandbox ran into its limit of memory. It then ends,
	// or has lost a process.
	OutOfMemory() bool
	// Killed is closed when somebody wants the sandbox to end: Kill, or Close of the
	// host, or when it has ended by itself.
	Killed() <-chan struct{}
	// Destroy ends the sandbox with all that is in it. It is idempotent.
	Destroy() error
}

// A Held tells how one program was held.
type Held struct {
	tier.Passed
	LimitsHit  []string
	PeakMemory int64 // of the sandbox, ever
	Receipt    sallyport.Receipt
}

// A Sleeper is a Box whose state can be kept elsewhere while nothing runs.
type Sleeper interface {
	// Freeze writes all that the box holds to to, and ends the box. Nothing may run in
	// it that waits for an answer. What is written is the memory of programs: whoever
	// keeps it encrypts it.
	Freeze(to io.Writer) error
	// Wake makes the sandbox again. r is what it was made with.
	Wake(ctx context.Context, r tier.Request, from io.Reader) (Kept, error)
}

// A Forker is a Box that can be copied as it is.
type Forker interface {
	// Fork makes n sandboxes with all that this one has in memory and on its disk,
	// which go their own ways from here, as other machines; this one goes on. Nothing
	// may run in it that waits for an answer. paused is for how long it was held. All
	// are made, or none.
	Fork(ctx context.Context, n int) (copies []Kept, paused time.Duration, err error)
}
