package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
)

func (a *App) callCommand() *cobra.Command {
	var c adminapi.Call
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "call TOOL [JSON|-]", Short: "Call a tool as an agent",
		Long:    "Call a tool as an agent, along the whole path. JSON is the arguments; - reads them from standard input.",
		Example: `  sallyport call run_python '{"code":"print(6*7)"}'`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.TypedCall(&c, args); err != nil {
				return err
			}
			if cmd.Flags().Changed("key") {
				if err := sallyport.CheckKey(c.Key); err != nil {
					return err
				}
			}
			c.Wait = wait.Seconds()
			var res adminapi.CallResult
			if err := a.API(cmd.Context(), "POST", "/calls", c, &res); err != nil {
				return err
			}
			if err := a.Show(res, func() error { return a.showResult(res) }); err != nil {
				return err
			}
			if res.IsError && waits(res.Result) {
				return Exit(ExitPending)
			}
			if res.IsError {
				return Exit(ExitTool)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Agent, "agent", "", "agent to call as (default: the one that init made)")
	f.StringVar(&c.Key, "key", "", "idempotency key: the same key and arguments never act twice")
	f.StringVar(&c.Ticket, "ticket", "", "resume the call that waits for this ticket")
	f.StringVar(&c.Profile, "profile", "", "profile to call through")
	f.DurationVar(&wait, "wait", 0, "how long to wait for a human, such as 5m")
	return cmd
}

// TypedCall fills in a call from TOOL [JSON|-]. The arguments are read as strictly
// as at the agents' door, before anything is sent.
func (a *App) TypedCall(c *adminapi.Call, args []string) (err error) {
	c.Tool, c.Args = args[0], json.RawMessage("{}")
	if len(args) == 2 {
		b, err := a.Argument(args[1])
		if err != nil {
			return err
		}
		if c.Args, err = Object(b, "arguments", exampleArgs); err != nil {
			return err
		}
	}
	c.Agent, err = a.AgentOr(c.Agent)
	return err
}

const exampleArgs = `{"code":"print(1)"}`

// Object is sallyport.Canonical for what a person typed, such as "arguments".
func Object(b []byte, what, example string) (json.RawMessage, error) {
	c, err := sallyport.Canonical(b)
	if err != nil {
		err = &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Validate, Message: strings.Replace(err.Error(), "arguments", what, 1),
			Hint: fmt.Sprintf("the %s are one JSON object, such as '%s'", what, example)}
	}
	return c, err
}

// Argument reads a value given on the command line, or - from standard input.
func (a *App) Argument(s string) ([]byte, error) {
	if s != "-" {
		return []byte(s), nil
	}
	b, err := io.ReadAll(io.LimitReader(a.In, adminapi.MaxBody+1))
	if err == nil && len(b) > adminapi.MaxBody {
		err = fmt.Errorf("standard input is larger than %d bytes", adminapi.MaxBody)
	}
	return b, err
}

// AgentOr is the given agent, or the one that init made.
func (a *App) AgentOr(id string) (string, error) {
	if id != "" {
		return id, nil
	}
	if !exists(a.Data) {
		return "", &sallyport.Error{Code: sallyport.Unavailable, Message: "there is no data folder " + a.Data,
			Hint: "make one with `sallyport init`, or name another with --data or $SALLYPORT_DATA"}
	}
	path := filepath.Join(a.Data, "agents", "default")
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("which agent? %s cannot be read: %v", path, errors.Unwrap(err)),
			Hint: "give --agent"}
	}
	return strings.TrimSpace(string(b)), nil
}

func (a *App) tokenCommand() *cobra.Command {
	var agent, profile string
	cmd := &cobra.Command{
		Use: "token", Short: "Print a short-lived bearer token of an agent", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := a.AgentOr(agent)
			if err != nil {
				return err
			}
			var t struct {
				Token   string    `json:"token"`
				Expires time.Time `json:"expires"`
			}
			if err := a.API(cmd.Context(), "POST", "/tokens", map[string]string{"agent": id, "profile": profile}, &t); err != nil {
				return err
			}
			return a.Show(t, func() error { _, err := fmt.Fprintln(a.Out, t.Token); return err })
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "agent to act as (default: the one that init made)")
	cmd.Flags().StringVar(&profile, "profile", "", "profile that it is for, at /mcp/PROFILE (default: /mcp)")
	return cmd
}

func (a *App) loginCommand() *cobra.Command {
	var name string
	var stdin bool
	cmd := &cobra.Command{
		Use: "login", Short: "Log a human in, for this terminal session and 10 minutes", Args: cobra.NoArgs,
		Long: "Log a human in. Nothing is stored on disk: the gateway remembers this user and POSIX session for 10 minutes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			password, err := a.password(stdin)
			if err != nil {
				return err
			}
			var out struct {
				Name    string    `json:"name"`
				Expires time.Time `json:"expires"`
			}
			if err := a.API(cmd.Context(), "POST", "/login", map[string]string{"name": name, "password": password}, &out); err != nil {
				return err
			}
			return a.Show(out, func() error {
				_, err := fmt.Fprintf(a.Out, "logged in as %s until %s\n", out.Name, out.Expires.Local().Format("15:04:05"))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "admin", "name of the admin")
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from standard input")
	return cmd
}

func (a *App) password(stdin bool) (string, error) {
	if stdin {
		b, err := io.ReadAll(io.LimitReader(a.In, 4096))
		return strings.TrimRight(string(b), "\r\n"), err
	}
	f, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return "", errors.New("no terminal to ask for the password on: use --password-stdin")
	}
	fmt.Fprint(a.Err, "Password: ")
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(a.Err)
	return string(b), err
}
