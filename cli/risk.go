package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/risk"
)

func (a *App) riskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "risk", Short: "Say what a statement, command or request would do; works offline",
		Long: "Say what the assess step would say of a statement, command or request. The exit code is 0 whatever the verdict.",
	}
	var dialect, tool string
	judge := func(use, short string, f func(*risk.Engine, string) (sallyport.Risk, error)) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			text := "-"
			if len(args) == 1 {
				text = args[0]
			}
			b, err := a.Argument(text)
			if err != nil {
				return err
			}
			e, err := risk.New(risk.Options{CacheDir: CacheDir(), Internal: a.InternalDomains()})
			if err != nil {
				return err
			}
			r, err := f(e, string(b))
			if err != nil {
				return err
			}
			return a.Show(r, func() error { return a.showRisk(r) })
		}}
		cmd.AddCommand(c)
		return c
	}
	sql := judge("sql [TEXT|-]", "Judge SQL", func(e *risk.Engine, s string) (sallyport.Risk, error) {
		if !slices.Contains([]string{"postgres", "mysql", "sqlite"}, dialect) {
			return sallyport.Risk{}, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("--dialect %s: it must be postgres, mysql or sqlite", dialect)}
		}
		return e.SQL(dialect, s), nil
	})
	sql.Flags().StringVar(&dialect, "dialect", "postgres", "postgres, mysql or sqlite")
	judge("shell [TEXT|-]", "Judge a shell command", func(e *risk.Engine, s string) (sallyport.Risk, error) { return e.Shell(s), nil })
	judge("cloud [TEXT|-]", `Judge an action or a command line of a cloud, such as "s3:DeleteBucket"`, func(e *risk.Engine, s string) (sallyport.Risk, error) { return e.Cloud(s), nil })
	judge("http [TEXT|-]", `Judge a request, such as "DELETE https://host/path"`, func(e *risk.Engine, s string) (sallyport.Risk, error) { return e.HTTP(s), nil })
	args := judge("args [JSON|-]", "Judge the arguments of a tool", func(e *risk.Engine, s string) (sallyport.Risk, error) {
		return a.riskOfArgs(e, tool, s)
	})
	args.Flags().StringVar(&tool, "tool", "", "name of the tool, as its manifest in the data folder describes it")
	return cmd
}

// riskOfArgs judges arguments as the path would: by the tool's manifest, if
// there is one in the data folder, as code in a sandbox, or else as those of an
// undeclared tool.
func (a *App) riskOfArgs(e *risk.Engine, name, text string) (sallyport.Risk, error) {
	args, err := Object([]byte(text), "arguments", exampleArgs)
	if err != nil {
		return sallyport.Risk{}, err
	}
	known, err := a.Described()
	if err != nil {
		return sallyport.Risk{}, err
	}
	tool, ok := known[name]
	if !ok {
		tool = sallyport.Tool{Name: name, Origin: sallyport.Origin{Backend: "upstream"}}
	}
	return e.Args(tool, args), nil
}

// Described are the tools that can be told without a gateway, by name: those in
// sandboxes, and those that the manifests of the data folder describe.
func (a *App) Described() (map[string]sallyport.Tool, error) {
	manifests, err := catalog.LoadManifests(filepath.Join(a.Data, "tools"))
	if err != nil && exists(filepath.Join(a.Data, "tools")) {
		return nil, err
	}
	known := map[string]sallyport.Tool{}
	for _, t := range sandbox.Tools(nil) {
		known[t.Name] = t
	}
	for _, m := range manifests {
		t := m.Described()
		known[t.Name] = t
	}
	return known, nil
}

// InternalDomains are those of the configuration in the data folder, if there is
// one that can be read.
func (a *App) InternalDomains() []string {
	c, err := config.Load(filepath.Join(a.Data, "sallyport.yaml"))
	if err != nil {
		return nil // then every recipient is outside
	}
	return c.Messages.Internal
}

func (a *App) showRisk(r sallyport.Risk) error {
	word := r.Level.String()
	if r.Irreversible {
		word += ", irreversible"
	}
	fmt.Fprintln(a.Out, word)
	for _, s := range r.Reasons {
		fmt.Fprintf(a.Out, "  %s\n", visible.String(s))
	}
	if len(r.Objects) > 0 {
		fmt.Fprintf(a.Out, "  on: %s\n", visible.String(strings.Join(r.Objects, ", ")))
	}
	if len(r.Effects) > 0 {
		fmt.Fprintf(a.Out, "  effects: %s\n", strings.Join(r.Effects, ", "))
	}
	for _, p := range r.Parts {
		at := ""
		if p.Path != "" {
			at = " (" + p.Path + ")"
		}
		fmt.Fprintf(a.Out, "  %s: %s\n", p.Label, visible.String(p.Text+at))
	}
	for _, m := range r.Amounts {
		fmt.Fprintf(a.Out, "  moves: %s\n", visible.String(strings.TrimSpace(m.Value+" "+m.Currency)))
	}
	return nil
}

// warmCommand compiles the parsers into the cache, so that the first start is
// a fast one.
func (a *App) warmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "warm", Short: "Compile the parsers into the cache", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := risk.New(risk.Options{CacheDir: CacheDir()})
			if err != nil {
				return err
			}
			if err := e.Warm(cmd.Context()); err != nil || os.Geteuid() != 0 {
				return err
			}
			return risk.Share(CacheDir())
		},
	}
}
