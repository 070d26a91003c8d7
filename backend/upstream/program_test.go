package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/test/await"
)

// gone reports whether no process has this id any more; a zombie counts as gone.
func gone(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestFO20_ChildThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "stubborn"))
	start := time.Now()
	pid, err := strconv.Atoi(mustText(t, b, "s", "child", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > await.Patience { // the grandchild stays for ten
		t.Errorf("the result took %v", took)
	}
	if gone(pid) {
		t.Fatal("the grandchild is not there: the test can show nothing")
	}
	start = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > await.Patience { // it would stay for an hour
		t.Errorf("Close took %v, the grace is 3 s", took)
	}
	await.That(t, "the whole group is gone", func() bool { return gone(pid) })
}

func TestFO21_ExitsAfterEachReply(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "exit-after"))
	for i := range 3 {
		args := fmt.Sprintf(`{"i":%d}`, i)
		if got := mustText(t, b, "s", "echo", args); got != args {
			t.Errorf("got %s, want %s", got, args)
		}
	}
	if st := status(t, b, "s"); st.Restarts < 2 {
		t.Errorf("%d restarts after three one-shot calls", st.Restarts)
	}
}

// A server that stays down for one reason is told of once.
func TestSaysOnceWhyItIsDown(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer // one server, so one writer, and read when it is closed
	o := options()
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	b := open(t, o, upstream.Config{Name: "s", Argv: []string{"/no/such/program"}, Isolation: "none"})
	await.That(t, "it is tried again", func() bool { return status(t, b, "s").Restarts >= 4 })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "upstream is down"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
}

func TestFO21_ParallelCallsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("s", "exit-after", ledger))
	var wg sync.WaitGroup
	ok := make([]bool, 2)
	for i := range 2 {
		wg.Go(func() {
			_, err := call(t, b, "s", "echo", fmt.Sprintf(`{"i":%d}`, i))
			ok[i] = err == nil
			if err != nil && sallyport.CodeOf(err) != sallyport.Upstream && sallyport.CodeOf(err) != sallyport.Unavailable {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		n := strings.Count(string(text), fmt.Sprintf(`"arguments":{"i":%d}`, i))
		if n > 1 || ok[i] && n != 1 {
			t.Errorf("call %d arrived %d times, ok %t", i, n, ok[i])
		}
	}
}

func TestFO21_HalfAReply(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	b := open(t, options(), server("half", "half", ledger), server("killed", "suicide"))
	_, err := call(t, b, "half", "echo", `{}`)
	if sallyport.CodeOf(err) != sallyport.Upstream || errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("got %v: want upstream_error that leaves the outcome open", err)
	}
	for _, want := range []string{"upstream_exited", "exit status 1", `about to fail␛[31m`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if text, _ := os.ReadFile(ledger); strings.Count(string(text), "call ") != 1 {
		t.Errorf("the call was repeated: %s", text)
	}
	if _, err := call(t, b, "killed", "echo", `{}`); err == nil || !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), "goodbye") {
		t.Errorf("got %v, want the signal and the last words", err)
	}
}

func TestFO23_LifeIsNotThatOfARequest(t *testing.T) {
	t.Parallel()
	o := options()
	o.Connect, o.Budget = 2*time.Second, await.Patience // on a slow machine it is tried again
	c := server("s", "legacy")
	c.Lazy = true
	b := open(t, o, c)
	if st := status(t, b, "s"); st.State != upstream.StateIdle {
		t.Errorf("state = %s before the first call to a lazy server", st.State)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.Run(ctx, backendtest.Job(tool("s", "echo"), `{}`)); err != nil {
		t.Fatal(err)
	}
	restarts := status(t, b, "s").Restarts
	cancel()                            // the request that started it
	time.Sleep(2200 * time.Millisecond) // beyond the connect deadline
	if got := mustText(t, b, "s", "echo", `{"a":1}`); got != `{"a":1}` {
		t.Error(got)
	}
	if n := status(t, b, "s").Restarts - restarts; n != 0 {
		t.Errorf("%d restarts", n)
	}
}

func TestFO25_Environment(t *testing.T) {
	t.Setenv("GW_MASTER2", "CANARY-B") // in this process, not in Options.Environ
	one, two := server("one", "legacy"), server("two", "legacy")
	one.Env = []string{"X=1", "EMPTY=", "EQ=a=b=c", "LINES=a\nb\r", "UNI=é𝄞", "HOME=/elsewhere"}
	two.Env = []string{"Y=2"}
	b := open(t, options(), one, two)
	base := []string{"LANG=C.UTF-8", "PATH=" + os.Getenv("PATH"), "TZ=UTC"}
	for name, want := range map[string][]string{
		"one": append(slices.Clone(base), one.Env...), "two": append(slices.Clone(base), "HOME=/tmp", "Y=2"),
	} {
		out, err := call(t, b, name, "env", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		var r struct{ StructuredContent struct{ Env []string } }
		if err := json.Unmarshal(out.Content, &r); err != nil {
			t.Fatal(err)
		}
		got := r.StructuredContent.Env
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got  %q\nwant %q", name, got, want)
		}
	}
	for _, bad := range []string{"NAME", "=x", "A=\x00"} {
		c := server("bad", "legacy")
		c.Env = []string{bad}
		if b.Add(c) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestRemoveEndsTheProcess(t *testing.T) {
	t.Parallel()
	b := open(t, options(), server("s", "legacy"))
	pid, _ := strconv.Atoi(mustText(t, b, "s", "child", `{}`))
	b.Remove("s")
	await.That(t, "its children are gone", func() bool { return gone(pid) })
	if len(b.Status()) != 0 {
		t.Errorf("status = %v", b.Status())
	}
	if pid > 1 && syscall.Kill(pid, 0) == nil && !gone(pid) {
		t.Error("still there")
	}
}
