package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/proc"
	"sallyport.dev/sallyport/test/stage"
)

// envCaller makes this program a client of its own: it makes many calls at once
// when a line comes in, and prints what came of each.
const envCaller = "CONFORMANCE_CALLER"

// An order is what a caller does; Metas has one entry for each call.
type order struct {
	URL, Token, Tool, Args string
	Metas                  []string
}

func callMany() {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(envCaller)), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c := raw{url: o.URL, token: o.Token}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(1)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, meta := range o.Metas {
		wg.Go(func() {
			a, err := c.call(fmt.Sprint(i), o.Tool, o.Args, meta)
			line := string(a.Result)
			if err != nil || a.Result == nil {
				line = fmt.Sprintf("failed: %v %v", a, err)
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Println(line)
		})
	}
	wg.Wait()
}

// together runs one caller for each order, lets them go at the same moment, and
// returns the answers of all.
func together(t *testing.T, orders ...order) (all []answer) {
	t.Helper()
	type caller struct {
		cmd *exec.Cmd
		in  interface{ Write([]byte) (int, error) }
		out *bufio.Scanner
	}
	var callers []caller
	for _, o := range orders {
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), envCaller+"="+string(b))
		cmd.Stderr = os.Stderr
		in, out := proc.Start(t, cmd)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		if !lines.Scan() || lines.Text() != "ready" {
			t.Fatalf("the caller said %q", lines.Text())
		}
		callers = append(callers, caller{cmd, in, lines})
	}
	for _, c := range callers {
		if _, err := c.in.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range callers {
		for c.out.Scan() {
			a, err := parse([]byte(`{"result":` + c.out.Text() + `}`))
			if err != nil {
				t.Errorf("a call %s", c.out.Text())
				continue
			}
			all = append(all, a)
		}
		if err := c.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	return all
}

func keyed(key string) string   { return `"dev.sallyport/idempotencyKey":` + str(key) }
func ticketed(id string) string { return `"dev.sallyport/ticket":` + str(id) }
func repeat(meta string, n int) []string {
	return strings.Split(strings.TrimSuffix(strings.Repeat(meta+"\n", n), "\n"), "\n")
}

// ticketFor makes a call that needs a human, and returns its ticket.
func ticketFor(t *testing.T, c raw, tool, args, meta string) string {
	t.Helper()
	a := c.must(t, tool, args, meta)
	if a.Code != "approval_pending" || a.Ticket == "" {
		t.Fatalf("%s %s does not wait for a human: %s", tool, args, a)
	}
	return a.Ticket
}

// ledgered is a gateway with an actor "a" that tells a ledger.
func ledgered(t *testing.T, more string) (*stage.Gateway, *stage.Ledger) {
	t.Helper()
	g, l := stage.New(t), stage.NewLedger(t)
	g.Write("sallyport.yaml", g.Config(roomy+more+stage.Servers(map[string]stage.Server{"a": stage.Actor(stage.Self(t), "a", l.Env())})))
	g.Manifests("a")
	g.Start("a")
	return g, l
}
