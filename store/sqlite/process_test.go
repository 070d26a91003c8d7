package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store/sqlite"
)

// TestMain lets the test binary be one more process on a database.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SALLYPORT_TEST_BEGIN"); dir != "" {
		if err := beginMany(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv("SALLYPORT_TEST_HOLD"); dir != "" {
		if err := hold(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func binding(args string) sallyport.Binding {
	return sallyport.Binding{Tenant: "t", Principal: "agent", Tool: "pay", Args: json.RawMessage(args)}
}

func beginOf(k, ticket string) gateway.Begin {
	b := gateway.Begin{Key: sallyport.ReservationKey{Tenant: "t", Principal: "agent", Tool: "pay", Key: k}, Fingerprint: "f", CallID: k, Ticket: ticket,
		Lease: time.Minute, Intent: sallyport.Entry{Tenant: "t", Kind: sallyport.EntryIntent, CallID: k, Payload: json.RawMessage(`{}`)}}
	if ticket != "" {
		b.TicketHash = binding(`{}`).Hash()
	}
	return b
}

// beginMany opens the database, waits for the starting signal, and tries each
// call that it is told, all at once.
func beginMany(dir string) error {
	s, err := openAgain(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, call := range strings.Fields(line) {
		k, ticket, _ := strings.Cut(call, "/")
		wg.Go(func() {
			_, err := s.Begin(context.Background(), beginOf(k, ticket))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				fmt.Println("executed", k)
			} else if e, ok := errors.AsType[*sallyport.Error](err); ok {
				fmt.Println(e.Code, k, e.Err)
			} else {
				fmt.Println("error:", err)
			}
		})
	}
	wg.Wait()
	return nil
}

// race runs calls in several processes at once and counts the answers.
func race(t *testing.T, p *place, processes int, calls func(process int) []string) map[string]int {
	t.Helper()
	ready := make(chan error, processes)
	start := make(chan struct{})
	answers := make(chan string, 1000)
	var wg sync.WaitGroup
	for i := range processes {
		cmd := osexec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "SALLYPORT_TEST_BEGIN="+p.dir)
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer cmd.Wait()
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "ready" {
				ready <- fmt.Errorf("process %d: %q", i, lines.Text())
				return
			}
			ready <- nil
			<-start
			io.WriteString(in, strings.Join(calls(i), " ")+"\n")
			for lines.Scan() {
				answers <- lines.Text()
			}
		})
	}
	for range processes {
		if err := <-ready; err != nil {
			t.Error(err)
		}
	}
	close(start)
	wg.Wait()
	close(answers)
	got := map[string]int{}
	for a := range answers {
		word, _, _ := strings.Cut(a, " ")
		if word != "executed" && word != string(sallyport.InFlight) && word != string(sallyport.Conflict) {
			t.Errorf("unexpected: %s", a)
		}
		got[word]++
	}
	return got
}

// Fifty calls with one key, from five processes: one executes.
func TestTO24_OneKeyManyProcesses(t *testing.T) {
	p := newPlace(t)
	got := race(t, p, 5, func(int) []string { return strings.Fields(strings.Repeat("k/ ", 10)) })
	if got["executed"] != 1 || got["in_flight"] != 49 {
		t.Errorf("%v, want one execution and 49 in flight", got)
	}
	checkIntents(t, p, 1)
}

