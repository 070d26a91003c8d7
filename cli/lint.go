package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/lint"
	"sallyport.dev/sallyport/redact/visible"
)

// A lintProblem is a problem and where it is.
type lintProblem struct {
	File string `json:"file"`
	lint.Problem
}

func (a *App) toolsLint() *cobra.Command {
	return &cobra.Command{
		Use: "lint [FILE…]", Short: "Judge tool manifests: descriptions, types, bounds, what is required; works offline",
		Long: "Judge how well tool manifests describe their tools. Without a file, those of the data folder. Ends with 2 if there is something to improve.",
		RunE: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				var err error
				if files, err = filepath.Glob(filepath.Join(a.Data, "tools", "*.yaml")); err != nil {
					return err
				}
			}
			problems := []lintProblem{}
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
				for _, p := range lint.Check(m.Described()) {
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

func (a *App) showLint(files int, problems []lintProblem) error {
	err := a.Show(map[string]any{"files": files, "problems": problems}, func() error {
		for _, p := range problems {
			fmt.Fprintf(a.Out, "%s: %s: %s\n    %s\n", visible.String(p.File), visible.String(or(p.Path, "input_schema")), visible.String(p.What), visible.String(p.Hint))
		}
		_, err := fmt.Fprintf(a.Out, "manifests: %d, problems: %d\n", files, len(problems))
		return err
	})
	if err == nil && len(problems) > 0 {
		return Exit(ExitUsage)
	}
	return err
}
