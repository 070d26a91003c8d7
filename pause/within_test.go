package pause_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.dev/sallyport/pause"
	"sallyport.dev/sallyport/test/await"
)

const childEnv = "SALLYPORT_TEST_WITHIN"

// TestMain lets the test binary be a process that is stopped.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	stopped()
}

const (
	short = 500 * time.Millisecond
	late  = "too late"
)

// stopped begins, is stopped for longer than its time, and tells whether that was up. It
// says if it was stopped too late to tell.
func stopped() {
	plain, end := context.WithTimeout(context.Background(), short)
	defer end()
	ctx, end := pause.Within(context.Background(), short)
	defer end()
	begun := time.Now()
	last := begun
	fmt.Println("begun")
	for time.Since(last) < short {
		last = time.Now()
		time.Sleep(time.Millisecond)
	}
	if last.Sub(begun) > short/2 {
		fmt.Println(late)
		return
	}
	<-plain.Done()
	fmt.Println("over:", ctx.Err() != nil)
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
}

// A process that is kept from running for longer than the time has not used it up.
// (The control is a plain timeout, which is over.)
func TestAStoppedProcessLosesNoTime(t *testing.T) {
	said := ""
	await.That(t, "it is stopped soon after it began", func() bool {
		said = stop(t)
		return said != "begun\n"+late+"\n"
	})
	if said != "begun\nover: false\ncontext deadline exceeded\n" {
		t.Errorf("%q", said)
	}
}

func stop(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=1") // none of its parts runs while another waits
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	var said strings.Builder
	line, err := in.ReadString('\n')
	said.WriteString(line)
	if err := errors.Join(err, cmd.Process.Signal(syscall.SIGSTOP)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * short)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_, _ = in.WriteTo(&said)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return said.String()
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, end := pause.Within(t.Context(), time.Second)
		<-ctx.Done()
		if took := time.Since(begun); took != time.Second || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, context.Cause(ctx))
		}
		end()
		ctx, end = pause.Within(t.Context(), time.Second)
		time.Sleep(500 * time.Millisecond)
		end()
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("ended by its caller: %v", context.Cause(ctx))
		}
		time.Sleep(time.Minute)
		parent, cancel := context.WithCancel(t.Context())
		ctx, end = pause.Within(parent, time.Hour)
		defer end()
		cancel()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("ended by its parent: %v", context.Cause(ctx))
		}
	})
}
