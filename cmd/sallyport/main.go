// Command sallyport is the gateway and its command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cli/images"
	"sallyport.dev/sallyport/cli/imports"
	"sallyport.dev/sallyport/cli/policies"
	"sallyport.dev/sallyport/cli/sagas"
	"sallyport.dev/sallyport/cli/servers"
	"sallyport.dev/sallyport/cli/sessions"
	"sallyport.dev/sallyport/gateway"
)

// A program is the command line with the gateway in it.
type program struct {
	cli.App

	// alter changes a gateway before it takes calls; tests take protections
	// away with it, to see that somebody notices.
	alter func(*gateway.Gateway)
}

func main() { os.Exit((&program{}).run(os.Args[1:])) }

func (a *program) run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a.App = cli.App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		a.JSON = a.JSON || wantsJSON(args) // where the flags could not be read
		a.Report(err)
	}
	return cli.ExitCode(err)
}

func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// root is the whole command tree.
func (a *program) root() *cobra.Command {
	root := &cobra.Command{
		Use: "sallyport", Short: "The one door through which every tool call of every agent passes",
		Long: "The one door through which every tool call of every agent passes.\n\n" +
			"Ends with 0 done · 1 the tool failed · 2 wrong usage · 3 denied, rejected or not there · 4 a human must approve · 5 unavailable.",
		SilenceUsage: true, SilenceErrors: true, Version: released(),
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			a.Data, err = filepath.Abs(a.Data)
			return err
		},
	}
	root.PersistentFlags().StringVar(&a.Data, "data", cli.DefaultData(), "data folder")
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "answer in JSON")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(cli.Groups()...)
	root.AddCommand(cli.InGroup(cli.GroupStart, a.initCommand(), a.serveCommand(), a.demoCommand(), a.doctorCommand(), a.versionCommand())...)
	root.AddCommand(a.Commands()...)
	if sandbox, _, err := root.Find([]string{"sandbox"}); err == nil {
		sandbox.AddCommand(images.Commands(&a.App)...)
		sandbox.AddCommand(sessions.Commands(&a.App)...)
	}
	upstream := servers.Command(&a.App)
	upstream.AddCommand(imports.Command(&a.App, os.LookupEnv))
	root.AddCommand(cli.InGroup(cli.GroupUse, upstream, sagas.Command(&a.App))...)
	root.AddCommand(cli.InGroup(cli.GroupRecord, a.verifyCommand(), a.benchCommand())...)
	root.AddCommand(cli.InGroup(cli.GroupGovern, policies.Command(&a.App), a.adminsCommand())...)
	root.SetHelpCommandGroupID(cli.GroupStart)
	cli.Teach(root)
	return root
}
