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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/cedar"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/oauth"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store/sqlite"
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

func (a *program) initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Make a data folder: configuration, keys, first agent and first admin", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := initialise(cmd.Context(), a.Data)
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
func initialise(ctx context.Context, data string) (m made, err error) {
	entries, err := os.ReadDir(data)
	if errors.Is(err, syscall.ENOTDIR) {
		return m, &sallyport.Error{Code: sallyport.Invalid, Message: data + " is not a folder", Hint: "name another place with --data"}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	if len(entries) > 0 {
		return m, &sallyport.Error{Code: sallyport.Invalid, Message: data + " is not empty",
			Hint: "name another folder with --data, or remove this one if nothing in it is needed"}
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return m, err
	}
	if err := os.Chmod(data, 0o711); err != nil { // one that was there already
		return m, err
	}
	defer func() {
		if err != nil {
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
	if err := os.WriteFile(m.Config, []byte(config.Starter()), 0o640); err != nil {
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
	if err := people(ctx, data, base, &m); err != nil {
		return m, err
	}
	return m, os.WriteFile(filepath.Join(data, "owner"), []byte(strconv.Itoa(os.Getuid())), 0o644)
}

// people makes the keys, the database, and the first agent and admin in it.
func people(ctx context.Context, data, base string, m *made) error {
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
	db, err := sqlite.Open(filepath.Join(data, "sallyport.db"), seal)
	if err != nil {
		return err
	}
	err = errors.Join(firstAgent(ctx, db, data, base, m), firstAdmin(ctx, db, m))
	return errors.Join(err, db.Close(), seal.Close())
}

func firstAgent(ctx context.Context, db *sqlite.Store, data, base string, m *made) error {
	m.Agent.ID = "agent"
	secret, agent := newAgent(sallyport.DefaultTenant, m.Agent.ID, []string{"agent"}, time.Now())
	e, err := audit.AdminEntry(agent.Tenant, sallyport.Change{Action: "agents add", By: "init", Target: agent.ID})
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

func firstAdmin(ctx context.Context, db *sqlite.Store, m *made) error {
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
