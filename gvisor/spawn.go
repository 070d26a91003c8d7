package gvisor

import (
	"os/exec"
	"runtime"
)

// A spawner starts processes from one thread that lives as long as the
// spawner. The kernel ties a parent-death signal to the thread that forked, and
// Go's other threads come and go.
type spawner struct {
	work chan func()
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start starts cmd on the spawner's thread.
func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.work <- func() { done <- cmd.Start() }
	return <-done
}

// stop ends the thread, and with it every process that it started.
func (s *spawner) stop() { close(s.work) }
