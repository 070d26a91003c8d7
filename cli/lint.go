package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/lint"
	"sallyport.dev/sallyport/catalog/suspect"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/wire"
)

// A lintProblem is a problem and where it is.
type lintProblem struct {
	File string `json:"file"`
	lint.Problem
}

func (a *App) toolsLint() *cobra.Command {
	return &cobra.Command{
		Use: "lint [FILE…]", Short: "Judge tool manifests: descriptions, types, bounds, what is required; works offline",
		Long: "Judge how well tool manifests describe their tools. Without a file, those of the data folder, and of a gateway that runs " +
			"the tools of its servers that are quarantined or that one should be wary of. Ends with 2 if there is something to improve.",
		RunE: func(cmd *cobra.Command, files []string) error {
			problems := []lintProblem{}
			if len(files) == 0 {
				var err error
				if files, err = filepath.Glob(filepath.Join(a.Data, "tools", "*.yaml")); err != nil {
					return err
				}
				problems = append(problems, a.lintServers(cmd)...)
			}
			var all []catalog.Manifest
			for _, f := range files {
				src, err := os.ReadFile(f)
				if err != nil {
					return err
				}
				m, err := catalog.ParseManifest(f, src)
				if err != nil {
					return err
				}
				all = append(all, m)
				if m.Language == "" {
					continue // the definition is the server's
				}
				for _, p := range append(lint.Check(m.Described()), wary(m)...) {
					problems = append(problems, lintProblem{f, p})
				}
			}
			// What a gateway would refuse at start.
			if _, err := catalog.New(catalog.Options{Manifests: all}); err != nil {
				return err
			}
			return a.showLint(len(files), problems)
		},
	}
}

// wary judges what a manifest says to the model.
func wary(m catalog.Manifest) (out []lint.Problem) {
	text := wire.AppendString([]byte(`{"description":`), m.Description)
	if m.InputSchema != nil {
		text = append(append(text, `,"inputSchema":`...), m.InputSchema...)
	}
	own := func(word string) bool { return word == m.Name }
	for _, f := range (suspect.Judge{}).Look(m.Name, append(text, '}'), "", own) {
		out = append(out, lint.Problem{Path: f.Where, What: f.What, Hint: "say what the tool does, to whoever reads it"})
	}
	return out
}

// lintServers asks a gateway, if one runs, which tools of servers one should be
// wary of.
func (a *App) lintServers(cmd *cobra.Command) (out []lintProblem) {
	list, err := a.tools(cmd)
	if err != nil {
		return nil // manifests are judged offline
	}
	for _, t := range list {
		if t.Status == sallyport.ToolQuarantined {
			hint := "look at it with `sallyport tools diff " + t.Name + "`, then `tools approve` it, or remove its server"
			if t.Backend == "sandbox" { // of a manifest, which says itself what is meant
				hint = "correct its manifest, then run `sallyport policy reload`"
			}
			out = append(out, lintProblem{t.Name, lint.Problem{Path: "quarantined", What: t.Reason, Hint: hint}})
		}
		for _, r := range t.Remarks {
			out = append(out, lintProblem{t.Name, lint.Problem{Path: "flagged", What: r, Hint: "look at it with `sallyport tools show " + t.Name + "`: is it what you expect of its server?"}})
		}
	}
	return out
}

func (a *App) showLint(files int, problems []lintProblem) error {
	err := a.Show(map[string]any{"files": files, "problems": problems}, func() error {
		for _, p := range problems {
			fmt.Fprintf(a.Out, "%s: %s: %s\n    %s\n", visible.String(p.File), visible.String(cmp.Or(p.Path, "input_schema")), visible.String(p.What), visible.String(p.Hint))
		}
		_, err := fmt.Fprintf(a.Out, "manifests: %d, problems: %d\n", files, len(problems))
		return err
	})
	if err == nil && len(problems) > 0 {
		return Exit(ExitUsage)
	}
	return err
}
