package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"sallyport.dev/sallyport/pause"
)

const (
	// gcPercent trades memory for time: the gateway's live heap is a few tens of
	// MiB, which at Go's default of 100 is collected many times a second.
	gcPercent = 400

	// softMemory is from where it is collected more often, whatever the percentage: large
	// answers would leave five times as much as they are.
	softMemory = 320 << 20

	// largeAnswers is how much of answers of more than 1 MiB is in memory at once, as it was
	// sent. Cleaning takes several times that.
	largeAnswers = 32 << 20
)

// collect sets how garbage is collected, until ctx ends. Where more than half of
// softMemory is in use for good, it is twice what is. GOMEMLIMIT says otherwise.
func collect(ctx context.Context) {
	debug.SetGCPercent(gcPercent)
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	go func() {
		for ok := true; ok; ok = pause.For(ctx, 10*time.Second) {
			metrics.Read(live)
			debug.SetMemoryLimit(max(softMemory, 2*int64(live[0].Value.Uint64())))
		}
	}()
}
