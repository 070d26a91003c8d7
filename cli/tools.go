package cli

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

func (a *App) toolsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tools", Short: "List, show, compare, release and lint tools"}
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List every tool, its status, and what to be wary of", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.tools(cmd)
			if err != nil {
				return err
			}
			return a.Show(map[string]any{"tools": list}, func() error {
				var rows [][]string
				for _, t := range list {
					rows = append(rows, []string{t.Name, t.Version, cmp.Or(t.Server, t.Backend), standing(t), remark(t)})
				}
				return a.Table("NAME VERSION FROM STATUS DESCRIPTION", rows)
			})
		}},
		&cobra.Command{Use: "show NAME", Short: "Show one tool with its definition", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var t adminapi.ToolInfo
			if err := a.API(cmd.Context(), "GET", "/tools/"+url.PathEscape(args[0]), nil, &t); err != nil {
				return err
			}
			return a.Print(t)
		}},
		&cobra.Command{Use: "diff NAME", Short: "Show what changed in a quarantined tool, and whether its callers are still served", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var d adminapi.ToolDiff
			if err := a.API(cmd.Context(), "GET", "/tools/"+url.PathEscape(args[0])+"/diff", nil, &d); err != nil {
				return err
			}
			return a.Show(d, func() error { return a.showDiff(args[0], d) })
		}},
		a.toolsApprove(),
		a.toolsLint(),
	)
	return cmd
}

func (a *App) tools(cmd *cobra.Command) ([]adminapi.ToolInfo, error) {
	var out struct {
		Tools []adminapi.ToolInfo `json:"tools"`
	}
	err := a.API(cmd.Context(), "GET", "/tools", nil, &out)
	return out.Tools, err
}

// standing is a tool's status, or that it works but is to be looked at.
func standing(t adminapi.ToolInfo) string {
	if t.Status == sallyport.ToolActive && len(t.Remarks) > 0 {
		return "flagged"
	}
	return string(t.Status)
}

// remark is the most important thing to say of a tool in one line.
func remark(t adminapi.ToolInfo) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Deprecated != "":
		return t.Deprecated
	}
	return firstLine(t.Description)
}

func (a *App) toolsApprove() *cobra.Command {
	var in struct {
		Digest string `json:"digest"`
	}
	cmd := &cobra.Command{Use: "approve NAME", Short: "Release a quarantined tool as it is now", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.Did(cmd, "POST", "/tools/"+url.PathEscape(args[0])+"/approve", in, "released "+args[0])
	}}
	cmd.Flags().StringVar(&in.Digest, "digest", "", "release only what `tools diff` showed with this digest")
	return cmd
}

func (a *App) showDiff(name string, d adminapi.ToolDiff) error {
	line := func(format string, args ...any) { fmt.Fprintln(a.Out, visible.String(fmt.Sprintf(format, args...))) }
	switch {
	case d.Version == "":
		line("%s was never released; it would be version %s", name, d.Next)
	case d.Diff == "":
		line("%s %s: nothing has changed since it was released", name, d.Version)
	default:
		line("%s %s -> %s: %s", name, d.Version, d.Next, d.Change)
	}
	for _, r := range d.Reasons {
		line("  %s: %s", d.Change, r)
	}
	for _, r := range d.Remarks {
		line("  flagged: %s", r)
	}
	if d.Diff != "" {
		fmt.Fprint(a.Out, visible.String(d.Diff))
		line("release exactly this: sallyport tools approve %s --digest %s", name, d.Digest)
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "…"
	}
	return s
}
