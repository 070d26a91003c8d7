package audit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
)

// An Appender makes entries durable: all of them, in order, in one transaction.
type Appender interface {
	AppendEntries(ctx context.Context, entries ...sallyport.Entry) error

	// Healthy reports why the record is no longer complete, or nil.
	Healthy() error

	// Fail makes Healthy return an error from now on.
	Fail(err error)
}

// LogOptions set how a Log waits. The zero value is the default.
type LogOptions struct {
	Strict bool          // Append returns only when the entry is durable
	Queue  int           // entries that may wait, default 4096
	Flush  time.Duration // longest wait before a flush, default 50 ms: durable within 100 ms
	Block  time.Duration // how long Append waits for a place in a full queue, default 250 ms
}

// A Log takes the entries of calls that change nothing, and of refusals, and
// writes many of them in one transaction. It implements gateway.Journal.
type Log struct {
	to     Appender
	o      LogOptions
	queue  chan sallyport.Entry
	closed chan struct{}
	done   chan struct{}

	behind atomic.Pointer[error] // why the last flush failed, if it will be tried again

	mu  sync.RWMutex // guards end: no Append after Close
	end bool
	err error // of the last flush, once done is closed
}

// maxFlush bounds one transaction.
const maxFlush = 1024

// NewLog starts a log. Close ends it.
func NewLog(to Appender, o LogOptions) *Log {
	if o.Queue <= 0 {
		o.Queue = 4096
	}
	if o.Flush <= 0 {
		o.Flush = 50 * time.Millisecond
	}
	if o.Block <= 0 {
		o.Block = 250 * time.Millisecond
	}
	l := &Log{to: to, o: o, queue: make(chan sallyport.Entry, o.Queue), closed: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// Healthy returns an error once a flush has failed: no record, no call. Where
// the store is only away, that ends when what waits has been written.
func (l *Log) Healthy() error {
	if err := l.to.Healthy(); err != nil {
		return err
	}
	if err := l.behind.Load(); err != nil {
		return unavailable("the audit record cannot be written just now", *err)
	}
	return nil
}

// temporary reports that a store is away or busy, and says that it may be back.
func temporary(err error) bool {
	e, ok := errors.AsType[*sallyport.Error](err)
	return ok && e.Code == sallyport.Unavailable && e.RetryAfter > 0
}

// Append queues an entry, or, in strict mode, makes it durable. An error means
// that the entry was not taken.
func (l *Log) Append(e sallyport.Entry) error {
	if err := l.Healthy(); err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.end {
		return unavailable("the gateway is shutting down", nil)
	}
	if l.o.Strict {
		if err := l.to.AppendEntries(context.Background(), e); err != nil {
			if !temporary(err) {
				l.to.Fail(err)
			}
			return unavailable("the audit record could not be written", err)
		}
		return nil
	}
	select {
	case l.queue <- e:
		return nil
	default:
	}
	t := time.NewTimer(l.o.Block)
	defer t.Stop()
	select {
	case l.queue <- e:
		return nil
	case <-t.C:
		return unavailable("the audit record cannot keep up", nil)
	}
}

func unavailable(what string, err error) error {
	return &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive, Message: what,
		Hint: "try again shortly; if it lasts, the operator should look at the gateway's log", Err: err}
}

// Close writes what is queued and returns the error of the last flush.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.end {
		l.end = true
		close(l.closed)
	}
	l.mu.Unlock()
	<-l.done
	return l.err
}

func (l *Log) run() {
	defer close(l.done)
	var batch []sallyport.Entry // kept until it is written
	for {
		stop := false
		if len(batch) == 0 {
			select {
			case e := <-l.queue:
				batch = append(batch, e)
			case <-l.closed:
			}
		}
		batch, stop = l.collect(batch)
		l.err = l.flush(batch)
		if l.err == nil {
			batch = nil
		} else if !stop {
			l.pause()
		}
		if stop && (l.err != nil || len(l.queue) == 0) {
			if n := len(batch) + len(l.queue); n > 0 {
				l.err = errors.Join(l.err, errors.New("entries of the audit record were lost at the end"))
			}
			return
		}
	}
}

// collect waits for more entries until it is time to write. stop says that the
// log is closing.
func (l *Log) collect(batch []sallyport.Entry) (_ []sallyport.Entry, stop bool) {
	t := time.NewTimer(l.o.Flush)
	defer t.Stop()
	for len(batch) < maxFlush {
		select {
		case e := <-l.queue:
			batch = append(batch, e)
		case <-t.C:
			return batch, false
		case <-l.closed:
			for len(batch) < maxFlush {
				select {
				case e := <-l.queue:
					batch = append(batch, e)
				default:
					return batch, true
				}
			}
			return batch, true
		}
	}
	select {
	case <-l.closed:
		return batch, true
	default:
		return batch, false
	}
}

// pause waits before a failed batch is tried again.
func (l *Log) pause() {
	select {
	case <-time.After(l.o.Flush):
	case <-l.closed:
	}
}

func (l *Log) flush(batch []sallyport.Entry) error {
	if len(batch) == 0 {
		return nil
	}
	err := l.to.AppendEntries(context.Background(), batch...)
	switch {
	case err == nil:
		l.behind.Store(nil)
	case temporary(err):
		l.behind.Store(&err) // the batch is kept, and tried again
	default:
		l.to.Fail(err)
	}
	return err
}
