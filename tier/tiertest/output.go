package tiertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier"
)

// exactOutput: what is printed arrives whole and in order on each stream, however
// soon what prints it ends.
func exactOutput(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{})
	big := strings.Repeat("0123456789abcdef", 200<<10/16)
	for _, c := range []struct {
		name     string
		do       deed
		out, err string
	}{
		{"one line", say("hello"), "hello\n", ""},
		{"nothing", deed{sh: "exit 0", js: "0", wasi: []string{"exit", "0"}}, "", ""},
		{
			"200 KB",
			deed{argv: []string{"cat", "big"}, files: []tier.File{{Path: "big", Content: []byte(big)}}, js: "console.log('0123456789abcdef'.repeat(12800).slice(0, -1))", wasi: []string{"fill", "0123456789abcdef", "12800"}},
			map[bool]string{false: big, true: big[:len(big)-1] + "\n"}[s.Modules == "javascript"], "",
		},
		{"no newline", deed{argv: []string{"printf", "%s", "end"}, wasi: []string{"fill", "end", "1"}}, "end", ""},
		{
			"both streams in turn", deed{
				sh: `for i in 1 2 3; do echo o$i; echo e$i >&2; done`, js: "for (const i of [1, 2, 3]) { console.log('o' + i); console.error('e' + i) }", wasi: []string{"alternate", "3"},
			}, "o1\no2\no3\n", "e1\ne2\ne3\n",
		},
	} {
		r, ok := s.request(t, c.do)
		if !ok {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s.repeat(t, func() error {
				res, err := h.Run(t.Context(), r)
				if err != nil || string(res.Stdout) != c.out || string(res.Stderr) != c.err || res.ExitCode != 0 || res.Truncated {
					return fmt.Errorf("exit %d, %d bytes out (want %d), %.80q, stderr %.200q, %w", res.ExitCode, len(res.Stdout), len(c.out), res.Stdout, res.Stderr, err)
				}
				return nil
			})
		})
	}
}

// repeat does something again and again, two at a time.
func (s Subject) repeat(t *testing.T, do func() error) {
	t.Helper()
	n := s.Repeats
	if soak {
		n = 1000
	}
	work := make(chan int)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i := range work {
				if err := do(); err != nil {
					t.Errorf("run %d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	all.Wait()
}

// stdin arrives whole, may be left unread, and is at its end where there is none.
func stdin(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{})
	large := []byte(strings.Repeat("0123456789abcde\n", 3<<20/16))
	for _, c := range []struct {
		name string
		do   deed
		want string
	}{
		{"large", deed{argv: []string{"wc", "-c"}, stdin: large, js: "console.log(stdin.length)", wasi: []string{"count"}}, "3145728\n"},
		{"none", deed{argv: []string{"wc", "-c"}, js: "console.log(stdin.length)", wasi: []string{"count"}}, "0\n"},
		{"unread", deed{argv: []string{"echo", "done"}, stdin: large, js: "console.log('done')", wasi: []string{"say", "done"}}, "done\n"},
		{"shut by the program", deed{sh: "exec <&-; sleep 0.1; echo done", stdin: large}, "done\n"},
		{"read in part", deed{sh: "head -c 15; sleep 0.1", stdin: large}, "0123456789abcde"},
	} {
		r, ok := s.request(t, c.do)
		if !ok {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if res := run(t, h, r); string(res.Stdout) != c.want || res.ExitCode != 0 {
				t.Errorf("exit %d, %.80q, want %q (stderr %.200q)", res.ExitCode, res.Stdout, c.want, res.Stderr)
			}
		})
	}
}

// howItEnded: exit statuses, signals, timeouts and the caller's own word are told
// apart, and so they are in the receipt.
func howItEnded(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{})
	core := []string{"exit 42", "own 137", "an exception", "TERM", "real fault", "not found"}
	for _, c := range []struct {
		name   string
		do     deed
		code   int
		signal string
		exit   string // in the receipt
	}{
		{"exit 0", exits(0), 0, "", "exited"},
		{"exit 1", exits(1), 1, "", "exited"},
		{"exit 42", exits(42), 42, "", "exited"},
		{"exit 255", exits(255), 255, "", "exited"},
		{"exit 256 is 0", deed{sh: "exit 256"}, 0, "", "exited"},
		{"own 124", exits(124), 124, "", "exited"},
		{"own 137", exits(137), 137, "", "exited"},
		{"TERM", deed{sh: "kill -TERM $$"}, 143, "SIGTERM", "signaled"},
		{"KILL", deed{sh: "kill -KILL $$"}, 137, "SIGKILL", "signaled"},
		{"SEGV", deed{sh: "kill -SEGV $$"}, 139, "SIGSEGV", "signaled"},
		{"XCPU", deed{sh: "kill -XCPU $$"}, 152, "SIGXCPU", "signaled"},
		{"PIPE", deed{sh: "kill -PIPE $$"}, 141, "SIGPIPE", "signaled"},
		{"a real-time signal", deed{sh: "kill -35 $$"}, 163, "SIGRTMIN+1", "signaled"},
		{"ABRT", deed{py: "import os; os.abort()"}, 134, "SIGABRT", "signaled"},
		{"real fault", deed{py: "import ctypes; ctypes.string_at(0)"}, 139, "SIGSEGV", "signaled"},
		{"a shell's 128+n", deed{sh: "bash -c 'kill -TERM $$'; exit $?"}, 143, "", "exited"},
		{"not found", deed{argv: []string{"nothing-of-that-name"}}, 127, "", "failed"},
		{"not executable", deed{argv: []string{"/etc/passwd"}}, 126, "", "failed"},
		{"a folder", deed{argv: []string{"/etc"}}, 126, "", "failed"},
		{"below a file", deed{argv: []string{"/etc/passwd/x"}}, 126, "", "failed"},
		{"a name too long", deed{argv: []string{"/" + strings.Repeat("x", 300)}}, 126, "", "failed"},
		{"too long an argument", deed{argv: []string{"/bin/true", strings.Repeat("x", 200_000)}}, 126, "", "failed"},
		{"an exception", deed{py: "raise ValueError('x')", js: "throw new Error('x')"}, 1, "", "exited"},
		{"a promise refused", deed{js: "await Promise.reject(new Error('x'))"}, 1, "", "exited"},
		{"no such syntax", deed{js: "if then"}, 1, "", "exited"},
	} {
		r, ok := s.request(t, c.do)
		if !ok || s.briefly() && !slices.Contains(core, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			res := run(t, h, r)
			if res.ExitCode != c.code || res.Signal != c.signal || res.KilledBy != "" || res.Receipt.Exit != c.exit {
				t.Errorf("exit %d %q killed by %q, receipt %q; want %d %q, %q (stderr %.200q)",
					res.ExitCode, res.Signal, res.KilledBy, res.Receipt.Exit, c.code, c.signal, c.exit, res.Stderr)
			}
		})
	}
	t.Run("timeout keeps the output so far", func(t *testing.T) {
		d := hang("so far")
		d.sh, d.limits.Timeout = "echo so far; trap '' TERM INT; kill -STOP $$; sleep 60", time.Second
		res := cutOff(t, h, s.needs(t, d))
		if res.KilledBy != tier.KilledByTimeout || string(res.Stdout) != "so far\n" || res.ExitCode != 137 || res.Receipt.Exit != "timeout" {
			t.Errorf("got %+v", res)
		}
	})
	t.Run("stopped by the caller", func(t *testing.T) { stoppedByCaller(t, s, h) })
}

