package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

// Did makes a change and says so.
func (a *App) Did(cmd *cobra.Command, method, path string, in any, done string) error {
	if err := a.API(cmd.Context(), method, path, in, nil); err != nil {
		return err
	}
	return a.Show(map[string]bool{"ok": true}, func() error { _, err := fmt.Fprintln(a.Out, visible.String(done)); return err })
}

func (a *App) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agents", Short: "Add, list, rotate, suspend and revoke agents"}
	var roles []string
	add := &cobra.Command{Use: "add ID", Short: "Add an agent; its secret is shown once", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var out adminapi.AgentSecret
		if err := a.API(cmd.Context(), "POST", "/agents", map[string]any{"id": args[0], "roles": roles}, &out); err != nil {
			return err
		}
		return a.Show(out, func() error { return a.showAgent(out, "added") })
	}}
	add.Flags().StringSliceVar(&roles, "role", []string{"agent"}, "roles of the agent")
	cmd.AddCommand(add, &cobra.Command{Use: "list", Short: "List the agents", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Agents []sallyport.Agent `json:"agents"`
		}
		if err := a.API(cmd.Context(), "GET", "/agents", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, g := range out.Agents {
				rows = append(rows, []string{g.ID, g.State, strings.Join(g.Roles, ","), g.CreatedAt.Format(time.RFC3339)})
			}
			return a.Table("ID STATE ROLES CREATED", rows)
		})
	}})
	for _, change := range []struct{ verb, short, done string }{
		{"rotate", "Give an agent a new secret; the old one and its tokens end at once", "rotated"},
		{"suspend", "Stop an agent at once, until resumed", "suspended"},
		{"resume", "Let a suspended agent call again", "resumed"},
		{"revoke", "End an agent for good", "revoked"},
	} {
		cmd.AddCommand(&cobra.Command{Use: change.verb + " ID", Short: change.short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var out adminapi.AgentSecret
			if err := a.API(cmd.Context(), "POST", "/agents/"+url.PathEscape(args[0])+"/"+change.verb, struct{}{}, &out); err != nil {
				return err
			}
			return a.Show(out, func() error { return a.showAgent(out, change.done) })
		}})
	}
	return cmd
}

func (a *App) showAgent(s adminapi.AgentSecret, done string) error {
	fmt.Fprintf(a.Out, "agent %s: %s\n", visible.String(s.ID), done)
	if s.Secret != "" {
		fmt.Fprintf(a.Out, "client secret (shown once): %s\n", s.Secret)
	}
	return nil
}

func (a *App) reservationsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "reservations", Short: "See what idempotency remembers; settle unknown outcomes"}
	var state string
	list := &cobra.Command{Use: "list", Short: "List reservations", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Reservations []sallyport.Reservation `json:"reservations"`
		}
		if err := a.API(cmd.Context(), "GET", "/reservations?state="+url.QueryEscape(state), nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error {
			var rows [][]string
			for _, r := range out.Reservations {
				rows = append(rows, []string{r.Principal, r.Tool, r.Key, string(r.State), r.CallID, r.UpdatedAt.Format(time.RFC3339)})
			}
			return a.Table("AGENT TOOL KEY STATE CALL UPDATED", rows)
		})
	}}
	list.Flags().StringVar(&state, "state", "", "only this state, such as unknown")
	var in struct {
		Principal string `json:"principal"`
		Tool      string `json:"tool"`
		Key       string `json:"key"`
		Call      string `json:"call,omitempty"`
		State     string `json:"state"`
		Reason    string `json:"reason"`

		Result json.RawMessage `json:"result,omitempty"`
	}
	var result string
	resolve := &cobra.Command{Use: "resolve AGENT TOOL KEY done|failed", Short: "Say how a call of unknown outcome ended", Args: cobra.ExactArgs(4), RunE: func(cmd *cobra.Command, args []string) error {
		in.Principal, in.Tool, in.Key, in.State = args[0], args[1], args[2], args[3]
		if result != "" {
			b, err := a.Argument(result)
			if err == nil {
				in.Result, err = Object(b, "contents of --result", `{"content":[{"type":"text","text":"paid"}]}`)
			}
			if err != nil {
				return err
			}
		}
		return a.Did(cmd, "POST", "/reservations/resolve", in, "resolved as "+in.State)
	}}
	resolve.Flags().StringVar(&in.Reason, "reason", "", "how you know (required)")
	resolve.Flags().StringVar(&in.Call, "call", "", "the call that you looked at, where the key was used for more than one")
	resolve.Flags().StringVar(&result, "result", "", "what a repeated call gets: the tool's result as JSON, or - for standard input")
	cmd.AddCommand(list, resolve)
	return cmd
}

func (a *App) secretsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "secrets", Short: "Set, list and remove secrets; values are never shown"}
	cmd.AddCommand(
		&cobra.Command{Use: "set NAME", Short: "Set a secret; the value is read from standard input", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			value, err := a.Argument("-")
			if err != nil {
				return err
			}
			v := strings.TrimSuffix(string(value), "\n")
			if v == "" {
				return errors.New("the value is empty: pipe it in, as in printf %s \"$VALUE\" | sallyport secrets set NAME")
			}
			return a.Did(cmd, "PUT", "/secrets/"+url.PathEscape(args[0]), map[string]string{"value": v}, "set "+args[0])
		}},
		&cobra.Command{Use: "list", Short: "List the names", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			var out struct {
				Names []string `json:"names"`
			}
			if err := a.API(cmd.Context(), "GET", "/secrets", nil, &out); err != nil {
				return err
			}
			return a.Show(out, func() error {
				for _, n := range out.Names {
					fmt.Fprintln(a.Out, n)
				}
				return nil
			})
		}},
		&cobra.Command{Use: "rm NAME", Short: "Remove a secret", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return a.Did(cmd, "DELETE", "/secrets/"+url.PathEscape(args[0]), nil, "removed "+args[0])
		}},
	)
	return cmd
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "…"
	}
	return s
}
