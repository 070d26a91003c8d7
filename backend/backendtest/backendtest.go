// Package backendtest states what every sallyport.Backend must do, as tests.
// A backend's own test opens it and names a few tools.
package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport"
)

// A Subject is a backend under test. A tool without a name skips its cases.
type Subject struct {
	// Open returns a fresh backend. The suite closes it.
	Open func(testing.TB) sallyport.Backend

	Echo sallyport.Tool // returns its arguments, byte for byte, as the text of its first content item
	Hang sallyport.Tool // never returns by itself
	Fail sallyport.Tool // fails as a tool: isError
	Gone sallyport.Tool // its origin is not there

	// Slack is how long the backend may take for what is to happen at once;
	// 30 s if zero.
	Slack time.Duration
}

// Arguments that a backend must pass through untouched.
var Arguments = []string{
	`{}`,
	`{"a":1}`,
	`{"big":9007199254740993,"max":9223372036854775807,"min":-9223372036854775808,"u":18446744073709551615}`,
	`{"exp":1e400,"frac":0.1,"long":12345678901234567890.123456789,"one":1.0,"zero":-0}`,
	`{"text":"é 𝄞 \"quoted\" \\ \n \u0000 </script>","z":[null,true,{"":[]}]}`,
}

// Run tests a backend.
func Run(t *testing.T, s Subject) {
	if s.Slack == 0 {
		s.Slack = 30 * time.Second
	}
	for _, c := range []struct {
		name string
		tool sallyport.Tool
		run  func(*testing.T, Subject, sallyport.Backend)
	}{
		{"Info", sallyport.Tool{Name: "-"}, info},
		{"EchoExact", s.Echo, echoExact},
		{"Parallel", s.Echo, parallel},
		{"ToolError", s.Fail, toolError},
		{"CancelEnds", s.Hang, cancelEnds},
		{"DeadlineEnds", s.Hang, deadlineEnds},
		{"TimeoutEnds", s.Hang, timeoutEnds},
		{"EndedBefore", s.Echo, endedBefore},
		{"Gone", s.Gone, gone},
		{"CloseEndsJobs", s.Hang, closeEndsJobs},
		{"Closed", s.Echo, closedBackend},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.tool.Name == "" {
				t.Skip("the subject has no tool for this case")
			}
			b := s.Open(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("Close = %v", err)
				}
			})
			c.run(t, s, b)
		})
	}
}

// Job returns a job as the gateway would make it.
func Job(tool sallyport.Tool, args string) sallyport.Job {
	return sallyport.Job{
		CallID: "call-1", Tool: tool, Args: json.RawMessage(args), Limits: sallyport.DefaultLimits(),
		Timeout: 30 * time.Second, Notify: func(sallyport.Notice) {},
	}
}

// Text returns the text of the first content item of a result.
func Text(out sallyport.Output) (string, error) {
	var r struct {
		Content []struct{ Type, Text string }
		IsError bool
	}
	if err := json.Unmarshal(out.Content, &r); err != nil {
		return "", fmt.Errorf("%w in %.200s", err, out.Content)
	}
	if r.IsError != out.IsError {
		return "", fmt.Errorf("isError is %t in the result, but Output.IsError is %t", r.IsError, out.IsError)
	}
	if len(r.Content) == 0 || r.Content[0].Type != "text" {
		return "", fmt.Errorf("no text in %.200s", out.Content)
	}
	return r.Content[0].Text, nil
}

func info(t *testing.T, _ Subject, b sallyport.Backend) {
	first := b.Info()
	if first.Name == "" || first.Isolation == "" || b.Info() != first {
		t.Errorf("Info = %+v, then %+v", first, b.Info())
	}
	if err := b.Check(t.Context()); err != nil {
		t.Errorf("Check = %v", err)
	}
}

func echo(ctx context.Context, s Subject, b sallyport.Backend, args string) error {
	out, err := b.Run(ctx, Job(s.Echo, args))
	if err != nil {
		return err
	}
	if got, err := Text(out); err != nil || got != args || out.IsError {
		return fmt.Errorf("got %q (isError %t, %w), want %q", got, out.IsError, err, args)
	}
	return nil
}

func echoExact(t *testing.T, s Subject, b sallyport.Backend) {
	for _, args := range Arguments {
		if err := echo(t.Context(), s, b, args); err != nil {
			t.Error(err)
		}
	}
}

