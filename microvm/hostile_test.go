package microvm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/microvm/guest"
	"sallyport.dev/sallyport/microvm/mux"
	"sallyport.dev/sallyport/microvm/vmm"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// taken is a run in a guest that the program has taken over: what it says, and
// whether it listens at all, is the test's.
func taken(t *testing.T) (u *run, theirs net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	h := &Host{machines: map[string]*machine{}, running: map[string]*run{}, deafAfter: 200 * time.Millisecond}
	h.idle.Add(1)
	m := &machine{h: h, words: make(chan payload.Record, 16), vm: still{}}
	m.talk(mux.New(ours, true, guest.Streams()...))
	u = &run{h: h, m: m, r: tier.Request{Argv: []string{"sh"}, Limits: sallyport.DefaultLimits()}, id: "vm-1"}
	u.ctx, u.cancel = context.WithCancelCause(context.Background())
	t.Cleanup(func() { u.cancel(nil); _ = m.mux.Close(); theirs.Close() })
	return u, theirs
}

// soonOver fails where f does not return.
func soonOver(t *testing.T, what string, f func()) {
	t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	select {
	case <-over:
	case <-time.After(3 * time.Minute): // each is over within seconds where the machine is quiet
		t.Fatalf("%s: it is waited for ever", what)
	}
}

// A guest that reads nothing does not keep a run from its timeout, not even one whose
// other words are stuck already, and none that lets nothing more come.
func TestTimeoutOfADeafGuest(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]bool{"nothing is on the way": false, "stdin is stuck": true} {
		u, _ := taken(t)
		u.started, u.r.Limits.Timeout = true, 50*time.Millisecond
		if stuck {
			go u.m.mux.Stream(guest.Stdin).Write(make([]byte, 1000)) //nolint:errcheck // it is stuck
			time.Sleep(10 * time.Millisecond)
		}
		soonOver(t, name, u.wait)
		if !errors.Is(u.end, tier.ErrTimeout) {
			t.Errorf("%s: %v", name, u.end)
		}
	}
}

// Nor does it keep a run that sends an interpreter its order.
func TestOrderOfADeafGuest(t *testing.T) {
	t.Parallel()
	u, _ := taken(t)
	u.r.Limits.Timeout, u.next = 50*time.Millisecond, make([]byte, payload.MaxOrder)
	report := make(chan payload.Record, 1)
	report <- payload.Record{Kind: payload.Started, Data: nil}
	u.report = report
	soonOver(t, "an order", u.wait)
	if !errors.Is(u.end, tier.ErrTimeout) {
		t.Error(u.end)
	}
}

