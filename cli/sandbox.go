package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/tier/choose"
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
	var files []string
	cmd := &cobra.Command{
		Use: "run [flags] -- CMD|FILE [ARG…]", Short: "Run a command in a sandbox and pass its status on", Args: cobra.MinimumNArgs(1),
		Long: "Runs a command of the image in a sandbox and passes its status on: 128+n for a signal, 125 where Sallyport itself failed.\n\n" +
			"With --tier isolate, FILE is a JavaScript program of this machine (.js, .mjs), with --tier wasm a WASI module (.wasm): it runs by itself, with its arguments, " +
			"standard input and what --file gives it. With --tier auto, the default, such a file gets that tier, and everything else gvisor, or microvm where gvisor cannot run.",
		Example:     "  sallyport sandbox run -- python3 -c 'print(6*7)'\n  sallyport sandbox run --tier isolate -- transform.js",
		Annotations: map[string]string{ownStatus: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Argv, c.Timeout = args, timeout.Seconds()
			if err := pack(&c, files); err != nil {
				return a.sandboxFailed(err)
			}
			if f, ok := a.In.(*os.File); ok && !term.IsTerminal(int(f.Fd())) {
				b, err := io.ReadAll(io.LimitReader(f, adminapi.MaxRun/2+1))
				if err == nil && len(b) > adminapi.MaxRun/2 {
					err = &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("standard input has more than the %d bytes that can be sent", adminapi.MaxRun/2), Hint: "pass less, or nothing: </dev/null"}
				}
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
				a.showRun(c, r)
			}
			if r.ExitCode != 0 {
				return Exit(r.ExitCode)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Tier, "tier", choose.Auto, "auto, or one of: "+strings.Join(sallyport.Tiers(), ", "))
	f.StringVar(&c.Image, "image", "", "name or digest of the image (default: default)")
	f.StringArrayVar(&c.Allow, "allow", nil, "HOST:PORT that the command may reach")
	f.StringArrayVar(&files, "file", nil, "file of this machine to put into the working folder, as NAME=PATH or by its own name; may repeat")
	f.DurationVar(&timeout, "timeout", 0, "end the command after this long (default and at most 30s)")
	return cmd
}

// showRun writes what a command wrote, and what else is to be known of its run.
func (a *App) showRun(c adminapi.SandboxCommand, r adminapi.SandboxResult) {
	_, _ = a.Out.Write(r.Stdout) // the user's own command: byte for byte
	_, _ = a.Err.Write(r.Stderr)
	if r.Tier == sallyport.TierMicroVM && c.Tier != r.Tier {
		fmt.Fprintf(a.Err, "[tier %s: %s]\n", r.Tier, visible.String(r.TierReason))
	}
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

// languages of the modules that a tier runs in the place of programs.
var languages = map[string]string{sallyport.TierIsolate: "javascript", sallyport.TierWasm: "wasm"}

// moduleTiers are the tiers of files by how their names end.
var moduleTiers = map[string]string{".js": sallyport.TierIsolate, ".mjs": sallyport.TierIsolate, ".wasm": sallyport.TierWasm}

// pack reads what of this machine goes into the sandbox.
func pack(c *adminapi.SandboxCommand, files []string) error {
	tier := c.Tier
	if all := append([]string{choose.Auto}, sallyport.Tiers()...); tier != "" && !slices.Contains(all, tier) {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("there is no tier %.40q", tier), Hint: "one of " + strings.Join(all, ", ")}
	}
	if tier == choose.Auto || tier == "" {
		if info, err := os.Stat(c.Argv[0]); err == nil && info.Mode().IsRegular() {
			tier = moduleTiers[filepath.Ext(c.Argv[0])]
		}
	}
	if language := languages[tier]; language != "" {
		code, err := readFor(c.Argv[0], "with --tier "+tier+", a "+language+" file of this machine runs: sallyport sandbox run --tier "+tier+" -- FILE [ARG…]")
		if err != nil {
			return err
		}
		c.Module = &adminapi.SandboxModule{Language: language, Code: code}
		c.Argv = append([]string{filepath.Base(c.Argv[0])}, c.Argv[1:]...)
	}
	for _, f := range files {
		name, path, named := strings.Cut(f, "=")
		if !named {
			name, path = filepath.Base(f), f
		}
		content, err := readFor(path, "--file NAME=PATH names a file of this machine, which gets into the working folder as NAME")
		if err != nil {
			return err
		}
		if c.Files == nil {
			c.Files = map[string][]byte{}
		}
		c.Files[name] = content
	}
	return nil
}

func readFor(path, hint string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > adminapi.MaxRun/2 {
		err = fmt.Errorf("%s has %d bytes; at most %d can be sent", path, len(b), adminapi.MaxRun/2)
	}
	if err != nil {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: err.Error(), Hint: hint}
	}
	return b, nil
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
