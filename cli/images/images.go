// Package images holds the commands that make, list and remove the images of
// sandboxes. They work on the cache folder, without a gateway.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/image/module"
	"sallyport.dev/sallyport/image/oci"
	"sallyport.dev/sallyport/redact/visible"
)

// Commands are those of `sandbox` that are about images.
func Commands(app *cli.App) []*cobra.Command {
	a := command{app}
	return []*cobra.Command{a.images(), a.build(), a.pull()}
}

type command struct{ *cli.App }

func (a command) images() *cobra.Command {
	cmd := &cobra.Command{Use: "images", Short: "List the images in the cache", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		list, err := image.List(cli.CacheDir())
		if err != nil {
			return err
		}
		return a.show(list)
	}}
	cmd.AddCommand(a.remove(), a.prune())
	return cmd
}

func (a command) show(list []image.Listed) error {
	return a.Show(map[string]any{"images": append([]image.Listed{}, list...)}, func() error {
		var rows [][]string
		for _, i := range list {
			used := "never"
			if !i.LastUsed.IsZero() {
				used = i.LastUsed.Local().Format("2006-01-02 15:04")
			}
			if i.InUse {
				used = "in use"
			}
			rows = append(rows, []string{cmp.Or(i.Name, "-"), i.Digest, fmt.Sprintf("%d MiB", i.Size>>20), used, cmp.Or(i.Problem, i.From)})
		}
		return a.Table("NAME DIGEST SIZE USED FROM", rows)
	})
}

func (a command) remove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME|DIGEST…", Short: "Remove images that nothing uses", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keep, err := a.kept()
			if err != nil {
				return err
			}
			for _, ref := range args {
				if err := image.NewStore(cli.CacheDir()).Remove(cmd.Context(), ref, keep, a.progress); err != nil {
					return err
				}
				if !a.JSON {
					fmt.Fprintln(a.Out, "removed", visible.String(ref))
				}
			}
			return a.Show(map[string]any{"removed": args}, func() error { return nil })
		},
	}
}

func (a command) prune() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove images without a name that nothing uses", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keep, err := a.kept()
			if err != nil {
				return err
			}
			gone, err := image.NewStore(cli.CacheDir()).Prune(cmd.Context(), all, keep, a.progress)
			if err != nil {
				return err
			}
			return a.Show(map[string]any{"removed": append([]image.Listed{}, gone...)}, func() error {
				var freed int64
				for _, i := range gone {
					freed += i.Size
					fmt.Fprintln(a.Out, "removed", i.Digest, visible.String(i.Name))
				}
				_, err := fmt.Fprintf(a.Out, "%d removed, %d MiB freed\n", len(gone), freed>>20)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also images with a name, unless a configuration or a manifest of this data folder names them")
	return cmd
}

// kept tells which images the configuration and the manifests of the data
// folder name. A folder that cannot be read keeps everything: it is an error.
func (a command) kept() (image.Kept, error) {
	by := map[string]string{image.DefaultName: "it is the default"}
	file := filepath.Join(a.Data, "sallyport.yaml")
	tools := filepath.Join(a.Data, "tools")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		c, err := config.Load(file)
		if err != nil {
			return nil, err
		}
		tools = c.Tools
		for _, name := range append(slices.Clone(c.Sandbox.Images), c.Sandbox.Image) {
			by[name] = file + " names it"
		}
	}
	manifests, err := catalog.LoadManifests(tools)
	if err != nil {
		return nil, err
	}
	for _, m := range manifests {
		if m.Rules.Image != "" {
			by[m.Rules.Image] = m.File + " names it"
		}
	}
	return func(l image.Listed) string { return cmp.Or(by[l.Digest], by[l.Name]) }, nil
}

func (a command) progress(s string) { fmt.Fprintln(a.Err, visible.String(s)) }

// flags are those of what brings images from elsewhere.
type flags struct {
	name string
	max  string
}

func (f *flags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", "", "`name` of the image")
	cmd.Flags().StringVar(&f.max, "max-size", "4GiB", "refuse what unpacks to more than this `size`")
}

func (f *flags) size() (int64, error) {
	n, err := config.ParseSize(f.max)
	if err != nil || n <= 0 {
		return 0, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("--max-size %q is no size", f.max), Hint: "write a number and a unit, such as 8GiB"}
	}
	return int64(n), nil
}