// A session whose guest says nothing more is not waited for; one that may be held,
// or that talks out of turn, ends.
func TestSessionOfADeafGuest(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (s *Session, theirs net.Conn) {
		u, theirs := taken(t)
		return &Session{u: u}, theirs
	}
	t.Run("it does not tell how it is", func(t *testing.T) {
		s, theirs := open(t)
		go io.Copy(io.Discard, theirs) //nolint:errcheck // it reads, and lets nothing more come
		soonOver(t, "its memory", func() {
			for range 2 {
				if s.OutOfMemory() {
					t.Error("it is out of memory")
				}
			}
		})
	})
	t.Run("it takes nothing in", func(t *testing.T) {
		t.Parallel()
		s, theirs := open(t)
		go io.Copy(io.Discard, theirs) //nolint:errcheck // it reads, and lets nothing more come
		soonOver(t, "an order", func() {
			if n, err := (orders{s.u.m}).Write(make([]byte, 1<<20)); err == nil || n == 1<<20 {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	})
	t.Run("it is not frozen", func(t *testing.T) {
		s, theirs := open(t)
		go tells(theirs, guest.Counted)
		soonOver(t, "a fork", func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := s.save(ctx); err == nil {
				t.Error("it was frozen")
			}
		})
		soonOver(t, "the end", func() { <-s.u.m.mux.Done() })
	})
	t.Run("it says something else", func(t *testing.T) {
		s, theirs := open(t)
		go tells(theirs, guest.Renewed)
		soonOver(t, "the end", func() { s.OutOfMemory(); <-s.u.m.mux.Done() })
	})
}

// tells answers the first word of a host, and then says no more.
func tells(theirs net.Conn, k payload.Kind) {
	s := mux.New(theirs, false, guest.Streams()...)
	s.Start()
	_, _, _ = payload.Read(s.Stream(guest.Control))
	_, _ = s.Stream(guest.Control).Write(payload.Append(nil, k, guest.Ending{}.Append(nil)))
}

// What a guest says once the program runs may be the program's words: it cannot
// change what was measured before, nor make of a program that ran one that did not.
func TestWordsOfTheProgram(t *testing.T) {
	u, _ := taken(t)
	honest := payload.Facts{Procs: 7, Disk: 9, NoNewPrivs: true, Kernel: "honest"}
	u.note(payload.Record{Kind: payload.Started, Data: honest.Append(nil)})
	u.note(payload.Record{Kind: payload.Started, Data: payload.Facts{Procs: 70000, Kernel: "lie"}.Append(nil)})
	if u.m.facts.Kernel != "honest" || u.m.facts.Procs != 7 {
		t.Errorf("%+v", u.m.facts)
	}
	u.note(payload.Record{Kind: payload.Failed, Data: append(payload.AppendUint32(nil, uint32(unix.ENOENT)), "sh: no"...)})
	if res, err := u.concluded(tier.Result{}, false); err == nil || errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("%+v %v", res, err)
	}
	before, _ := taken(t) // and the other way round
	before.note(payload.Record{Kind: payload.Failed, Data: append(payload.AppendUint32(nil, uint32(unix.ENOENT)), "sh: no"...)})
	if res, err := before.concluded(tier.Result{}, false); err != nil || res.ExitCode != 127 {
		t.Errorf("%+v %v", res, err)
	}
}

// A run that is stopped as its program starts is not told of as one that never began.
func TestStoppedAsItStarts(t *testing.T) {
	u, _ := taken(t)
	report := make(chan payload.Record, 1)
	report <- payload.Record{Kind: payload.Started}
	close(report)
	u.report, u.end = report, tier.ErrStopped
	u.hearOut()
	if res, err := u.concluded(tier.Result{}, false); err != nil || res.KilledBy != tier.KilledByCaller {
		t.Errorf("%+v, %v", res, err)
	}
}

// A program ends once, and by an end that there is.
func TestEndsOfAProgram(t *testing.T) {
	const three, four, stopped = 3 << 8, 4 << 8, 0x137f
	for name, c := range map[string]struct {
		said []uint32
		code int
		over bool
		err  bool
	}{
		"once":    {[]uint32{three}, 3, false, false},
		"twice":   {[]uint32{three, four}, 3, true, false},
		"stopped": {[]uint32{stopped}, 0, true, true},
	} {
		u, _ := taken(t)
		u.started = true
		over := false
		for _, status := range c.said {
			over = u.note(payload.Record{Kind: payload.Exit, Data: payload.AppendUint32(nil, status)})
		}
		if res, err := u.concluded(tier.Result{}, false); res.ExitCode != c.code || over != c.over || (err != nil) != c.err {
			t.Errorf("%s: %d, over %v, %v", name, res.ExitCode, over, err)
		}
	}
}

// A way that is opened while its guest ends is closed.
func TestWayOfAGuestThatEnds(t *testing.T) {
	u, _ := taken(t)
	b := &broker{}
	u.h.cfg.Broker, u.m.dir, u.r.Way.Reach = b, t.TempDir(), []string{"example.com:443"}
	s := &Session{u: u}
	if err := s.open(time.Minute); err != nil || b.open != 1 {
		t.Fatal(err)
	}
	u.way.close()
	u.m.dir = t.TempDir()
	u.cancel(tier.ErrClosed)
	if err := s.open(time.Minute); !errors.Is(err, tier.ErrClosed) || b.open != 0 {
		t.Errorf("%v, %d ways are open", err, b.open)
	}
}

// A broker counts what is open.
type broker struct{ open int }

func (*broker) Authority(time.Duration) (tier.Authority, error) { return tier.Authority{}, nil }

func (b *broker) Open(_ string, _ tier.Way, _ tier.Authority, _ time.Duration, l *net.UnixListener) (func() tier.Passed, error) {
	b.open++
	return func() tier.Passed {
		l.Close()
		b.open--
		return tier.Passed{}
	}, nil
}

// A still VM is one of which nothing is asked.
type still struct{}

func (still) Agent() net.Conn              { return nil }
func (still) Pause(context.Context) error  { return nil }
func (still) Resume(context.Context) error { return nil }
func (still) Kill() error                  { return nil }
func (still) Save(context.Context) (vmm.Snapshot, error) {
	return vmm.Snapshot{}, errors.New("nothing to save")
}

// What a guest opens and gives up at once is given up here, too, whatever the other
// end does: it cannot have more connections open than it has streams.
func TestStreamsThatAreGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "way")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, theirs := net.Pipe()
	host, hostile := mux.New(ours, true), mux.New(theirs, false)
	host.Start()
	hostile.Start()
	defer hostile.Close()
	go carryAll(host, path)
	var ended sync.WaitGroup
	for _, give := range []func(*mux.Stream){
		func(s *mux.Stream) { s.Close() },
		func(s *mux.Stream) { _ = s.CloseWrite(); s.Close() },
		func(s *mux.Stream) { _ = s.CloseWrite(); host.Close() },
	} {
		s, err := hostile.Open()
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept() // it never answers
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write([]byte("x"))
		_, _ = c.Read(make([]byte, 1))
		give(s)
		ended.Go(func() {
			defer c.Close()
			for !hungUp(c) && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
		})
	}
	soonOver(t, "connections", ended.Wait)
}

