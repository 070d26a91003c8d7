package servers

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/redact/visible"
)

func (a app) login() *cobra.Command {
	var w adminapi.LoginWish
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "login NAME", Short: "Have a human consent that the gateway calls a server: prints the address to open", Args: cobra.ExactArgs(1),
		Example: "  sallyport servers login crm\n  sallyport servers login crm --agent ada --wait 5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			begun := time.Now()
			var l adminapi.ServerLogin
			if err := a.API(cmd.Context(), "POST", "/servers/"+url.PathEscape(args[0])+"/login", w, &l); err != nil {
				return err
			}
			err := a.Show(l, func() error {
				fmt.Fprintf(a.Err, "authorization server: %s\nasked for: %s\nfor: %s\nopen this address in a browser, until %s:\n",
					visible.String(l.Issuer), visible.String(cmp.Or(strings.Join(l.Scopes, " "), "what it gives by itself")), visible.String(l.For), l.Expires.Local().Format("15:04"))
				fmt.Fprintln(a.Out, visible.String(l.URL))
				return nil
			})
			if err != nil || wait <= 0 {
				return err
			}
			return a.awaitLogin(cmd, l, begun, wait)
		},
	}
	f := cmd.Flags()
	whom(cmd, &w)
	f.StringVar(&w.Issuer, "issuer", "", "confirm this authorization server, where the server names another one than before")
	f.DurationVar(&wait, "wait", 0, "wait so long until it is done")
	return cmd
}

func whom(cmd *cobra.Command, w *adminapi.LoginWish) {
	cmd.Flags().StringVar(&w.Agent, "agent", "", "for the calls of this agent, where the server has oauth.per: agent")
	cmd.Flags().StringVar(&w.User, "user", "", "for calls on behalf of this user, where it has oauth.per: user")
}

// awaitLogin waits until what was asked for is there.
func (a app) awaitLogin(cmd *cobra.Command, l adminapi.ServerLogin, begun time.Time, wait time.Duration) error {
	for deadline := begun.Add(wait); time.Now().Before(deadline); {
		var out struct {
			Servers []adminapi.ServerStatus `json:"servers"`
		}
		if err := a.API(cmd.Context(), "GET", "/servers", nil, &out); err != nil {
			return err
		}
		for _, s := range out.Servers {
			if s.Name == l.Server && slices.ContainsFunc(s.OAuth, func(g adminapi.ServerGrant) bool { return g.For == l.For && g.Wants == "" && !g.Since.Before(begun) }) {
				fmt.Fprintf(a.Err, "%s is authorised for %s\n", visible.String(l.Server), visible.String(l.For))
				return nil
			}
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return &sallyport.Error{Code: sallyport.AuthorizationRequired, Message: "nobody has finished the login yet", Hint: "open the address; `sallyport servers list` shows when it is done"}
}

func (a app) logout() *cobra.Command {
	var w adminapi.LoginWish
	cmd := &cobra.Command{Use: "logout NAME", Short: "Forget the tokens that a login gave", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return a.Did(cmd, "POST", "/servers/"+url.PathEscape(args[0])+"/logout", w, "logged out of "+args[0])
	}}
	whom(cmd, &w)
	return cmd
}

// authorise adds what the flags say about OAuth to a server's settings.
func (n *addition) authorise(config map[string]any) error {
	if n.oauth == "" && len(n.oauthSet) == 0 {
		return nil
	}
	o := map[string]any{"per": cmp.Or(n.oauth, "gateway")}
	for _, kv := range n.oauthSet {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" || k == "per" {
			return fmt.Errorf("%q is not KEY=VALUE", kv)
		}
		if o[k] = v; k == "scopes" {
			o[k] = strings.Fields(v)
		}
	}
	config["oauth"] = o
	return nil
}
