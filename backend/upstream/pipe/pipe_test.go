package pipe_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/wire"
)

// A program that ends while a call is being written to it.
type dying struct {
	begun chan struct{} // closed when the call is being written
	out   int           // bytes of it that come out
}

func (p *dying) Stdin() io.WriteCloser    { return p }
func (p *dying) Stdout() io.Reader        { <-p.begun; return strings.NewReader("") }
func (p *dying) Stderr() io.Reader        { return strings.NewReader("") }
func (p *dying) Close() error             { return nil }
func (p *dying) Stop(time.Duration) error { return nil }

func (p *dying) Wait() error {
	<-p.begun
	return nil
}

// Write is slow to notice that nobody reads any more.
func (p *dying) Write([]byte) (int, error) {
	close(p.begun)
	time.Sleep(time.Second)
	return p.out, syscall.EPIPE
}

// What a program that has ended could not read was not executed, whichever of its end
// and the failure to write is seen first.
func TestEndsWhileItIsWrittenTo(t *testing.T) {
	for out, want := range map[int]bool{0: true, 5: false} {
		synctest.Test(t, func(t *testing.T) {
			p := &dying{begun: make(chan struct{}), out: out}
			l := pipe.New(p, pipe.Options{
				Server: "s", Most: 1 << 20, Grace: 3 * time.Second, Room: new(asked.Room), Note: func(string) {},
				Words: func(int) []string { return nil }, Heard: func(wire.Message) {}, Log: slog.New(slog.DiscardHandler),
			})
			_, err := l.Exchange(t.Context(), link.Request{ID: 1, Method: "tools/call", Params: json.RawMessage(`{}`)})
			if !errors.Is(err, link.ErrGone) || errors.Is(err, sallyport.ErrNotExecuted) != want {
				t.Errorf("%d bytes came out: %v, not executed: %t", out, err, !want)
			}
			<-l.Done()
		})
	}
}

// A program that ends with a call in its input, unread, while another is refused.
type closing struct {
	dying
	written []byte
}

func (p *closing) Stdin() io.WriteCloser { return p }
func (p *closing) Unread() int           { return len(p.written) }

func (p *closing) Write(b []byte) (int, error) {
	if p.written == nil {
		p.written = append(p.written, b...)
		return len(b), nil
	}
	close(p.begun)
	return 0, syscall.EPIPE
}

// What did not come out counts for nothing: the call before it was not read either.
func TestWhatDidNotComeOutWasNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &closing{dying: dying{begun: make(chan struct{})}}
		l := pipe.New(p, pipe.Options{
			Server: "s", Most: 1 << 20, Grace: 3 * time.Second, Room: new(asked.Room), Note: func(string) {},
			Words: func(int) []string { return nil }, Heard: func(wire.Message) {}, Log: slog.New(slog.DiscardHandler),
		})
		first := make(chan error)
		call := func(id int64) error {
			_, err := l.Exchange(t.Context(), link.Request{ID: id, Method: "tools/call", Params: json.RawMessage(`{}`)})
			return err
		}
		go func() { first <- call(1) }()
		synctest.Wait()
		second := call(2)
		for what, err := range map[string]error{"in the input": <-first, "refused": second} {
			if !errors.Is(err, sallyport.ErrNotExecuted) {
				t.Errorf("%s: %v", what, err)
			}
		}
		<-l.Done()
	})
}
