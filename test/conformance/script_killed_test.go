package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/stage"
)

// A gateway that is killed while a script runs, at each of its calls, and started
// again: the script is run again under its key, and nothing is done twice.
func TestCodeModeKilled(t *testing.T) {
	t.Parallel()
	points := []int{1, 4}
	if os.Getenv("SALLYPORT_SOAK") != "" {
		points = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	}
	g, l := ledgered(t, "approvals: {cooldown: 0s}\nidempotency: {lease: 1s}\n")
	c := newRaw(t, g)
	g.Login()
	for _, p := range points {
		tag := fmt.Sprint("point ", p)
		_, s := c.script(t, keyed(tag), five(tag, 300), []string{"a__*"})
		if p > 1 { // after the approval
			g.Must("", "approvals", "approve", s.Ticket)
		}
		go func() { _, _ = c.call("1", "run_javascript", string(mustArgs(five(tag, 300))), keyed(tag)) }()
		if p > 1 {
			want := []int{0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 3}[p]
			g.Eventually(stage.Patience, "the script is there", func() error {
				n := len(effects(t, l, tag)) - 1
				if n < want {
					return fmt.Errorf("%d effects", n)
				}
				return nil
			})
			time.Sleep(time.Duration(p%3) * 100 * time.Millisecond)
		}
		g.Kill()
		g.Start("a")
		g.Login()
		settled := false
		g.Eventually(stage.Patience, "the script comes to its end", func() error {
			a, s := c.script(t, keyed(tag), five(tag, 300), []string{"a__*"})
			switch {
			case !a.IsError && s.ExitCode == 0:
				return nil
			case s.Code == "approval_pending":
				g.Must("", "approvals", "approve", s.Ticket)
			default:
				settle(t, g, l, tag)
				settled = true
			}
			return fmt.Errorf("%s", a)
		})
		if got := effects(t, l, tag); fmt.Sprint(got) != "map[1:1 3:1 4:1 5:1]" {
			t.Errorf("killed at point %d (settled: %t): %v", p, settled, got)
		}
	}
	if r := g.Run("", "audit", "verify"); r.Code != 0 {
		t.Errorf("audit verify: %s", r)
	}
}

func mustArgs(code string) json.RawMessage {
	b, err := json.Marshal(map[string]any{"code": code, "tools": []string{"a__*"}})
	if err != nil {
		panic(err)
	}
	return b
}

// settle says of each call of unknown outcome what the ledger says.
func settle(t *testing.T, g *stage.Gateway, l *stage.Ledger, tag string) {
	t.Helper()
	var out struct {
		Reservations []struct {
			Principal, Tool, Key, State string
			CallID                      string `json:"call_id"`
		}
	}
	if err := json.Unmarshal([]byte(g.Must("", "reservations", "list", "--json").Out), &out); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Reservations {
		if r.State != "unknown" || !strings.HasPrefix(r.Key, "script_") {
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(strings.Split(r.Key, "/")[1], "%d", &n); err != nil {
			t.Fatal(err)
		}
		state := "failed"
		if effects(t, l, tag)[n] > 0 {
			state = "done"
		}
		t.Logf("call %d of %s: %s: %s", n, tag, state, g.Run("", "reservations", "resolve", r.Principal, r.Tool, r.Key, state, "--call", r.CallID, "--reason", "the ledger says so"))
	}
}
