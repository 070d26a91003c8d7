package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

func (a *App) serversCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "servers", Short: "Add, list and remove upstream MCP servers"}
	cmd.AddCommand(a.serversAdd(), a.serversList(), &cobra.Command{
		Use: "remove NAME", Short: "Remove a server that was added with `servers add`", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.did(cmd, "DELETE", "/servers/"+url.PathEscape(args[0]), nil, "removed "+args[0])
		},
	})
	return cmd
}

func (a *App) serversAdd() *cobra.Command {
	var link, isolation string
	var env, headers []string
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
				if isolation != "" {
					config["isolation"] = isolation
				}
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
				fmt.Fprintf(a.Err, "adding %s: %s\n", visible.String(args[0]), visible.String(CommandLine(link, args[1:])))
			}
			var st adminapi.ServerStatus
			if err := a.API(cmd.Context(), "POST", "/servers", map[string]any{"name": args[0], "config": json.RawMessage(raw)}, &st); err != nil {
				return err
			}
			return a.Show(st, func() error { return a.showServers([]adminapi.ServerStatus{st}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&link, "url", "", "address of a streamable HTTP server")
	f.StringVar(&isolation, "isolation", "", "uid (default): as a user of its own; none: as the gateway's own user, which is not isolation")
	f.StringArrayVar(&env, "env", nil, "NAME=VALUE for the server's process; ${secret:NAME} names a stored secret")
	f.StringArrayVar(&headers, "header", nil, "NAME=VALUE sent with each request; ${secret:NAME} names a stored secret")
	return cmd
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

func (a *App) showServers(list []adminapi.ServerStatus) error {
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{s.Name, s.State, strconv.Itoa(s.Tools), or(s.Version, "-"), s.Isolation, s.Source, or(s.Error, strings.Join(s.Warnings, "; "))})
	}
	return a.table("NAME STATE TOOLS PROTOCOL ISOLATION SOURCE REMARK", rows)
}