func (a command) build() *cobra.Command {
	var f flags
	var layout, ref, folder string
	cmd := &cobra.Command{
		Use: "build [default|data]", Short: "Build an image: from Debian's packages, an OCI image or a folder",
		Long: "Build an image. Without a flag it is made from the contents of Debian's packages: `default` is what tools\n" +
			"run in unless they say otherwise, `data` adds numpy, pandas and matplotlib.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := f.size()
			if err != nil {
				return err
			}
			if (layout != "" || folder != "") && len(args) > 0 {
				return &sallyport.Error{Code: sallyport.Invalid, Message: "a name beside --oci or --folder", Hint: "give the name with --name"}
			}
			switch {
			case layout != "":
				return a.layers(cmd.Context(), cmp.Or(f.name, baseName(layout)), size, func(ctx context.Context) (*oci.Image, error) { return oci.Open(ctx, layout, ref) })
			case folder != "":
				i, err := image.NewStore(cli.CacheDir()).BuildFolder(cmd.Context(), cmp.Or(f.name, baseName(folder)), folder, size, a.progress)
				return a.built(i, err)
			}
			name := cmp.Or(strings.Join(args, ""), f.name, image.DefaultName)
			for _, spec := range image.Recipes() {
				if spec.Name == name {
					i, err := image.Build(cmd.Context(), cli.CacheDir(), spec, image.InSandbox(programs()), a.progress)
					return a.built(i, err)
				}
			}
			return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("there is no recipe for an image %.80q", name), Hint: "build default or data, or give --oci or --folder"}
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&layout, "oci", "", "OCI layout (folder or tar file), or what docker save wrote: the `path`")
	cmd.Flags().StringVar(&ref, "ref", "", "with --oci: which image, by its `tag or digest`, where there are several")
	cmd.Flags().StringVar(&folder, "folder", "", "`folder` whose contents become the image")
	cmd.MarkFlagsMutuallyExclusive("oci", "folder")
	return cmd
}

func (a command) pull() *cobra.Command {
	var f flags
	var takeTag, isModule bool
	cmd := &cobra.Command{
		Use: "pull REFERENCE", Short: "Make an image of one in a registry, by its digest; or fetch a WebAssembly module",
		Example: "  sallyport sandbox pull docker.io/library/python@sha256:…\n  sallyport sandbox pull --module ghcr.io/owner/tool@sha256:…",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if isModule {
				return a.module(cmd.Context(), args[0], takeTag)
			}
			size, err := f.size()
			if err != nil {
				return err
			}
			return a.layers(cmd.Context(), cmp.Or(f.name, oci.Name(args[0])), size, func(ctx context.Context) (*oci.Image, error) { return oci.Pull(ctx, args[0], takeTag) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&takeTag, "resolve", false, "take what a tag means now, and print the digest")
	cmd.Flags().BoolVar(&isModule, "module", false, "fetch the WebAssembly module of an artifact, for tools of language wasm")
	return cmd
}

// module fetches a module. What it prints is what a manifest says of it.
func (a command) module(ctx context.Context, ref string, takeTag bool) error {
	m, err := oci.PullModule(ctx, ref, takeTag)
	if err != nil {
		return err
	}
	if err := module.NewStore(cli.CacheDir()).Put(m.Ref, m.Code); err != nil {
		return err
	}
	return a.Show(map[string]any{"image": m.Ref, "bytes": len(m.Code)}, func() error {
		_, err := fmt.Fprintf(a.Out, "image: %s\n", m.Ref)
		return err
	})
}

func (a command) layers(ctx context.Context, name string, size int64, find func(context.Context) (*oci.Image, error)) error {
	found, err := find(ctx)
	if err != nil {
		return err
	}
	defer found.Close()
	a.progress("found " + found.From)
	i, err := image.NewStore(cli.CacheDir()).BuildLayers(ctx, found.Layers(name, size), a.progress)
	return a.built(i, err)
}

func (a command) built(i image.Image, err error) error {
	if err != nil {
		return err
	}
	return a.Show(i, func() error {
		_, err := fmt.Fprintf(a.Out, "%s  %s  %d MiB\n", i.Name, i.Digest, i.Size>>20)
		return err
	})
}

// baseName makes a name of a path: its last part without endings.
func baseName(p string) string {
	name, _, _ := strings.Cut(filepath.Base(filepath.Clean(p)), ".")
	return strings.ToLower(name)
}

// programs is the folder of the programs that belong to this one.
func programs() string {
	self, _ := os.Executable() // without it, nothing is found there
	return filepath.Dir(self)
}
