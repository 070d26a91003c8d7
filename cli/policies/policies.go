// Package policies has the commands that check, test and explain policies.
package policies

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/redact/visible"
)

type app struct{ *cli.App }

// Command is `sallyport policy`.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	cmd := &cobra.Command{Use: "policy", Short: "Check and test the policies, and explain what they decide"}
	cmd.AddCommand(a.explain(), a.test(), &cobra.Command{
		Use: "reload", Short: "Have the gateway read the policies and the tools' manifests again, all or none of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.API(cmd.Context(), "POST", "/policies/reload", struct{}{}, nil); err != nil {
				return err
			}
			return a.Show(map[string]bool{"ok": true}, func() error {
				_, err := fmt.Fprintln(a.Out, "the policies and manifests are read again")
				return err
			})
		},
	}, &cobra.Command{
		Use: "check [DIR]", Short: "Check policies against the schema; works offline", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := filepath.Join(a.Data, "policies")
			if len(args) == 1 {
				dir = args[0]
			}
			problems := cedar.Check(dir)
			err := a.Show(map[string]any{"dir": dir, "problems": append([]cedar.Problem{}, problems...)}, func() error {
				for _, p := range problems {
					fmt.Fprintln(a.Out, visible.String(p.String()))
				}
				if len(problems) == 0 {
					fmt.Fprintf(a.Out, "%s: no problems\n", dir)
				}
				return nil
			})
			if err == nil && slices.ContainsFunc(problems, func(p cedar.Problem) bool { return !p.Warning }) {
				return cli.Exit(cli.ExitUsage)
			}
			return err
		},
	})
	return cmd
}

func (a app) explain() *cobra.Command {
	var c adminapi.Call
	cmd := &cobra.Command{
		Use: "explain TOOL [JSON|-]", Short: "Say how a call would be decided now, and why, without making it", Args: cobra.RangeArgs(1, 2),
		Example: `  sallyport policy explain run_shell '{"code":"ls"}' --agent reporter`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.TypedCall(&c, args); err != nil {
				return err
			}
			var x gateway.Explanation
			if err := a.API(cmd.Context(), "POST", "/policies/explain", c, &x); err != nil {
				return err
			}
			return a.Show(x, func() error { return a.showExplanation(x) })
		},
	}
	cmd.Flags().StringVar(&c.Agent, "agent", "", "agent that would call (default: the one that init made)")
	cmd.Flags().StringVar(&c.Profile, "profile", "", "profile that it would call through")
	return cmd
}

func (a app) showExplanation(x gateway.Explanation) error {
	line := func(name, text string) { fmt.Fprintf(a.Out, "%-9s %s\n", name, visible.String(text)) }
	line("call", x.Principal+" calls "+x.Tool)
	if x.Risk != nil {
		line("risk", strings.Join(append([]string{x.Risk.Level.String()}, x.Risk.Reasons...), "; "))
	}
	if x.Tier != "" {
		line("tier", x.Tier+": "+x.Why)
	}
	switch {
	case x.Refused != nil:
		line("decision", fmt.Sprintf("refused at step %s (%s): %s", x.Refused.Step, x.Refused.Code, x.Refused.Message))
		if x.Refused.Hint != "" {
			line("hint", x.Refused.Hint)
		}
	case len(x.Approval) > 0:
		line("decision", "a human must approve it")
		line("demanded", "by "+strings.Join(x.Approval, ", "))
		for _, d := range x.Demands {
			line("needs", d.String())
		}
	default:
		line("decision", "allowed")
	}
	if len(x.Policies) > 0 {
		line("policies", strings.Join(x.Policies, ", "))
	}
	if x.NoNetwork {
		line("network", "taken away by a policy")
	}
	return nil
}
