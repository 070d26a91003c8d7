package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/bench"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/demo"
)

func (a *program) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Play two real attacks on a throw-away gateway, and see them stopped", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return &sallyport.Error{Code: sallyport.Unavailable, Message: "the demo starts a whole gateway with sandboxes, which needs root",
					Hint: "run it as root, in a container or a virtual machine if you like; it leaves nothing behind"}
			}
			o, clean, err := a.demoOptions()
			if err != nil {
				return err
			}
			defer clean()
			if err := demo.Run(cmd.Context(), o); err != nil {
				fmt.Fprintln(a.Err, err)
				return cli.Exit(cli.ExitTool)
			}
			return nil
		},
	}
	var db, ledger string
	sql := &cobra.Command{Use: "sql-server", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return demo.RunSQLServer(cmd.Context(), db, ledger)
	}}
	sql.Flags().StringVar(&db, "db", "orders.db", "database file")
	sql.Flags().StringVar(&ledger, "ledger", "", "where effects are reported")
	cmd.AddCommand(sql, &cobra.Command{Use: "canary", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return demo.RunCanary(cmd.Context(), a.Out)
	}})
	return cmd
}

// demoOptions copies this program to where the SQL server's user can run it:
// it runs as a user of its own, for whom the folder of this one may be closed.
func (a *program) demoOptions() (o demo.Options, clean func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return o, nil, err
	}
	dir, err := os.MkdirTemp("", "sallyport-demo-bin-")
	if err != nil {
		return o, nil, err
	}
	clean = func() { os.RemoveAll(dir) }
	server := filepath.Join(dir, "sallyport")
	if err := copyProgram(self, server); err != nil {
		clean()
		return o, nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		clean()
		return o, nil, err
	}
	return demo.Options{Self: []string{self}, ToolServer: []string{server, "demo", "sql-server"}, Out: a.Out}, clean, nil
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func (a *program) benchCommand() *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure what the gateway costs on this machine, beside a direct call and a plain proxy", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Self, o.Out = []string{self}, a.Err
			r, err := bench.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.Show(r, func() error { r.Print(a.Out); return nil })
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "interleaved rounds")
	cmd.Flags().DurationVar(&o.Length, "length", 0, "of one round (default 2s)")
	cmd.Flags().IntVar(&o.Lives, "lives", 30, "sandbox runs per program")
	var to string
	proxy := &cobra.Command{Use: "proxy", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return bench.RunProxy(cmd.Context(), a.Out, to)
	}}
	proxy.Flags().StringVar(&to, "to", "", "upstream")
	cmd.AddCommand(proxy, &cobra.Command{Use: "echo", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return bench.RunEcho(cmd.Context(), a.Out)
	}})
	return cmd
}
