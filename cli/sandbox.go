package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

func (a *App) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "Run a command in a sandbox; see sandboxes, sessions and images"}
	cmd.AddCommand(a.sandboxRun(), a.sandboxPS())
	return cmd
}

// sandboxRun passes the program's own status on: 128+n for a signal, and 125
// where Sallyport itself failed.
func (a *App) sandboxRun() *cobra.Command {
	var c adminapi.SandboxCommand
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "run [flags] -- CMD [ARG…]", Short: "Run a command in a sandbox and pass its status on", Args: cobra.MinimumNArgs(1),
		Annotations: map[string]string{ownStatus: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Argv, c.Timeout = args, timeout.Seconds()
			if f, ok := a.In.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
				b, err := io.ReadAll(io.LimitReader(f, adminapi.MaxBody/2))
				if err != nil {
					return a.sandboxFailed(err)
				}
				c.Stdin = b
			}
			var raw json.RawMessage
			if err := a.API(cmd.Context(), "POST", "/sandboxes", c, &raw); err != nil {
				return a.sandboxFailed(err)
			}
			var r adminapi.SandboxResult
			if err := json.Unmarshal(raw, &r); err != nil {
				return a.sandboxFailed(err)
			}
			if a.JSON {
				a.Print(raw)
			} else {
				_, _ = a.Out.Write(r.Stdout) // the user's own command: byte for byte
				_, _ = a.Err.Write(r.Stderr)
				for _, l := range r.LimitsHit {
					fmt.Fprintf(a.Err, "[limit hit: %s]\n", visible.String(l))
				}
				for _, c := range r.Connections {
					if !c.Allowed {
						reason := strings.Replace(c.Reason, "not_listed", "not_listed: --allow HOST:PORT lists it", 1)
						fmt.Fprintf(a.Err, "[not reached: %s (%s, %d×)]\n", visible.String(c.Target), visible.String(reason), c.Count)
					}
				}
				switch {
				case r.KilledBy != "":
					fmt.Fprintf(a.Err, "[killed: %s]\n", visible.String(r.KilledBy))
				case r.Signal != "": // else 137 could be the program's own
					fmt.Fprintf(a.Err, "[ended by %s]\n", visible.String(r.Signal))
				}
			}
			if r.ExitCode != 0 {
				return Exit(r.ExitCode)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Tier, "tier", "", "gvisor (default)")
	f.StringVar(&c.Image, "image", "", "name or digest of the image (default: default)")
	f.StringArrayVar(&c.Allow, "allow", nil, "HOST:PORT that the command may reach")
	f.DurationVar(&timeout, "timeout", 0, "end the command after this long (default and at most 30s)")
	return cmd
}

func (a *App) sandboxFailed(err error) error {
	a.Report(err)
	return Exit(ExitSandbox)
}

func (a *App) sandboxPS() *cobra.Command {
	return &cobra.Command{Use: "ps", Short: "List running sandboxes", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Sandboxes []adminapi.SandboxInfo `json:"sandboxes"`
		}
		if err := a.API(cmd.Context(), "GET", "/sandboxes", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, s := range out.Sandboxes {
				rows = append(rows, []string{s.ID, s.Tier, s.State, s.CallID, time.Since(s.Started).Round(time.Millisecond).String()})
			}
			return a.Table("SANDBOX TIER STATE CALL AGE", rows)
		})
	}}
}
