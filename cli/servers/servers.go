// Package servers has the commands about upstream servers: add, list, read, update
// and remove them.
package servers

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cli/apidoc"
	"sallyport.dev/sallyport/config/mock"
	"sallyport.dev/sallyport/redact/visible"
)

// An app is the command line that the commands are part of.
type app struct{ *cli.App }

// Command is `sallyport servers`.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	cmd := &cobra.Command{Use: "servers", Short: "Add, list and remove upstream MCP servers"}
	cmd.AddCommand(a.add(), a.list(), a.logs(), a.update(), a.login(), a.logout(), &cobra.Command{
		Use: "remove NAME", Short: "Remove a server that was added with `servers add`", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Did(cmd, "DELETE", "/servers/"+url.PathEscape(args[0]), nil, "removed "+args[0])
		},
	})
	return cmd
}

// An addition is a server as the flags describe it.
type addition struct {
	link, isolation, mocked    string
	env, headers, reach, roots []string
	oauth                      string
	oauthSet                   []string
	api                        apidoc.Flags
}

func (a app) add() *cobra.Command {
	var n addition
	cmd := &cobra.Command{
		Use: "add NAME [--url URL | --openapi FILE|URL | -- COMMAND [ARG…]]", Short: "Add an upstream server",
		Example: "  sallyport servers add files --root /srv/files -- npx -y @modelcontextprotocol/server-filesystem /srv/files\n" +
			"  sallyport servers add crm --url https://crm.example/mcp --header 'Authorization=Bearer ${secret:crm}'\n" +
			"  sallyport servers add pets --openapi petstore.yaml --base https://api.example/v1 --secret api_key=pets",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, argv := args[0], args[1:]
			config := map[string]any{}
			if err := n.api.Config(config, n.link, argv); err != nil {
				return err
			}
			var canned string
			if n.api.Source == "" {
				var err error
				if canned, err = a.mock(cmd, n.mocked, name, n.link, &argv); err != nil {
					return err
				}
			}
			if err := n.describe(config, argv); err != nil {
				return err
			}
			return a.install(cmd, name, cmp.Or(canned, cli.CommandLine(cmp.Or(n.api.Source, n.link), argv))+patience(argv), config)
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.link, "url", "", "address of a server over HTTP: streamable, or the older HTTP+SSE")
	f.StringVar(&n.oauth, "oauth", "", "the server wants OAuth: whose tokens its calls are made with, gateway, agent or user")
	f.StringArrayVar(&n.oauthSet, "oauth-set", nil, "KEY=VALUE of the server's oauth: grant, issuer, client_id, client_secret, private_key, metadata_url, or scopes (with spaces between)")
	n.api.Add(f)
	f.StringVar(&n.mocked, "mock", "", "FILE with tools and canned answers: adds a server that gives them; the name mock alone adds a sample")
	f.StringVar(&n.isolation, "isolation", "", "gvisor (default): in a sandbox; uid: as a user of its own; none: as the gateway's own user, which is not isolation")
	f.StringArrayVar(&n.reach, "egress", nil, "HOST:PORT that a server in a sandbox may reach")
	f.StringArrayVar(&n.roots, "root", nil, "FOLDER of this host that a server in a sandbox sees, read-only; FOLDER:rw lets it write")
	f.StringArrayVar(&n.env, "env", nil, "NAME=VALUE for the server's process; ${secret:NAME} names a stored secret")
	f.StringArrayVar(&n.headers, "header", nil, "NAME=VALUE sent with each request; ${secret:NAME} names a stored secret")
	return cmd
}

