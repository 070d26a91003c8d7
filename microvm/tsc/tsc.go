// Package tsc tells how fast the processor's time stamp counter runs.
//
// A guest under software emulation reads the host's counter, and measures its speed
// against an emulated timer when it boots. Where the emulator is held up meanwhile,
// as on any busy machine, that fails, and a guest without a counter waits for ever.
// So it is told: tsc_early_khz=N on its kernel's command line.
package tsc

import (
	"errors"
	"runtime"
	"time"
)

// window is how long the counter is held against the clock: their reading differs by
// well under a microsecond, so that the error is below 0.01 %.
const window = 20 * time.Millisecond

// KHz measures the counter's speed in kHz. Readings between which this process was
// held up are not used.
func KHz() (int, error) {
	if runtime.GOARCH != "amd64" {
		return 0, errors.New("only amd64 processors have a time stamp counter")
	}
	from, at := reading()
	time.Sleep(window)
	to, end := reading()
	took := end.Sub(at)
	if to <= from || took < window {
		return 0, errors.New("the processor's time stamp counter does not run")
	}
	return int(float64(to-from) / took.Seconds() / 1000), nil
}

// reading returns a value of the counter with the time when it was read: the pair of
// which the clock, read on both sides, moved least.
func reading() (count uint64, at time.Time) {
	best := time.Duration(1 << 62)
	for range 64 {
		before := time.Now()
		c := counter()
		if held := time.Since(before); held < best {
			best, count, at = held, c, before.Add(held/2)
		}
	}
	return count, at
}
