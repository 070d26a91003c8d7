package cli

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

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
