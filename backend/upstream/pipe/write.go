package pipe

import (
	"context"

	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/wire"
)

// write owns the program's standard input.
func (l *Pipe) write() {
	for {
		select {
		case <-l.over:
			return
		case p := <-l.out:
			select {
			case l.pen <- struct{}{}:
			case <-l.over:
				return
			}
			err := l.put(p)
			<-l.pen
			if err != nil {
				_ = l.proc.Stop(l.o.Grace) // it reads no more
				return
			}
		}
	}
}

// put writes what is still wanted.
func (l *Pipe) put(p *parcel) error {
	l.mu.Lock()
	taken := p.take(l.written)
	if taken { // counted before it is out: what was read is never understated
		l.written += int64(len(p.line))
	}
	l.mu.Unlock()
	if !taken {
		return nil
	}
	n, err := l.proc.Stdin().Write(p.line)
	if err != nil {
		l.mu.Lock()
		l.written -= int64(len(p.line) - n) // else what was written before would pass for read
		l.mu.Unlock()
		if n == 0 {
			p.putBack()
		}
	}
	return err
}

// post hands a line to the writer if there is room, and forgets it otherwise.
func (l *Pipe) post(p *parcel) {
	select {
	case l.out <- p:
	default:
	}
}

// abandon gives a call up: unsent if it is still here, else told to stop.
func (l *Pipe) abandon(p *parcel, r link.Request, why error) error {
	if p.drop() {
		return outcome.NotSent(why)
	}
	if !r.Quiet {
		m := r.Cancellation()
		l.post(&parcel{line: m.AppendLine(nil)})
	}
	return why
}

// Send hands a message to the program.
func (l *Pipe) Send(ctx context.Context, m wire.Message) error {
	select {
	case l.out <- &parcel{line: m.AppendLine(nil)}:
		return nil
	case <-l.over:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
