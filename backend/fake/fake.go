// Package fake is a Backend that runs a Go function: for tests, benchmarks and
// nothing else.
package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"sallyport.dev/sallyport"
)

// A Func does the work of one job. It must end soon after ctx does.
type Func func(ctx context.Context, job sallyport.Job) (sallyport.Output, error)

// Backend runs a Func in this process.
type Backend struct {
	run Func

	mu      sync.Mutex // guards what follows
	closed  bool
	running map[*context.CancelFunc]struct{}
	idle    sync.WaitGroup
}

var _ sallyport.Backend = (*Backend)(nil)

// New returns a backend that runs f.
func New(f Func) *Backend {
	return &Backend{run: f, running: map[*context.CancelFunc]struct{}{}}
}

// Text returns a successful result with one text item.
func Text(s string) sallyport.Output { return sallyport.Output{Content: item(s, `}]}`)} }

// Failure returns a tool error with one text item.
func Failure(s string) sallyport.Output {
	return sallyport.Output{Content: item(s, `}],"isError":true}`), IsError: true}
}

// item writes a result around a text, which must be UTF-8.
func item(s, end string) json.RawMessage {
	b, err := jsontext.AppendQuote([]byte(`{"content":[{"type":"text","text":`), s)
	if err != nil {
		panic(err) // a mistake of the test that uses this package
	}
	return append(b, end...)
}

// Echo is a Func that returns the arguments as text, byte for byte.
func Echo(_ context.Context, job sallyport.Job) (sallyport.Output, error) {
	if len(job.Args) == 0 {
		job.Args = json.RawMessage(`{}`)
	}
	return Text(string(job.Args)), nil
}

// Hang is a Func that returns when ctx ends.
func Hang(ctx context.Context, _ sallyport.Job) (sallyport.Output, error) {
	<-ctx.Done()
	return sallyport.Output{}, ctx.Err()
}

// Info describes the backend.
func (b *Backend) Info() sallyport.Info { return sallyport.Info{Name: "fake", Isolation: "none"} }

// Check reports whether the backend is open.
func (b *Backend) Check(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return closed()
	}
	return nil
}

func closed() error {
	return &sallyport.Error{
		Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the backend is closed",
		Hint: "the gateway is shutting down", Err: sallyport.ErrNotExecuted,
	}
}

// Run runs the function, which gets a ctx that also ends with the job's
// timeout and with Close.
func (b *Backend) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if err := ctx.Err(); err != nil {
		return sallyport.Output{}, fmt.Errorf("%w (%w)", err, sallyport.ErrNotExecuted)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if job.Timeout > 0 {
		inner, cancel = context.WithTimeout(inner, job.Timeout)
		defer cancel()
	}
	if job.Notify == nil {
		job.Notify = func(sallyport.Notice) {}
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return sallyport.Output{}, closed()
	}
	b.running[&cancel] = struct{}{}
	b.idle.Add(1)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.running, &cancel)
		b.mu.Unlock()
		b.idle.Done()
	}()
	out, err := b.run(inner, job)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return sallyport.Output{}, ctx.Err()
	case inner.Err() == context.DeadlineExceeded:
		return sallyport.Output{}, &sallyport.Error{
			Code: sallyport.Timeout, Step: sallyport.Execute, Message: fmt.Sprintf("no answer within %v", job.Timeout),
			Hint: "the call may have taken effect; look before you call again", Err: err,
		}
	case inner.Err() != nil:
		return sallyport.Output{}, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Execute, Message: "the backend was closed in the middle of the call",
			Hint: "the call may have taken effect; look before you call again", Err: err,
		}
	}
	return sallyport.Output{}, err
}

// Close ends every job and waits for them.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for cancel := range b.running {
		(*cancel)()
	}
	b.mu.Unlock()
	b.idle.Wait()
	return nil
}