// Fifty uses of one ticket, half of them under other keys: one executes.
func TestTO24_OneTicketManyProcesses(t *testing.T) {
	p := newPlace(t)
	s := p.Open(t, time.Now)
	tk := sallyport.Ticket{ID: "T", CallID: "k", Key: "k", Binding: binding(`{}`), Hash: binding(`{}`).Hash()}
	key := beginOf("k", "").Key
	if _, err := s.Open(t.Context(), tk, key, "f", sallyport.Entry{Tenant: "t", Kind: sallyport.EntryTicket, Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decide(t.Context(), "t", sallyport.Decision{Ticket: "T", Approve: true, By: "ada"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	s.Close()
	got := race(t, p, 5, func(i int) []string {
		var calls []string
		for j := range 5 {
			calls = append(calls, "k/T", fmt.Sprintf("other%d%d/T", i, j))
		}
		return calls
	})
	if got["executed"] != 1 || got["executed"]+got["in_flight"]+got["conflict"] != 50 {
		t.Errorf("%v, want one execution of 50", got)
	}
	checkIntents(t, p, 1)
}

// The control: fifty calls with a key each all execute, so the race above does
// reach the database.
func TestTO24_Control(t *testing.T) {
	p := newPlace(t)
	got := race(t, p, 5, func(i int) []string {
		var calls []string
		for j := range 10 {
			calls = append(calls, fmt.Sprintf("k%d-%d/", i, j))
		}
		return calls
	})
	if got["executed"] != 50 {
		t.Errorf("%v, want 50 executions", got)
	}
	checkIntents(t, p, 50)
}

func checkIntents(t *testing.T, p *place, want int) {
	t.Helper()
	s, err := sqlite.OpenReadOnly(p.db())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := audit.Search(t.Context(), s, audit.Filter{Kind: sallyport.EntryIntent}, 1000)
	if err != nil || len(rows) != want {
		t.Errorf("%d intents in the log, %v; want %d", len(rows), err, want)
	}
	if rep := verify(t, p, p.Heads(t)); !rep.OK() {
		t.Error(rep.Problems)
	}
}

// hold takes a key, waits for a word, and then says how the call ended.
func hold(dir string) error {
	s, err := openAgain(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	b := beginOf("held", "")
	b.Lease = time.Second
	fence, err := s.Begin(context.Background(), b)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	err = s.Finish(context.Background(), gateway.Finish{Key: b.Key, Fence: fence, State: sallyport.Done, Output: json.RawMessage(`{"content":[]}`),
		Outcome: sallyport.Entry{Tenant: "t", Kind: sallyport.EntryOutcome, CallID: "held", Payload: []byte("{}")}})
	if err == nil {
		fmt.Println("recorded")
		return nil
	}
	fmt.Println(sallyport.CodeOf(err))
	return nil
}

func openAgain(dir string) (*sqlite.Store, error) {
	key, err := audit.LoadKey(dir)
	if err != nil {
		return nil, err
	}
	box, err := secret.OpenRows(dir)
	if err != nil {
		return nil, err
	}
	return (&place{dir: dir, key: key, box: box}).open(time.Now)
}

// TO-37: an owner that is paused beyond its lease, and then goes on, records
// nothing. The control is not paused.
func TestTO37_PausedOwner(t *testing.T) {
	for _, paused := range []bool{true, false} {
		t.Run(fmt.Sprintf("paused=%v", paused), func(t *testing.T) {
			p := newPlace(t)
			s := p.Open(t, time.Now)
			defer s.Close()
			cmd := osexec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "SALLYPORT_TEST_HOLD="+p.dir)
			cmd.Stderr = os.Stderr
			in, err1 := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			if err := errors.Join(err1, err2, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "begun" {
				t.Fatalf("the owner said %q", lines.Text())
			}
			want, state := "recorded", sallyport.Done
			if paused {
				want, state = string(sallyport.Conflict), sallyport.Unknown
				if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
					r, err := s.Find(t.Context(), beginOf("held", "").Key)
					if err != nil || r == nil || time.Now().After(deadline) {
						t.Fatalf("%+v, %v", r, err)
					}
					if r.State == sallyport.Unknown {
						break
					}
				}
				if _, err := s.Begin(t.Context(), beginOf("held", "")); sallyport.CodeOf(err) != sallyport.OutcomeUnknown {
					t.Errorf("somebody else's Begin: %v", err)
				}
				if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.WriteString(in, "go on\n"); err != nil {
				t.Fatal(err)
			}
			if !lines.Scan() || lines.Text() != want {
				t.Errorf("the owner's Finish: %q, want %q", lines.Text(), want)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if r, err := s.Find(t.Context(), beginOf("held", "").Key); err != nil || r.State != state {
				t.Errorf("afterwards: %+v, %v; want %s", r, err, state)
			}
			if _, err := s.Begin(t.Context(), beginOf("held", "")); err == nil {
				t.Error("the key could be taken again")
			}
		})
	}
}
