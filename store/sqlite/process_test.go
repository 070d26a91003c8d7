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
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/gateway"
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
	key, err := audit.LoadKey(dir)
	if err != nil {
		return err
	}
	s, err := (&place{dir: dir, key: key}).open(time.Now)
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
