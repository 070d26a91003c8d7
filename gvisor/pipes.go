package gvisor

import (
	"log/slog"
	"os"
)

// pipes makes the pipes of one sandbox and closes the right ends.
type pipes struct {
	child []*os.File // closed when the child has been started, or not
	ours  []*os.File // closed only if it was not
	err   error
}

// toChild returns the child's end and ours; with null, the child reads
// /dev/null and our end is nil.
func (p *pipes) toChild(null bool) (child, ours *os.File) {
	if null {
		f, err := os.Open(os.DevNull)
		p.keep(f, nil, err)
		return f, nil
	}
	r, w, err := os.Pipe()
	p.keep(r, w, err)
	return r, w
}

func (p *pipes) fromChild() (ours, child *os.File) {
	r, w, err := os.Pipe()
	p.keep(w, r, err)
	return r, w
}

func (p *pipes) keep(child, ours *os.File, err error) {
	if err != nil {
		p.err = err
		return
	}
	p.child = append(p.child, child)
	if ours != nil {
		p.ours = append(p.ours, ours)
	}
}

func (p *pipes) finish(failed bool) {
	for _, f := range p.child {
		f.Close()
	}
	if failed {
		for _, f := range p.ours {
			f.Close()
		}
	}
}

func logLeftover(id string, err error) {
	slog.Warn("a destroyed sandbox left something behind; the next start removes it", "sandbox", id, "err", err)
}
