package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/sqlite"
	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
)

func TestMain(m *testing.M) {
	if role() {
		return
	}
	dir, err := os.MkdirTemp("", "stage")
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.Setenv(envPrograms, dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stage.Main(m, func() { _ = os.RemoveAll(dir) })
}

// envPrograms names a folder for the programs with failpoints, which are built once.
const envPrograms = "SALLYPORT_CRASH_PROGRAMS"

// start runs this binary in a role, and returns when it is ready.
func start(t *testing.T, dir, role string) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SALLYPORT_CRASH_ROLE="+role, "SALLYPORT_CRASH_DIR="+dir)
	cmd.Stderr = os.Stderr
	in, out := proc.Start(t, cmd)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the %s said %q, %v", role, line, err)
	}
	return cmd, in
}

// newDir is short, because a socket's path has to be.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, err := audit.CreateKey(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestKill9(t *testing.T) {
	t.Parallel()
	kills := 30
	if os.Getenv("SALLYPORT_SOAK") != "" {
		kills = 1000
	}
	dir := newDir(t)
	ledger, hold := start(t, dir, "ledger")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	window := 60 * time.Millisecond // grows on a machine that gets little done in it
	little := func(i int) bool {
		st, err := os.Stat(ledgerOf(dir))
		return err == nil && st.Size() < int64(i)*60
	}
	for i := 0; i < kills || i < 5*kills && little(kills); i++ {
		w, _ := start(t, dir, "worker")
		time.Sleep(time.Duration(random.Int64N(int64(window))))
		if little(i) && window < time.Second {
			window = window * 5 / 4
		}
		if err := w.Process.Kill(); err != nil {
			t.Fatalf("the worker had ended by itself: %v", err)
		}
		if err := w.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
			t.Fatalf("the worker was not killed: %v", err)
		}
	}
	d, _ := start(t, dir, "drain")
	if err := d.Wait(); err != nil {
		t.Fatalf("the last worker: %v", err)
	}
	hold.Close()
	if err := ledger.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ledgerOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	problems, seen := check(t, dir, string(text))
	for _, p := range problems {
		t.Error(p)
	}
	t.Logf("%d kills: %d calls done, %d unknown, %d rejected; %d decisions", kills, seen.done, seen.unknown, seen.rejected, seen.decided)
	if seen.done < kills/2 || seen.unknown == 0 || seen.decided == 0 {
		t.Errorf("too little happened for this to mean anything: %+v", seen)
	}
	controls(t, dir, string(text))
}

type counts struct{ done, unknown, rejected, decided int }

// check holds what the store says against what really happened.
func check(t *testing.T, dir, text string) (problems []string, seen counts) {
	t.Helper()
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	h, err := readHistory(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.OpenReadOnly(filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rs, err := s.Reservations(t.Context(), store.ReservationFilter{})
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]sallyport.ReservationState{}
	for _, r := range rs {
		state[r.Key] = r.State
		switch n := h.effects[r.Key]; {
		case r.State == sallyport.Done:
			seen.done++
			if n != 1 {
				bad("%s is done, and was executed %d times", r.Key, n)
			}
		case r.State == sallyport.Unknown:
			seen.unknown++
			if n > 1 {
				bad("%s was executed %d times", r.Key, n)
			}
		case r.State == sallyport.AwaitingApproval, r.State == sallyport.ReservationState(sallyport.TicketRejected):
			seen.rejected++
			if n != 0 {
				bad("%s was rejected, and executed %d times", r.Key, n)
			}
		default:
			bad("%s was left %s", r.Key, r.State)
		}
	}
	for k := range h.effects {
		if state[k] == "" {
			bad("%s was executed, and nothing is known of it", k)
		}
	}
	for k := range h.finished {
		if state[k] != sallyport.Done {
			bad("the outcome of %s was confirmed, and lost: it is %s", k, state[k])
		}
	}
	for id, approved := range h.decided {
		seen.decided++
		tk, err := s.Ticket(t.Context(), "t", id)
		ok := tk.State == sallyport.TicketRejected && !approved || approved && (tk.State == sallyport.TicketApproved || tk.State == sallyport.TicketConsumed)
		if err != nil || !ok {
			bad("ticket %s was decided (approved: %v), and is %s (%v)", id, approved, tk.State, err)
		}
	}
	return append(problems, checkRecord(t, dir, s, seen, h)...), seen
}

func checkRecord(t *testing.T, dir string, s *sqlite.Store, seen counts, h history) (problems []string) {
	t.Helper()
	keys, err := audit.LoadPublicKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	heads, err := os.ReadFile(filepath.Join(dir, "heads"))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := audit.Verify(context.Background(), s, audit.Options{PublicKeys: keys, Head: heads})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		problems = append(problems, "audit: "+p.String())
	}
	begun := map[string]int{}
	err = s.Rows(t.Context(), rep.Logs[0].Writer, 0, func(r audit.Row) error {
		if r.Kind == sallyport.EntryIntent {
			begun[r.CallID]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range h.effects {
		if begun[k] != 1 {
			problems = append(problems, fmt.Sprintf("%s was executed, and the record has %d intents", k, begun[k]))
		}
	}
	if len(begun) != seen.done+seen.unknown {
		problems = append(problems, fmt.Sprintf("%d intents, but %d calls done and %d unknown", len(begun), seen.done, seen.unknown))
	}
	return problems
}

// controls shows that check would notice: each story that did not happen is
// told to it as if it had.
func controls(t *testing.T, dir, text string) {
	h, err := readHistory(text)
	if err != nil {
		t.Fatal(err)
	}
	var done, ticket string
	for done = range h.finished {
		break
	}
	for ticket = range h.decided {
		break
	}
	for name, story := range map[string]string{
		"executed twice":    text + "effect " + done + "\n",
		"executed unknown":  text + "effect k999999\n",
		"outcome lost":      text + "finished k999999\n",
		"decision lost":     text + "decided none true\n",
		"decision reversed": text + fmt.Sprintln("decided", ticket, !h.decided[ticket]),
		"not executed":      strings.Replace(text, "effect "+done+"\n", "", 1),
	} {
		if problems, _ := check(t, dir, story); len(problems) == 0 {
			t.Errorf("control %q was not noticed", name)
		}
	}
}