func stoppedByCaller(t *testing.T, s Subject, h tier.Tier) {
	ctx, stop := context.WithCancelCause(t.Context())
	r := s.needs(t, hang("so far"))
	r.Told = func(bool, []byte) { stop(tier.ErrStopped) }
	time.AfterFunc(patience, func() { stop(tier.ErrStopped) })
	if res, err := h.Run(ctx, r); err != nil || res.KilledBy != tier.KilledByCaller || string(res.Stdout) != "so far\n" || res.ExitCode != 137 {
		t.Errorf("%+v, %v", res, err)
	}
}

func exits(code int) deed {
	return deed{sh: fmt.Sprint("exit ", code), js: fmt.Sprintf("process.exit(%d)", code), wasi: []string{"exit", fmt.Sprint(code)}}
}

// soon says that a run ended not long after its timeout: within 2 s where the machine
// is quiet. Without one, it ends by itself.
func soon(t testing.TB, began time.Time, timeout time.Duration) {
	t.Helper()
	if took := time.Since(began); took > timeout+patience {
		t.Errorf("it took %v, with a timeout of %v", took, timeout)
	}
}

// cancelled: when the caller is gone, the run ends, with the caller's own error,
// and the host is as before; what is refused before it begins says so.
func cancelled(t *testing.T, s Subject) {
	h, _ := s.Open(t, Config{Runs: 2})
	t.Run("in mid-run", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := s.needs(t, hang("up"))
		r.Told = func(bool, []byte) { cancel() }
		time.AfterFunc(patience, cancel)
		if _, err := h.Run(ctx, r); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	t.Run("by a deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Run(ctx, s.needs(t, hang("up"))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	t.Run("before it begins", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if res, err := h.Run(ctx, s.needs(t, say("it ran"))); !errors.Is(err, context.Canceled) || len(res.Stdout) > 0 {
			t.Errorf("%q, %v", res.Stdout, err)
		}
	})
	t.Run("a request that cannot be run", func(t *testing.T) {
		for what, alter := range map[string]func(*tier.Request){
			"no time":           func(r *tier.Request) { r.Limits.Timeout = 0 },
			"less than no time": func(r *tier.Request) { r.Limits.Timeout = -time.Second },
			"no memory":         func(r *tier.Request) { r.Limits.Memory = 1 },
			"too much stdin":    func(r *tier.Request) { r.Stdin = make([]byte, 65<<20) },
			"a way up":          func(r *tier.Request) { r.Files = []tier.File{{Path: "../x"}} },
		} {
			r := s.needs(t, say("it ran"))
			alter(&r)
			if _, err := h.Run(t.Context(), r); sallyport.CodeOf(err) != sallyport.Invalid || !errors.Is(err, sallyport.ErrNotExecuted) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	if res := run(t, h, s.needs(t, say("still"))); string(res.Stdout) != "still\n" {
		t.Errorf("afterwards: %+v", res)
	}
}
