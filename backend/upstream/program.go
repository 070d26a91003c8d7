package upstream

import (
	"context"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/pipe"
)

// A LaunchSpec says which program to start.
type LaunchSpec struct {
	Name string   // the server's configured name
	Argv []string // passed as it is, no shell
	Env  []string // the whole environment, "NAME=value"
	Own  []string // what of it the operator wrote

	Confinement sallyport.Confinement // for isolations that know one
}

// A Launcher starts servers in one kind of isolation.
type Launcher interface {
	// Launch starts a process. ctx bounds only the start: the process outlives it.
	Launch(ctx context.Context, spec LaunchSpec) (pipe.Process, error)
}

// note takes one line of standard error.
func (s *server) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stderr.Add(text)
}

// lastWords returns the last lines of standard error.
func (s *server) lastWords(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.Tail(n)
}