func parallel(t *testing.T, s Subject, b sallyport.Backend) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := echo(t.Context(), s, b, fmt.Sprintf(`{"i":%d}`, i)); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func toolError(t *testing.T, s Subject, b sallyport.Backend) {
	out, err := b.Run(t.Context(), Job(s.Fail, `{}`))
	if err != nil || !out.IsError {
		t.Fatalf("Run = %s, %t, %v; want a tool error", out.Content, out.IsError, err)
	}
	if _, err := Text(out); err != nil {
		t.Error(err)
	}
}

// hang runs the hanging tool and checks that it ends soon after stop.
func hang(t *testing.T, s Subject, b sallyport.Backend, ctx context.Context, job sallyport.Job, stop func()) error {
	t.Helper()
	var late atomic.Bool
	var over atomic.Bool
	job.Notify = func(sallyport.Notice) { late.Store(late.Load() || over.Load()) }
	result := make(chan error, 1)
	go func() {
		_, err := b.Run(ctx, job)
		over.Store(true)
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("the hanging tool returned by itself: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	stop()
	select {
	case err := <-result:
		time.Sleep(20 * time.Millisecond)
		if late.Load() {
			t.Error("a notification came after the end of Run")
		}
		return err
	case <-time.After(s.Slack):
		t.Fatalf("Run did not end within %v", s.Slack)
		return nil
	}
}

func cancelEnds(t *testing.T, s Subject, b sallyport.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := hang(t, s, b, ctx, Job(s.Hang, `{}`), cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	usable(t, s, b)
}

func deadlineEnds(t *testing.T, s Subject, b sallyport.Backend) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := hang(t, s, b, ctx, Job(s.Hang, `{}`), func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v, want context.DeadlineExceeded", err)
	}
	usable(t, s, b)
}

func timeoutEnds(t *testing.T, s Subject, b sallyport.Backend) {
	job := Job(s.Hang, `{}`)
	job.Timeout, job.Limits.Timeout = 500*time.Millisecond, 500*time.Millisecond
	result := make(chan error, 1)
	go func() {
		out, err := b.Run(t.Context(), job)
		if err == nil && !out.IsError {
			err = fmt.Errorf("it succeeded: %.200s", out.Content)
		} else if err == nil {
			err = &sallyport.Error{Code: sallyport.Timeout} // a sandbox says so in its result
		}
		result <- err
	}()
	select {
	case err := <-result:
		if sallyport.CodeOf(err) != sallyport.Timeout {
			t.Errorf("Run = %v, want code timeout", err)
		}
		if errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("Run = %v: a job that ran into its timeout may have had effects", err)
		}
	case <-time.After(s.Slack + time.Second):
		t.Fatal("the job's timeout did not end it")
	}
	usable(t, s, b)
}

func usable(t *testing.T, s Subject, b sallyport.Backend) {
	t.Helper()
	if s.Echo.Name == "" {
		return
	}
	if err := echo(t.Context(), s, b, `{"still":"there"}`); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func endedBefore(t *testing.T, s Subject, b sallyport.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Run(ctx, Job(s.Echo, `{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
}

func gone(t *testing.T, s Subject, b sallyport.Backend) {
	_, err := b.Run(t.Context(), Job(s.Gone, `{}`))
	if err == nil || !errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("Run = %v, want an error that wraps ErrNotExecuted", err)
	}
}

func closeEndsJobs(t *testing.T, s Subject, b sallyport.Backend) {
	err := hang(t, s, b, t.Context(), Job(s.Hang, `{}`), func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	if err == nil || errors.Is(err, sallyport.ErrNotExecuted) {
		t.Errorf("Run = %v, want an error that leaves the outcome open", err)
	}
}

func closedBackend(t *testing.T, s Subject, b sallyport.Backend) {
	for range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if b.Check(t.Context()) == nil {
		t.Error("Check = nil on a closed backend")
	}
	_, err := b.Run(t.Context(), Job(s.Echo, `{}`))
	if err == nil || !errors.Is(err, sallyport.ErrNotExecuted) || strings.TrimSpace(err.Error()) == "" {
		t.Errorf("Run = %v, want an error that wraps ErrNotExecuted", err)
	}
}
