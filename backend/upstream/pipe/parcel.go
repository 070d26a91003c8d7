package pipe

import "sync"

// parcel is one line on its way to the program.
type parcel struct {
	line []byte

	mu      sync.Mutex
	begun   bool  // the writer has it: it may be out
	dropped bool  // the sender gave up first
	start   int64 // offset of the line in the input, if begun
}

// take is for the writer; drop for the sender. Only one of them succeeds.
func (p *parcel) take(start int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.start = !p.dropped, start
	return p.begun
}

// missed reports whether a program that read so many bytes saw nothing of it.
func (p *parcel) missed(read int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun && p.start >= read
}

// putBack is for a writer that got nothing out.
func (p *parcel) putBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = false
}

func (p *parcel) drop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = !p.begun
	return p.dropped
}
