// Package child starts processes that end with this one, and makes the pipes to
// talk with them.
package child

import (
	"os/exec"
	"runtime"
)

// A Spawner starts processes from one thread that lives as long as the
// Spawner. The kernel ties a parent-death signal to the thread that forked, and
// Go's other threads come and go.
type Spawner struct {
	work chan func()
}

// NewSpawner starts the thread.
func NewSpawner() *Spawner {
	s := &Spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

// Start starts cmd on the spawner's thread.
func (s *Spawner) Start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.work <- func() { done <- cmd.Start() }
	return <-done
}

// Stop ends the thread, and with it every process that it started.
func (s *Spawner) Stop() { close(s.work) }
