package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/whole"
	"sallyport.dev/sallyport/image"
)

func (a *program) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Check that the record, the pins and the images are what they were, and the policies whole; works offline", Args: cobra.NoArgs,
		Long: "Check the record as `sallyport audit verify` does, each pinned definition against its digest, the keys, each agent against the record, each image that is used against " +
			"the name of its bytes, each module against its manifest, and that policies and manifests can be read. Says what it looked at. Ends with 1 if something is not as it was.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := a.verifyAll(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.Show(map[string]any{"findings": f}, func() error { a.showFindings(f); return nil }); err != nil {
				return err
			}
			if slices.ContainsFunc(f, func(x finding) bool { return !x.OK }) {
				return cli.Exit(cli.ExitTool)
			}
			return nil
		},
	}
}

// verifyAll looks at everything that can be held against something. The error
// says that there is nothing to look at.
func (a *program) verifyAll(ctx context.Context) ([]finding, error) {
	if _, err := ownerOf(a.Data); err != nil {
		return nil, err
	}
	var c checkup
	cfg, err := a.loadConfig(serveFlags{})
	if err != nil { // it says where all the rest is
		c.add("configuration", err, "")
		return c.all, nil
	}
	said, err := whole.Record(ctx, &a.App)
	c.add("record", err, said)
	said, err = whole.Pins(ctx, &a.App, tenant)
	c.add("pins", err, said)
	said, err = whole.Keys(filepath.Join(a.Data, "keys"))
	c.add("keys", err, said)
	said, err = whole.Agents(ctx, &a.App, tenant)
	c.add("agents", err, said)
	c.add("configuration", nil, cfg.File)
	var wrong error
	p := cedar.Check(cfg.Policies)
	if i := slices.IndexFunc(p, func(p cedar.Problem) bool { return !p.Warning }); i >= 0 {
		wrong = errors.New(p[i].String())
	}
	c.add("policies", wrong, cfg.Policies)
	manifests, wrong := catalog.LoadManifests(cfg.Tools)
	for _, m := range manifests {
		if m.Module.Changed != "" {
			wrong = errors.Join(wrong, errors.New(m.Module.Changed))
		}
	}
	c.add("tools", wrong, fmt.Sprintf("%s, manifests: %d", cfg.Tools, len(manifests)))
	names := append([]string{cmp.Or(cfg.Sandbox.Image, image.DefaultName)}, cfg.Sandbox.Images...)
	for _, m := range manifests {
		names = append(names, cmp.Or(m.Rules.Image, cfg.Sandbox.Image))
	}
	if cfg.Sandbox.Host != "" {
		c.add("images", nil, "not looked at: the sandbox host "+cfg.Sandbox.Host+" has its own")
		return c.all, nil
	}
	said, err = examineImages(names)
	c.add("images", err, said)
	return c.all, nil
}
