package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/bridge"
)

// A Credential is an agent's file in DATA/agents: all that a client needs.
type Credential struct {
	Agent    string `json:"agent"`
	Secret   string `json:"client_secret"`
	TokenURL string `json:"token_url"`
	MCPURL   string `json:"mcp_url"`
}

func readCredential(path string) (c Credential, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Agent == "" || c.Secret == "" || c.TokenURL == "" || c.MCPURL == "") {
		err = fmt.Errorf("%s: agent, client_secret, token_url and mcp_url are needed", path)
	}
	return c, err
}

func (a *App) stdioCommand() *cobra.Command {
	var file, agent string
	cmd := &cobra.Command{
		Use: "stdio", Short: "A bridge for local MCP clients: stdio in front, the gateway behind", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := file == ""
			if own {
				id, err := a.AgentOr(agent)
				if err != nil {
					return err
				}
				file = filepath.Join(a.Data, "agents", id+".json")
			}
			c, err := readCredential(file)
			if errors.Is(err, fs.ErrNotExist) {
				return &sallyport.Error{Code: sallyport.NotFound, Message: "there is no credential " + file,
					Hint: "make it like agents/agent.json of the data folder, mode 0600, with the secret that `sallyport agents add` or `agents rotate` printed"}
			}
			if err != nil {
				return err
			}
			if own {
				a.locate(cmd.Context(), &c)
			}
			b := bridge.Bridge{URL: c.MCPURL, Token: (&tokenSource{Credential: c, file: file}).token, Client: &http.Client{}}
			return b.Run(cmd.Context(), a.In, a.Out)
		},
	}
	cmd.Flags().StringVar(&file, "credential", "", "credential file of the agent (default: in the data folder)")
	cmd.Flags().StringVar(&agent, "agent", "", "agent to act as (default: the one that init made)")
	return cmd
}

// locate puts in where the gateway of this data folder listens now, if it runs
// and this user may ask it: the file was written by init, before anybody
// configured another address.
func (a *App) locate(ctx context.Context, c *Credential) {
	var st struct {
		MCPURL string `json:"mcp_url"`
	}
	if err := a.API(ctx, http.MethodGet, "/status", nil, &st); err != nil || st.MCPURL == "" {
		return
	}
	c.MCPURL, c.TokenURL = st.MCPURL, strings.TrimSuffix(st.MCPURL, "/mcp")+"/oauth/token"
}

// A tokenSource gets tokens with the agent's secret and renews them early.
type tokenSource struct {
	Credential
	file    string     // that the credential was read from
	mu      sync.Mutex // guards what follows
	current string
	renew   time.Time
}

func (t *tokenSource) token(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && time.Now().Before(t.renew) {
		return t.current, nil
	}
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {t.MCPURL}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(t.Agent), url.QueryEscape(t.Secret))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", &sallyport.Error{Code: sallyport.Unavailable, Message: "no gateway answers at " + t.TokenURL +
			", which is that of " + t.file + " (is `sallyport serve` running? another data folder: sallyport stdio --data DIR)", Err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", err
	}
	var out struct {
		Token   string  `json:"access_token"`
		Expires float64 `json:"expires_in"`
		Error   string  `json:"error"`
		Why     string  `json:"error_description"`
	}
	if err := json.Unmarshal(b, &out); err != nil || out.Token == "" {
		return "", &sallyport.Error{Code: sallyport.Unauthenticated, Message: "the gateway gives no token: " + cmp.Or(out.Why, cmp.Or(out.Error, resp.Status))}
	}
	t.current, t.renew = out.Token, time.Now().Add(time.Duration(out.Expires*0.8)*time.Second)
	return t.current, nil
}
