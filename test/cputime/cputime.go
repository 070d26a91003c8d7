// Package cputime measures work in tests by the processor's time, which a busy machine
// does not stretch as it does the clock's.
package cputime

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Of is what f costs on the thread that runs it. What f has other goroutines do is not in it.
func Of(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := now()
	f()
	return now() - begun
}

func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(t.Nano())
}
