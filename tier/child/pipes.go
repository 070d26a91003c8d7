package child

import "os"

// Pipes makes the pipes of one child and closes the right ends.
type Pipes struct {
	child []*os.File // closed when the child has been started, or not
	ours  []*os.File // closed only if it was not
	Err   error      // of any
}

// ToChild returns the child's end and ours; with null, the child reads
// /dev/null and our end is nil.
func (p *Pipes) ToChild(null bool) (child, ours *os.File) {
	if null {
		f, err := os.Open(os.DevNull)
		p.keep(f, nil, err)
		return f, nil
	}
	r, w, err := os.Pipe()
	p.keep(r, w, err)
	return r, w
}

// FromChild returns our end and the child's.
func (p *Pipes) FromChild() (ours, child *os.File) {
	r, w, err := os.Pipe()
	p.keep(w, r, err)
	return r, w
}

func (p *Pipes) keep(child, ours *os.File, err error) {
	if err != nil {
		p.Err = err
		return
	}
	p.child = append(p.child, child)
	if ours != nil {
		p.ours = append(p.ours, ours)
	}
}

// Finish closes the ends that are not ours, or all where the child did not start.
func (p *Pipes) Finish(failed bool) {
	for _, f := range p.child {
		f.Close()
	}
	if failed {
		for _, f := range p.ours {
			f.Close()
		}
	}
}
