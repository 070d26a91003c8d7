package upstream_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
)

// Whoever added a server that says nothing is told so, with its last words and
// what it may be waiting for.
func TestASilentServerIsExplained(t *testing.T) {
	t.Parallel()
	o := options()
	o.Probe, o.Connect = 100*time.Millisecond, 300*time.Millisecond
	b := open(t, o, upstream.Config{Name: "mute", Isolation: "none",
		Argv: []string{"/bin/sh", "-c", "echo fetching >&2; echo fetching >&2; exec sleep 1000"}})
	var said string
	await.That(t, "it is told with its last words", func() bool {
		said = status(t, b, "mute").Error
		return strings.Contains(said, "last words")
	})
	for _, want := range []string{"not answered within 300ms", "its last words: fetching;", "--env"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}

// FO-17: a program that lives, takes what is sent and answers nothing is found
// and started again, whether somebody calls it or not; one that is at work on a
// call is left alone.
func TestFO17SilentProgramIsStartedAgain(t *testing.T) {
	t.Parallel()
	o := options()
	o.Pulse, o.Grace = 50*time.Millisecond, 300*time.Millisecond
	for _, mode := range []string{"legacy", "modern"} {
		o.Answer = await.Patience
		b := open(t, o, server("s", mode))
		first := mustText(t, b, "s", "pid", `{}`)
		time.Sleep(500 * time.Millisecond) // it is asked several times
		if got := mustText(t, b, "s", "pid", `{}`); got != first {
			t.Fatalf("%s: one that answers was started again", mode)
		}
		o.Answer = 2 * time.Second
		b = open(t, o, server("s", mode))
		var pid, restarts int
		await.That(t, "it is stopped", func() bool { // on a slow machine it may have been started again before
			var err error
			first = mustText(t, b, "s", "pid", `{}`)
			if pid, err = strconv.Atoi(first); err != nil {
				t.Fatal(err)
			}
			restarts = status(t, b, "s").Restarts
			return syscall.Kill(pid, syscall.SIGSTOP) == nil
		})
		await.That(t, "it is started again", func() bool { return status(t, b, "s").Restarts > restarts })
		if second := mustText(t, b, "s", "pid", `{}`); second == first {
			t.Errorf("%s: the same process answers", mode)
		}
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("%s: the stopped process is left behind", mode)
		}
	}
}

func TestBusyProgramIsLeftAlone(t *testing.T) {
	t.Parallel()
	var err error
	await.Longer(2*time.Second, func(answer time.Duration) bool { // one that is slow, as all is, must not be taken for one that hangs
		err = stopAtWork(t, answer)
		return errors.Is(err, context.Canceled)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a call that it works on: %v", err)
	}
}

// stopAtWork stops a program that works on a call, for twice as long as it may take to
// answer, and then cancels the call, whose end it returns.
func stopAtWork(t *testing.T, answer time.Duration) error {
	t.Helper()
	o := options()
	o.Pulse, o.Answer, o.Grace, o.Listing = 20*time.Millisecond, answer, 300*time.Millisecond, time.Second
	b := open(t, o, server("s", "legacy"))
	out, err := call(t, b, "s", "pid", `{}`)
	if err != nil {
		return err
	}
	said, err := backendtest.Text(out)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(said)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	job := backendtest.Job(tool("s", "hang"), `{}`)
	job.Timeout = 10 * await.Patience
	job.Notify = func(sallyport.Notice) { // it is at work, and says nothing more
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.AfterFunc(2*answer, cancel)
	}
	if _, err = b.Run(ctx, job); errors.Is(err, context.Canceled) {
		await.That(t, "afterwards it is started again", func() bool { return status(t, b, "s").Restarts > 0 })
		mustText(t, b, "s", "echo", `{}`)
	}
	return err
}
