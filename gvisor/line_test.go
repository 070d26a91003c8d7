package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor"
	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/talk"
)

const connect = `
import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect("` + payload.TalkSocket + `")
`

// talking runs a program that talks, and returns what it said.
func talking(t *testing.T, h *gvisor.Host, ctx context.Context, text string, talked func(l *talk.Line)) (tier.Result, error) {
	t.Helper()
	r := fill(script("python3", "main.py", connect+text))
	r.Talk = talk.New()
	done := make(chan struct{})
	go func() { defer close(done); talked(r.Talk) }()
	res, err := h.Run(ctx, r)
	r.Talk.End()
	<-done
	return res, err
}

// held runs a program until end is called; then it says a word. It is up when held
// returns.
func held(t *testing.T, h *gvisor.Host, word string) (id string, end func() tier.Result) {
	t.Helper()
	up, over := make(chan struct{}), make(chan tier.Result, 1)
	var line *talk.Line
	go func() {
		res, err := talking(t, h, t.Context(), "s.sendall(b'x'); s.recv(1); print('"+word+"')", func(l *talk.Line) {
			line = l
			l.Take()
			close(up)
		})
		if err != nil {
			t.Error(err)
		}
		over <- res
	}()
	<-up
	all := h.List()
	if len(all) != 1 {
		t.Fatalf("listed: %+v", all)
	}
	return all[0].ID, func() tier.Result {
		if err := line.Say(t.Context(), []byte("x")); err != nil {
			t.Error(err)
		}
		return <-over
	}
}

// A program talks with whoever had it run, in a cold sandbox and in one that
// waited; bytes arrive whole and in order, and there is one such program.
func TestTalk(t *testing.T) {
	h := warmHost(t, 1)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, warm := range []bool{false, true} {
		if warm {
			runWarm(t, h, script("python3", "main.py", ""))
		}
		var heard []byte
		res, err := talking(t, h, t.Context(), `
s.sendall(b"go")
got = b""
while len(got) < 1 << 20: got += s.recv(1 << 16)
s.sendall(got)
try:
    socket.socket(socket.AF_UNIX).connect("`+payload.TalkSocket+`")
    print("second")
except OSError as e: print(type(e).__name__)
`, func(l *talk.Line) {
			for b := l.Take(); b != nil; b = l.Take() {
				if len(heard) == 0 {
					if err := l.Say(context.Background(), want); err != nil {
						t.Error(err)
					}
				}
				heard = append(heard, b...)
			}
		})
		if err != nil || string(res.Stdout) != "FileNotFoundError\n" || !bytes.Equal(heard, append([]byte("go"), want...)) || res.Receipt.Warm != warm {
			t.Errorf("warm %t (%t): %q %q, %d bytes heard, %v", warm, res.Receipt.Warm, res.Stdout, res.Stderr, len(heard), err)
		}
	}
	if res := run(t, h, script("python3", "main.py", `import os; print(os.path.exists("`+payload.TalkSocket+`"))`)); string(res.Stdout) != "False\n" {
		t.Errorf("a run that talks with nobody: %q", res.Stdout)
	}
}

// Who had a program run can end it, and learns how far it came. One that says more
// than anybody takes is killed; one that reads nothing holds nobody up.
func TestTalkEnds(t *testing.T) {
	h := gvisortest.Open(t)
	ctx, stop := context.WithCancelCause(t.Context())
	res, err := talking(t, h, ctx, `
print("so far", flush=True); s.sendall(b"x"); time.sleep(3600)`, func(l *talk.Line) {
		for b := l.Take(); b != nil; b = l.Take() {
			stop(tier.ErrStopped)
		}
	})
	if err != nil || res.KilledBy != tier.KilledByCaller || string(res.Stdout) != "so far\n" || res.ExitCode != 137 {
		t.Errorf("stopped: %+v, %v", res, err)
	}
	res, err = talking(t, h, t.Context(), `
while True: s.sendall(b"y" * 65536)`, func(*talk.Line) {})
	if err == nil || !strings.Contains(err.Error(), "says more") {
		t.Errorf("a flood: %+v, %v", res, err)
	}
	res, err = talking(t, h, t.Context(), `
s.sendall(b"x"); time.sleep(1); print("end")`, func(l *talk.Line) {
		l.Take()
		for range 64 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			if err := l.Say(ctx, make([]byte, 1<<20)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				cancel()
				return
			}
			cancel()
		}
	})
	if err != nil || string(res.Stdout) != "end\n" || res.KilledBy != "" {
		t.Errorf("one that does not read: %q, %s, %v", res.Stdout, res.KilledBy, err)
	}
}

// What a program said before its end is heard whole, though it ends at once, and
// though a child of it keeps the connection.
func TestTalkIsHeardToItsEnd(t *testing.T) {
	h := gvisortest.Open(t)
	const much = 2 << 20
	for name, text := range map[string]string{
		"alone":   "s.sendall(b'z' * (2 << 20))",
		"a child": "import os\nif os.fork() == 0: time.sleep(3600)\ns.sendall(b'z' * (2 << 20)); os._exit(0)",
	} {
		heard := 0
		res, err := talking(t, h, t.Context(), text, func(l *talk.Line) {
			for b := l.Take(); b != nil; b = l.Take() {
				heard += len(b)
			}
		})
		if err != nil || heard != much || res.ExitCode != 0 || res.KilledBy != "" {
			t.Errorf("%s: %d bytes heard, %+v, %v", name, heard, res, err)
		}
	}
}
