package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

func (a *App) serversCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "servers", Short: "Add, list and remove upstream MCP servers"}
	cmd.AddCommand(a.serversAdd(), a.serversList(), a.serversLogs(), a.serversUpdate(), &cobra.Command{
		Use: "remove NAME", Short: "Remove a server that was added with `servers add`", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.did(cmd, "DELETE", "/servers/"+url.PathEscape(args[0]), nil, "removed "+args[0])
		},
	})
	return cmd
}

func (a *App) serversAdd() *cobra.Command {
	var link, isolation string
	var env, headers, reach, roots []string
	cmd := &cobra.Command{
		Use: "add NAME [--url URL | -- COMMAND [ARG…]]", Short: "Add an upstream server",
		Example: "  sallyport servers add files -- npx -y @modelcontextprotocol/server-filesystem /srv/files\n" +
			"  sallyport servers add crm --url https://crm.example/mcp --header 'Authorization=Bearer ${secret:crm}'",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config := map[string]any{}
			switch argv := args[1:]; {
			case link != "" && len(argv) > 0, link == "" && len(argv) == 0:
				return errors.New("give either --url URL or -- COMMAND [ARG…]")
			case link != "":
				config["url"] = link
			default:
				config["command"], config["args"] = argv[0], argv[1:]
				confine(config, isolation, reach, roots)
			}
			for name, list := range map[string][]string{"env": env, "headers": headers} {
				m := map[string]string{}
				for _, kv := range list {
					k, v, ok := strings.Cut(kv, "=")
					if !ok || k == "" {
						return fmt.Errorf("%q is not NAME=VALUE", kv)
					}
					m[k] = v
				}
				if len(m) > 0 {
					config[name] = m
				}
			}
			raw, err := json.Marshal(config)
			if err != nil {
				return err
			}
			if !a.JSON {
				fmt.Fprintf(a.Err, "adding %s: %s%s\n", visible.String(args[0]), visible.String(CommandLine(link, args[1:])), patience(args[1:]))
			}
			var st adminapi.ServerStatus
			if err := a.API(cmd.Context(), "POST", "/servers", map[string]any{"name": args[0], "config": json.RawMessage(raw)}, &st); err != nil {
				return err
			}
			if err := a.Show(st, func() error { return a.showServers([]adminapi.ServerStatus{st}) }); err != nil || st.State == "ready" {
				return err
			}
			name := visible.String(st.Name)
			fmt.Fprintf(a.Err, "%s is added, but does not answer: %s\nThe gateway goes on trying; `sallyport servers list` shows how it is, `sallyport servers remove %s` takes it back.\n",
				name, visible.String(or(st.Error, "it is "+st.State)), name)
			return Exit(ExitUnavailable)
		},
	}
	f := cmd.Flags()
	f.StringVar(&link, "url", "", "address of a streamable HTTP server")
	f.StringVar(&isolation, "isolation", "", "gvisor (default): in a sandbox; uid: as a user of its own; none: as the gateway's own user, which is not isolation")
	f.StringArrayVar(&reach, "egress", nil, "HOST:PORT that a server in a sandbox may reach")
	f.StringArrayVar(&roots, "root", nil, "FOLDER of this host that a server in a sandbox sees, read-only; FOLDER:rw lets it write")
	f.StringArrayVar(&env, "env", nil, "NAME=VALUE for the server's process; ${secret:NAME} names a stored secret")
	f.StringArrayVar(&headers, "header", nil, "NAME=VALUE sent with each request; ${secret:NAME} names a stored secret")
	return cmd
}

// patience is what to expect of a program that downloads another.
func patience(argv []string) string {
	if len(argv) > 0 && slices.Contains([]string{"npx", "uvx", "pipx", "bunx"}, filepath.Base(argv[0])) {
		return "   (it may download first: a minute, perhaps)"
	}
	return ""
}

// confine adds what a server in a sandbox may use.
func confine(config map[string]any, isolation string, reach, roots []string) {
	if isolation != "" {
		config["isolation"] = isolation
	}
	if len(reach) > 0 {
		config["egress"] = reach
	}
	var shown []map[string]any
	for _, r := range roots {
		path, writable := strings.CutSuffix(r, ":rw")
		shown = append(shown, map[string]any{"path": path, "read_only": !writable})
	}
	if shown != nil {
		config["roots"] = shown
	}
}

// CommandLine is the exact command, quoted so that nothing can hide in it.
func CommandLine(link string, argv []string) string {
	if link != "" {
		return link
	}
	q := make([]string, len(argv))
	for i, s := range argv {
		if q[i] = s; s == "" || strings.ContainsAny(s, " \t\n\"'\\$`;&|<>*?(){}[]~#!") {
			q[i] = strconv.Quote(s)
		}
	}
	return strings.Join(q, " ")
}

func (a *App) serversList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the servers and how they are", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Servers []adminapi.ServerStatus `json:"servers"`
		}
		if err := a.API(cmd.Context(), "GET", "/servers", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error { return a.showServers(out.Servers) })
	}}
}

func (a *App) serversLogs() *cobra.Command {
	return &cobra.Command{Use: "logs NAME", Short: "Show what a server last wrote to its standard error", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var out struct {
			Servers []adminapi.ServerStatus `json:"servers"`
		}
		if err := a.API(cmd.Context(), "GET", "/servers", nil, &out); err != nil {
			return err
		}
		i := slices.IndexFunc(out.Servers, func(s adminapi.ServerStatus) bool { return s.Name == args[0] })
		if i < 0 {
			return &sallyport.Error{Code: sallyport.NotFound, Message: fmt.Sprintf("there is no server %q", args[0]), Hint: "`sallyport servers list` names them"}
		}
		log := out.Servers[i].Stderr
		return a.Show(map[string]string{"stderr": log}, func() error {
			for line := range strings.Lines(log) {
				fmt.Fprintln(a.Out, visible.String(strings.TrimSuffix(line, "\n")))
			}
			return nil
		})
	}}
}

func (a *App) serversUpdate() *cobra.Command {
	return &cobra.Command{Use: "update NAME", Short: "Install the package of a server in a sandbox afresh, and start it again", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var st adminapi.ServerStatus
		if err := a.API(cmd.Context(), "POST", "/servers/"+url.PathEscape(args[0])+"/update", nil, &st); err != nil {
			return err
		}
		return a.Show(st, func() error { return a.showServers([]adminapi.ServerStatus{st}) })
	}}
}

func (a *App) showServers(list []adminapi.ServerStatus) error {
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{s.Name, s.State, strconv.Itoa(s.Tools), or(s.Version, "-"), s.Isolation, s.Source, or(s.Error, strings.Join(s.Warnings, "; "))})
	}
	return a.Table("NAME STATE TOOLS PROTOCOL ISOLATION SOURCE REMARK", rows)
}
