package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cmd/sallyport/desk"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/folder"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store/configured"
	"sallyport.dev/sallyport/store/relational"
)

// made is what init prints.
type made struct {
	Agent struct {
		ID             string `json:"id"`
		CredentialFile string `json:"credential_file"`
	} `json:"agent"`
	Admin struct {
		Name     string `json:"name"`
		Password string `json:"password"`
	} `json:"admin"`
	MCPURL     string `json:"mcp_url"`
	ConsoleURL string `json:"console_url"`
	Config     string `json:"config"`
}

const joined = `made %s, for one more gateway on %s

  its audit log has a key of its own: append %s
  to keys/audit-others.pub of the other gateways, so that "sallyport audit verify" knows it there too

next:  sallyport serve%s
`

func (a *program) initCommand() *cobra.Command {
	store, join := configured.SQLite, ""
	cmd := &cobra.Command{
		Use: "init", Short: "Make a data folder: configuration, keys, first agent and first admin", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if join != "" {
				j, err := folder.Join(cmd.Context(), join, a.Data, cli.HeadsPath)
				if err != nil {
					return err
				}
				return a.Show(j, func() error {
					_, err := fmt.Fprintf(a.Out, joined, a.Data, j.Store, j.PublicKey, a.dataFlag())
					return err
				})
			}
			m, err := initialise(cmd.Context(), a.Data, store)
			if err != nil {
				return err
			}
			return a.Show(m, func() error {
				_, err := fmt.Fprintf(a.Out, `made %s

  configuration   %s
  agent           %s   (credential: %s)
  admin           %s
  password        %s   (shown once; it decides tickets)
  MCP URL         %s

next:  sallyport serve%[8]s
       sallyport call run_python '{"code":"print(6*7)"}'%[8]s
`, a.Data, m.Config, m.Agent.ID, m.Agent.CredentialFile, m.Admin.Name, m.Admin.Password, m.MCPURL, a.dataFlag())
				return err
			})
		},
	}
	cmd.Flags().StringVar(&store, "store", store, "where state is kept: sqlite, in the data folder, or postgres://USER@HOST/DATABASE, which must be empty")
	cmd.Flags().StringVar(&join, "join", "", "make the data folder of one more gateway on the PostgreSQL database of the one whose data folder (or a copy of it) this is")
	cmd.MarkFlagsMutuallyExclusive("store", "join")
	return cmd
}

// dataFlag is what a command needs to find this data folder, or nothing.
func (a *program) dataFlag() string {
	if a.Data == cli.DefaultData() {
		return ""
	}
	return " --data " + cli.CommandLine("", []string{a.Data})
}

// initialise fills a folder that does not exist or is empty. Where it fails,
// what it wrote is removed again.
func initialise(ctx context.Context, data, store string) (m made, err error) {
	_, absent := os.Stat(data)
	if err := folder.Empty(data); err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			if absent != nil {
				defer os.Remove(data)
			}
			for _, name := range []string{"agents", "keys", "policies", "tools", "sallyport.yaml", "sallyport.db", "sallyport.db-wal", "sallyport.db-shm", "owner"} {
				os.RemoveAll(filepath.Join(data, name))
			}
		}
	}()
	for dir, mode := range map[string]fs.FileMode{"keys": 0o700, "agents": 0o700, "policies": 0o750, "tools": 0o750} {
		if err := os.Mkdir(filepath.Join(data, dir), mode); err != nil {
			return m, err
		}
	}
	m.Config = filepath.Join(data, "sallyport.yaml")
	if err := os.WriteFile(m.Config, []byte(config.Starter(store)), 0o640); err != nil {
		return m, err
	}
	if _, err := cedar.WriteStarter(filepath.Join(data, "policies")); err != nil {
		return m, err
	}
	cfg, err := config.Load(m.Config)
	if err != nil {
		return m, err
	}
	base := "http://" + cfg.Listen
	m.MCPURL, m.ConsoleURL = base+"/mcp", base+"/console/"
	if err := people(ctx, data, base, cfg.Store, &m); err != nil {
		return m, err
	}
	return m, os.WriteFile(filepath.Join(data, "owner"), []byte(strconv.Itoa(os.Getuid())), 0o644)
}

// people makes the keys, the database, and the first agent and admin in it.
func people(ctx context.Context, data, base, store string, m *made) error {
	keys := filepath.Join(data, "keys")
	if _, err := oauth.CreateKeys(keys); err != nil {
		return err
	}
	if err := secret.CreateKey(keys); err != nil {
		return err
	}
	key, err := audit.CreateKey(keys)
	if err != nil {
		return err
	}
	seal, err := audit.NewSealer(key, cli.HeadsPath(data, ""))
	if err != nil {
		return err
	}
	db, err := configured.Open(ctx, store, data, seal)
	if err != nil {
		return errors.Join(err, seal.Close())
	}
	if err = unused(ctx, db); err == nil {
		err = errors.Join(firstAgent(ctx, db, data, base, m), firstAdmin(ctx, db, m))
	}
	return errors.Join(err, db.Close(), seal.Close())
}

// unused refuses a database that another data folder's gateway uses: its admin
// would get a new password, and its secrets could not be read.
func unused(ctx context.Context, db *relational.Store) error {
	admins, err := db.Admins(ctx, "")
	if err == nil && len(admins) > 0 {
		err = &sallyport.Error{Code: sallyport.Conflict, Message: "the database is in use: it has admins",
			Hint: "name an empty database; or make one more gateway on this one with --join FOLDER"}
	}
	return err
}

func firstAgent(ctx context.Context, db *relational.Store, data, base string, m *made) error {
	m.Agent.ID = "agent"
	secret, agent := desk.NewAgent(sallyport.DefaultTenant, m.Agent.ID, []string{"agent"}, time.Now())
	e, err := audit.AdminEntry(agent.Tenant, sallyport.Change{Action: "agents add", By: "init", Target: agent.ID, Detail: map[string][]string{"roles": agent.Roles}})
	if err != nil {
		return err
	}
	if err := db.PutAgent(ctx, agent, e); err != nil {
		return err
	}
	m.Agent.CredentialFile = filepath.Join(data, "agents", agent.ID+".json")
	c, err := json.MarshalIndent(cli.Credential{Agent: agent.ID, Secret: secret, TokenURL: base + "/oauth/token", MCPURL: base + "/mcp"}, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(m.Agent.CredentialFile, append(c, '\n'), 0o600),
		os.WriteFile(filepath.Join(data, "agents", "default"), []byte(agent.ID+"\n"), 0o600),
	)
}

func firstAdmin(ctx context.Context, db *relational.Store, m *made) error {
	m.Admin.Name, m.Admin.Password = "admin", oauth.NewPassword()
	hash, err := oauth.HashPassword(m.Admin.Password)
	if err != nil {
		return err
	}
	e, err := audit.AdminEntry(sallyport.DefaultTenant, sallyport.Change{Action: "admins add", By: "init", Target: m.Admin.Name})
	if err != nil {
		return err
	}
	return db.PutAdmin(ctx, sallyport.Admin{
		Tenant: sallyport.DefaultTenant, Name: m.Admin.Name, PasswordHash: hash, CreatedAt: time.Now(),
	}, e)
}

// baseURL is where clients on this machine reach the gateway.
func baseURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