// hungUp reports whether the other end has closed a connection, and not only its half.
func hungUp(c net.Conn) (yes bool) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, _ = unix.Poll(p, 0)
		yes = p[0].Revents&unix.POLLHUP != 0
	})
	return yes || err != nil
}

// A guest that its program has taken over may say anything. What is kept of it is
// bounded, and what was told before the program ran is not told again.
func TestHostileReports(t *testing.T) {
	u := &run{m: &machine{known: true, facts: payload.Facts{Kernel: "true", NoNewPrivs: true}}}
	if u.note(payload.Record{Kind: payload.Started, Data: payload.Facts{Kernel: "forged"}.Append(nil)}); u.m.facts.Kernel != "true" {
		t.Error("the facts of a receipt were forged after the start")
	}
	u.note(payload.Record{Kind: payload.Artifact, Data: append(make([]byte, 8), "file"...)})
	over := false
	for range 100 {
		if over = u.note(payload.Record{Kind: payload.Data, Data: make([]byte, payload.MaxRecord)}); over {
			break
		}
	}
	if kept := len(u.output.Files[0].Content); !over || !errors.Is(u.end, errFlood) || kept > maxTold {
		t.Errorf("%d bytes of files were kept, the run ended with %v", kept, u.end)
	}
	u = &run{m: &machine{}}
	for i := 0; i < 10*payload.MaxEntries && u.end == nil; i++ {
		u.note(payload.Record{Kind: payload.LeftOut, Data: make([]byte, 300)})
	}
	if !errors.Is(u.end, errFlood) {
		t.Errorf("%d names were kept", len(u.output.LeftOut))
	}
	honest := &run{m: &machine{}}
	for range payload.MaxEntries { // as many as process 1 tells
		honest.note(payload.Record{Kind: payload.LeftOut, Data: make([]byte, 263)})
	}
	if honest.end != nil || len(honest.output.LeftOut) != payload.MaxEntries {
		t.Errorf("control: %d names were kept, %v", len(honest.output.LeftOut), honest.end)
	}
	for range 100 {
		honest.note(payload.Record{Kind: payload.Denied, Data: []byte("example.com:443")})
	}
	if len(honest.denied) > payload.MaxDenied {
		t.Errorf("%d refusals were kept", len(honest.denied))
	}
}

// A memory is a channel over which all has come, and whose other end is gone.
type memory struct{ bytes.Buffer }

// Close implements io.Closer.
func (*memory) Close() error { return nil }

// The last word of a guest is heard, however soon it ends after it.
func TestLastWordIsHeard(t *testing.T) {
	t.Parallel()
	for i := range 1000 {
		said := &memory{}
		if _, err := mux.New(said, false, guest.Streams()...).Stream(guest.Control).Write(payload.Append(nil, guest.Ended, guest.Ending{}.Append(nil))); err != nil {
			t.Fatal(err)
		}
		m := &machine{words: make(chan payload.Record, 16)}
		m.talk(mux.New(said, true, guest.Streams()...))
		if word := <-m.words; word.Kind != guest.Ended {
			t.Fatalf("the word of guest %d is lost", i)
		}
	}
}
