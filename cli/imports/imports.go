// Package imports has the command that takes servers over from the configuration
// of another program, or from a registry.
package imports

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/config/foreign"
	"sallyport.dev/sallyport/redact/visible"
	"sallyport.dev/sallyport/sandboxd/install/npx"
)

type app struct {
	*cli.App
	env foreign.Lookup
	yes bool

	isolation string
	reach     []string
	registry  string
	only      []string
}

// An account is what became of one server.
type account struct {
	foreign.Server
	State string `json:"state"` // planned, added, not_answering, skipped, refused, failed
	Error string `json:"error,omitempty"`
}

// Command is `sallyport servers import`. env is the environment of whoever
// imports: other programs' files refer to it.
func Command(c *cli.App, env foreign.Lookup) *cobra.Command {
	a := app{App: c, env: env}
	cmd := &cobra.Command{
		Use: "import FILE|URL|NAME…", Short: "Add the servers of another program's configuration, or of a registry, after showing them",
		Long: "Add the servers of an mcp.json (Claude, Cursor, VS Code) or a server.json; with --registry, those of a registry by their names there, or all. " +
			"Shows each first: the exact command, the names of its variables, what it may reach. Nothing is started before you say yes. " +
			"Secrets go into the secret store and are shown nowhere. Ends with 2 if one cannot be used, with 5 if one does not answer; the others are added all the same.",
		Example: "  sallyport servers import ~/.cursor/mcp.json\n" +
			"  sallyport servers import --registry https://registry.example io.example/weather --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.read(cmd.Context(), args)
			if err != nil {
				return err
			}
			return a.take(cmd.Context(), list)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&a.yes, "yes", false, "do not ask")
	f.StringArrayVar(&a.only, "only", nil, "NAME of one of the servers, the others are left out")
	f.StringVar(&a.registry, "registry", "", "address of an MCP registry; the arguments are names of servers there, none means all")
	f.StringVar(&a.isolation, "isolation", "", "of those that are programs: gvisor (default) or uid")
	f.StringArrayVar(&a.reach, "egress", nil, "HOST:PORT that those in sandboxes may reach")
	return cmd
}

func (a *app) read(ctx context.Context, args []string) ([]foreign.Server, error) {
	switch {
	case a.registry != "":
		return a.fromRegistry(ctx, args)
	case len(args) != 1:
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "give one file or address", Hint: "`sallyport servers import --help` says how"}
	}
	var src []byte
	var err error
	if strings.HasPrefix(args[0], "https://") || strings.HasPrefix(args[0], "http://") {
		src, err = get(ctx, args[0])
	} else {
		src, err = readFile(args[0])
	}
	if err != nil {
		return nil, err
	}
	list, _, err := foreign.Read(src, a.env)
	if e, ok := errors.AsType[*sallyport.Error](err); ok {
		e.Message = args[0] + ": " + e.Message
	}
	return list, err
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, foreign.MaxBytes+1))
}

// take shows what would be added, asks, and adds it.
func (a *app) take(ctx context.Context, list []foreign.Server) error {
	all, err := a.plan(ctx, list)
	if err != nil {
		return err
	}
	if !a.JSON {
		a.show(all)
	}
	if planned(all) == 0 {
		return a.end(all)
	}
	if !a.yes {
		if err := a.ask(planned(all)); err != nil {
			return err
		}
	}
	for i := range all {
		if all[i].State == "planned" {
			a.add(ctx, &all[i])
		}
	}
	return a.end(all)
}

func planned(all []account) (n int) {
	for _, s := range all {
		if s.State == "planned" {
			n++
		}
	}
	return n
}

// plan says of each server what would become of it.
func (a *app) plan(ctx context.Context, list []foreign.Server) ([]account, error) {
	var have struct {
		Servers []adminapi.ServerStatus `json:"servers"`
	}
	var stored struct {
		Names []string `json:"names"`
	}
	if err := a.API(ctx, "GET", "/servers", nil, &have); err != nil {
		return nil, err
	}
	if err := a.API(ctx, "GET", "/secrets", nil, &stored); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []account
	for _, s := range list {
		if len(a.only) > 0 && !slices.Contains(a.only, s.Name) && !slices.Contains(a.only, s.Was) {
			continue
		}
		x := account{Server: s, State: "planned"}
		taken := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Secrets)), func(n string) bool { return !slices.Contains(stored.Names, n) })
		missing := slices.DeleteFunc(slices.Clone(s.Asks), func(n string) bool { return slices.Contains(stored.Names, n) })
		switch {
		case s.Problem != "":
			x.State = "refused"
		case s.Disabled && len(a.only) == 0:
			x.State, x.Error = "skipped", "it is disabled in the file; --only "+s.Name+" adds it all the same"
		case slices.ContainsFunc(have.Servers, func(h adminapi.ServerStatus) bool { return h.Name == s.Name }):
			x.State, x.Error = "skipped", "there is a server of this name"
		case seen[s.Name]:
			x.State, x.Error = "skipped", "it is there twice; the first one counts"
		case len(missing) > 0:
			x.State, x.Problem = "refused", "it needs secrets whose values the file does not hold: "+strings.Join(missing, ", ")
			x.Hint = "store each with `sallyport secrets set NAME`, then import again"
		case len(taken) > 0: // it would be sent where the file says
			x.State, x.Problem = "refused", "secrets of this gateway have the names that its own would have: "+strings.Join(taken, ", ")
			x.Hint = "give the server another name in the file, or take them away with `sallyport secrets remove NAME`"
		default:
			a.confine(x.Config)
			seen[s.Name] = true
			x.check()
		}
		out = append(out, x)
	}
	if len(out) == 0 {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: "there is no server to import", Hint: "look into the file, or at --only"}
	}
	return out, nil
}

