package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/demo"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/tier/realtest"
)

// breaks take one protection each away from a gateway. The demo must notice.
var breaks = map[string]func(*gateway.Gateway){
	"network":          func(g *gateway.Gateway) { g.Backends["sandbox"] = leaky{g.Backends["sandbox"]} },
	"approval":         func(g *gateway.Gateway) { g.Assessor = trusting{} },
	"masking":          func(g *gateway.Gateway) { g.Sanitiser = transparent{g.Sanitiser} },
	"single-execution": func(g *gateway.Gateway) { g.Ledger = forgetful{g.Ledger} },
}

// A leaky sandbox reaches the network: the download that the code tries is made.
type leaky struct{ sallyport.Backend }

func (l leaky) Run(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	var in struct{ Address string }
	if err := json.Unmarshal(job.Args, &in); err != nil {
		return sallyport.Output{}, err
	}
	resp, err := http.Get("http://" + in.Address + "/x.sh")
	if err != nil {
		return sallyport.Output{}, err
	}
	resp.Body.Close()
	return l.Backend.Run(ctx, job)
}

// A trusting assessor finds everything harmless.
type trusting struct{}

func (trusting) Assess(context.Context, sallyport.Tool, json.RawMessage) sallyport.Risk {
	return sallyport.Risk{Level: sallyport.Low}
}

// A transparent sanitiser lets results through as they are.
type transparent struct{ gateway.Sanitiser }

func (transparent) Result(_ string, _ sallyport.Tool, out sallyport.Output) (json.RawMessage, bool, []string, error) {
	return out.Content, out.IsError, nil, nil
}

// A forgetful ledger knows no earlier execution, and no ticket as used.
type forgetful struct{ gateway.Ledger }

func (forgetful) Find(context.Context, sallyport.ReservationKey) (*sallyport.Reservation, error) {
	return nil, nil
}

func (f forgetful) Ticket(ctx context.Context, tenant, id string) (sallyport.Ticket, error) {
	t, err := f.Ledger.Ticket(ctx, tenant, id)
	if t.State == sallyport.TicketConsumed {
		t.State = sallyport.TicketApproved
	}
	return t, err
}

// Open takes a used key for a fresh one that is approved already.
func (f forgetful) Open(ctx context.Context, t sallyport.Ticket, key sallyport.ReservationKey, fingerprint string, e sallyport.Entry) (sallyport.Ticket, error) {
	opened, err := f.Ledger.Open(ctx, t, key, fingerprint, e)
	if err != nil {
		t.State = sallyport.TicketApproved
		return t, nil
	}
	return opened, nil
}

const noFence = -1

func (f forgetful) Begin(ctx context.Context, b gateway.Begin) (int64, error) {
	fence, err := f.Ledger.Begin(ctx, b)
	if err != nil {
		return noFence, nil
	}
	return fence, nil
}

func (f forgetful) Finish(ctx context.Context, x gateway.Finish) error {
	if x.Fence == noFence {
		return nil
	}
	return f.Ledger.Finish(ctx, x)
}

// A played demo is what it printed and how it ended.
type played struct {
	output string
	code   int
}

func (p played) fails() (lines []string) {
	for l := range strings.Lines(p.output) {
		if strings.Contains(l, "FAIL ") {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	return lines
}

// play runs `sallyport demo` with one protection taken away, or none.
func play(t *testing.T, broken string) played {
	t.Helper()
	realtest.Images(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(install(t), "sallyport"), "demo")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), envBreak+"="+broken)
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	return played{string(out), cmd.ProcessState.ExitCode()}
}

// Two demos at once, each with a gateway of its own: both pass.
func TestDemo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := play(t, "")
			if f := p.fails(); p.code != 0 || len(f) > 0 {
				t.Errorf("exit %d, %q", p.code, f)
			}
			if ok := strings.Count(p.output, "  ok   "); ok < 19 {
				t.Errorf("only %d expectations", ok)
			}
		})
	}
}

// With one protection taken away the demo fails, and says which.
func TestDemoNotices(t *testing.T) {
	t.Parallel()
	for broken, want := range map[string]string{
		"network":          `^FAIL the canary saw no download, no exfiltration, no connection$`,
		"approval":         `^FAIL stopped: a human must decide$`,
		"masking":          `^FAIL the password of postgres://.* comes out masked$`,
		"single-execution": `^FAIL approved, then asked for three times: it ran exactly once \(the ledger counts 3, 0 were replays\)$`,
	} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			p := play(t, broken)
			f := p.fails()
			if p.code != 1 || len(f) == 0 || !regexp.MustCompile(want).MatchString(f[0]) {
				t.Fatalf("exit %d, failed: %q; want exit 1 and %s", p.code, f, want)
			}
			if broken != "approval" && len(f) > 1 {
				t.Errorf("more than one expectation failed: %q", f)
			}
		})
	}
	t.Run("audit", func(t *testing.T) { t.Parallel(); noticesAudit(t) })
}

// noticesAudit alters one row of the record before it is verified.
func noticesAudit(t *testing.T) {
	realtest.Images(t)
	self := []string{filepath.Join(install(t), "sallyport")}
	var out bytes.Buffer
	err := demo.Run(t.Context(), demo.Options{
		Self: self, ToolServer: append(self, "demo", "sql-server"), Out: &out,
		BeforeVerify: func(data string) error {
			db, err := sql.Open("sqlite", filepath.Join(data, "sallyport.db"))
			if err != nil {
				return err
			}
			defer db.Close()
			r, err := db.ExecContext(t.Context(), `UPDATE audit_payloads SET payload = replace(payload, 'rejected', 'approved')`)
			if err != nil {
				return err
			}
			if n, err := r.RowsAffected(); err != nil || n == 0 {
				return errors.Join(err, errors.New("nothing was altered"))
			}
			return nil
		},
	})
	t.Logf("%s", out.String())
	p := played{output: out.String()}
	if f := p.fails(); !errors.Is(err, demo.ErrFailed) || len(f) != 1 || f[0] != "FAIL the audit log verifies" {
		t.Errorf("%v, failed: %q", err, f)
	}
}