// describe adds to a server's settings what is not about an HTTP API.
func (n *addition) describe(config map[string]any, argv []string) error {
	if (n.api.Source != "" || n.link != "") && n.isolation+strings.Join(n.reach, "")+strings.Join(n.roots, "") != "" {
		return errors.New("--isolation, --egress and --root are about a program that this host starts: a server behind an address runs elsewhere, and nothing here can confine it")
	}
	switch {
	case n.api.Source != "":
	case n.link != "" && len(argv) > 0, n.link == "" && len(argv) == 0:
		return errors.New("give either --url URL or -- COMMAND [ARG…], or --openapi FILE|URL")
	case n.link != "":
		config["url"] = n.link
		if err := n.authorise(config); err != nil {
			return err
		}
	default:
		config["command"], config["args"] = argv[0], argv[1:]
		confine(config, n.isolation, n.reach, n.roots)
	}
	for name, list := range map[string][]string{"env": n.env, "headers": n.headers} {
		m := map[string]string{}
		for _, kv := range list {
			k, v, ok := strings.Cut(kv, "=")
			if !ok || k == "" {
				k, _, _ = strings.Cut(kv, ":") // what follows may be a secret
				return fmt.Errorf("%.16q is not NAME=VALUE", k)
			}
			m[k] = v
		}
		if len(m) > 0 {
			config[name] = m
		}
	}
	return nil
}

// install has the gateway add a server, and says how it is. line is what is started,
// shown in full before anything of it is.
func (a app) install(cmd *cobra.Command, name, line string, config map[string]any) error {
	fmt.Fprintf(a.Err, "adding %s: %s\n", visible.String(name), visible.String(line))
	var st adminapi.ServerStatus
	if err := a.API(cmd.Context(), "POST", "/servers", map[string]any{"name": name, "config": config}, &st); err != nil {
		return err
	}
	if err := a.showStarted(st); err != nil || st.State == "ready" {
		return err
	}
	name = visible.String(st.Name)
	fmt.Fprintf(a.Err, "%s is added, but does not answer: %s\nThe gateway goes on trying; `sallyport servers list` shows how it is, `sallyport servers remove %s` takes it back.\n",
		name, visible.String(cmp.Or(st.Error, "it is "+st.State)), name)
	return cli.Exit(cli.ExitUnavailable)
}

// mock makes a server of canned answers: of a file, or a sample if the name alone
// asks for it. It says whose in place of the command, which is a whole program.
func (a app) mock(cmd *cobra.Command, file, name, link string, argv *[]string) (said string, err error) {
	given := cmd.Flags().Changed("mock")
	switch {
	case given && (link != "" || len(*argv) > 0):
		return "", errors.New("give either --mock FILE, --url URL or -- COMMAND [ARG…]")
	case given:
		src, err := os.ReadFile(file)
		if err == nil {
			*argv, err = mock.Command(file, append([]byte{}, src...))
		}
		return "the canned answers of " + file + ", given by python3", err
	case name == "mock" && link == "" && len(*argv) == 0:
		*argv, err = mock.Command("", nil)
		said = "sample answers, given by python3"
	}
	return said, err
}

// showStarted shows a server that was just started, and first what it is made of.
func (a app) showStarted(st adminapi.ServerStatus) error {
	if st.Package != "" && !a.JSON {
		fmt.Fprintf(a.Err, "installed: %s\n", visible.String(st.Package))
	}
	if st.OpenAPI != "" && st.URL != "" && !a.JSON {
		fmt.Fprintf(a.Err, "its calls go to %s\n", visible.String(st.URL))
	}
	return a.Show(st, func() error { return a.show([]adminapi.ServerStatus{st}) })
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

func (a app) list() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the servers and how they are", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var out struct {
			Servers []adminapi.ServerStatus `json:"servers"`
		}
		if err := a.API(cmd.Context(), "GET", "/servers", nil, &out); err != nil {
			return err
		}
		return a.Show(out, func() error { return a.show(out.Servers) })
	}}
}

func (a app) logs() *cobra.Command {
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

func (a app) update() *cobra.Command {
	return &cobra.Command{Use: "update NAME", Short: "Install the package of a server in a sandbox afresh, and start it again", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var st adminapi.ServerStatus
		if err := a.API(cmd.Context(), "POST", "/servers/"+url.PathEscape(args[0])+"/update", nil, &st); err != nil {
			return err
		}
		return a.showStarted(st)
	}}
}

func (a app) show(list []adminapi.ServerStatus) error {
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{s.Name, s.State, strconv.Itoa(s.Tools), cmp.Or(s.Version, "-"), s.Isolation, s.Source, cmp.Or(s.Error, strings.Join(s.Warnings, "; "))})
	}
	return a.Table("NAME STATE TOOLS PROTOCOL ISOLATION SOURCE REMARK", rows)
}
