package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/hashed"
	"sallyport.dev/sallyport/redact/visible"
)

// released is the version of this program, by its own build.
func released() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" {
		return "unreleased"
	}
	return cmp.Or(info.Main.Version, "unreleased")
}

func (a *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build this is, and what its sandboxes stand on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sum, err := ownDigest()
			if err != nil {
				return err
			}
			type part struct {
				What string `json:"what"`
				Said string `json:"said"`
			}
			parts := []part{}
			for _, f := range ages(cmd.Context()) {
				parts = append(parts, part{f.What, f.Said})
			}
			out := map[string]any{"version": released(), "sha256": sum, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "parts": parts}
			return a.Show(out, func() error {
				fmt.Fprintf(a.Out, "sallyport %s, built with %s for %s/%s\n%-18s %s\n", released(), runtime.Version(), runtime.GOOS, runtime.GOARCH, "sha256", sum)
				for _, p := range parts {
					fmt.Fprintf(a.Out, "%-18s %s\n", p.What, visible.String(p.Said))
				}
				return nil
			})
		},
	}
}

// ownDigest is the SHA-256 of this program's file: builds are reproducible, so it says
// which one this is where no release does.
func ownDigest() (string, error) { return hashed.File("/proc/self/exe") }