// check refuses what the gateway would refuse, before anybody is asked.
func (x *account) check() {
	raw, err := json.Marshal(x.Config)
	if err == nil {
		_, err = config.ParseServer(x.Name, raw)
	}
	if err == nil && x.Config.Command != "" && (x.Config.Isolation == "" || x.Config.Isolation == config.IsolationGVisor) {
		_, _, err = npx.Parse(append([]string{x.Config.Command}, x.Config.Args...))
	}
	if err != nil {
		x.State = "refused"
		x.Problem, x.Hint = cli.Said(err)
	}
}

func (a *app) confine(c *foreign.Config) {
	if c.Command == "" {
		return
	}
	c.Isolation = a.isolation
	if a.isolation == "" || a.isolation == "gvisor" {
		c.Egress = a.reach
	}
}

// ask wants a yes. An end of input is none.
func (a *app) ask(n int) error {
	fmt.Fprintf(a.Err, "\nAdd and start these servers (%d)? Type yes: ", n)
	line, err := bufio.NewReader(io.LimitReader(a.In, 1024)).ReadString('\n')
	switch answer := strings.ToLower(strings.TrimSpace(line)); {
	case answer == "yes" || answer == "y":
		return nil
	case answer == "" && err != nil:
		return &sallyport.Error{Code: sallyport.Invalid, Message: "nothing was added: nobody said yes", Hint: "--yes adds without asking"}
	}
	return &sallyport.Error{Code: sallyport.Rejected, Message: "nothing was added"}
}

// add stores a server's secrets and adds it. Where it cannot be added, the
// secrets that were stored for it are taken away again.
func (a *app) add(ctx context.Context, x *account) {
	var made []string
	fail := func(err error) {
		x.State = "failed"
		x.Error, x.Hint = cli.Said(err)
		for _, name := range made {
			_ = a.API(ctx, "DELETE", "/secrets/"+url.PathEscape(name), nil, nil) // the first error is what counts
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Secrets)) {
		if err := a.API(ctx, "PUT", "/secrets/"+url.PathEscape(name), map[string]string{"value": x.Secrets[name]}, nil); err != nil {
			fail(err)
			return
		}
		made = append(made, name)
	}
	raw, err := json.Marshal(x.Config)
	if err != nil {
		fail(err)
		return
	}
	var st adminapi.ServerStatus
	if err := a.API(ctx, "POST", "/servers", map[string]any{"name": x.Name, "config": json.RawMessage(raw)}, &st); err != nil {
		fail(err)
		return
	}
	if x.State = "added"; st.State != "ready" {
		x.State, x.Error = "not_answering", cmp.Or(st.Error, st.State)
	}
	if st.Package != "" {
		x.Notes = append(x.Notes, "installed: "+st.Package)
	}
}

// end tells what became of each, and by what status.
func (a *app) end(all []account) error {
	status := 0
	for _, x := range all {
		switch {
		case x.State == "refused" || x.State == "failed":
			status = cli.ExitUsage
		case x.State == "not_answering" && status == 0:
			status = cli.ExitUnavailable
		}
	}
	err := a.Show(map[string]any{"servers": all}, func() error {
		for _, x := range all {
			line := x.Name + ": " + strings.ReplaceAll(x.State, "_", " ")
			for _, more := range []string{x.Problem, x.Error} {
				if more != "" {
					line += ": " + more
				}
			}
			fmt.Fprintln(a.Out, visible.String(line))
			if x.Hint != "" && x.State != "added" {
				fmt.Fprintln(a.Out, visible.String("  hint: "+x.Hint))
			}
			for _, n := range x.Notes {
				if strings.HasPrefix(n, "installed: ") {
					fmt.Fprintln(a.Out, visible.String("  "+n))
				}
			}
		}
		return nil
	})
	if err == nil && status != 0 {
		return cli.Exit(status)
	}
	return err
}
