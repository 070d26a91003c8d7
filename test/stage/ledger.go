package stage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/proc"
)

// A Ledger is a process of its own that knows what really happened. Actors tell
// it, and go on when it is on disk; nobody kills it.
type Ledger struct {
	URL  string
	t    testing.TB
	file string
}

// NewLedger starts one. It ends with the test.
func NewLedger(t testing.TB) *Ledger {
	t.Helper()
	l := &Ledger{t: t, file: filepath.Join(t.TempDir(), "ledger")}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", l.file)
	cmd.Env = append(os.Environ(), envRole+"=ledger")
	cmd.Stderr = os.Stderr
	in, out := proc.Start(t, cmd)
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // ends when its input does
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the ledger does not start: %v", err)
	}
	l.URL = strings.TrimSpace(line)
	return l
}

// Lines are what was told, in order.
func (l *Ledger) Lines() []string {
	l.t.Helper()
	b, err := os.ReadFile(l.file)
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}

// Count is how often a line was told.
func (l *Ledger) Count(line string) (n int) {
	l.t.Helper()
	for _, s := range l.Lines() {
		if s == line {
			n++
		}
	}
	return n
}

// Env names the ledger to an Actor.
func (l *Ledger) Env() string { return "ACTOR_LEDGER=" + l.URL }

func keepLedger() {
	f, err := os.OpenFile(os.Args[1], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
	fmt.Println("http://" + l.Addr().String())
	go func() { // ends with the test, which holds the other end of standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var mu sync.Mutex
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = f.Write(append(b, '\n'))
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
}

// tell is an actor's effect. What nobody has seen did not happen, so an actor
// whose ledger fails ends.
func tell(line string) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, os.Getenv("ACTOR_LEDGER"), strings.NewReader(line))
	if err == nil {
		var resp *http.Response
		if resp, err = http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
	}
	fmt.Fprintln(os.Stderr, "ledger:", err)
	os.Exit(3)
}
