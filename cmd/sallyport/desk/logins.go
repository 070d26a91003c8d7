package desk

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/adminapi"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/authz"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/secret/vault"
	"sallyport.dev/sallyport/store"
	"sallyport.dev/sallyport/store/holdings"
	"sallyport.dev/sallyport/store/relational"
)

// Authorisations are what servers with oauth need.
type Authorisations struct {
	*authz.Keeper
	Base    string                              // where humans reach the gateway
	Way     func(link string) http.RoundTripper // to the authorization server of the server at link
	Servers http.RoundTripper                   // to servers
}

// Authorise returns what authorises the gateway at servers; base is where humans come
// back to, way how authorization servers are reached, and servers
// how servers are.
func Authorise(base string, way func(link string) http.RoundTripper, servers http.RoundTripper, db *relational.Store, box store.Box, changed func(string, authz.Identity), log *slog.Logger) *Authorisations {
	return &Authorisations{Base: base, Way: way, Servers: servers, Keeper: authz.New(authz.Options{
		Vault: vault.Vault{Tenant: sallyport.DefaultTenant, Store: holdings.Store{DB: db.DB}, Box: box}, Holder: db.Writer(), Log: log, Changed: changed,
	})}
}

// authorise has a server's requests carry tokens.
func (d *Servers) authorise(ctx context.Context, name string, s config.Server, c *upstream.Config, resolve func(string) (string, error)) error {
	o := s.OAuth
	if o.Grant == "" {
		d.Authz.Drop(name)
		return nil
	}
	password, err := resolve(o.ClientSecret)
	if err != nil {
		return err
	}
	key, err := resolve(o.PrivateKey)
	if err != nil {
		return err
	}
	err = d.Authz.Add(ctx, authz.Config{
		Server: name, URL: s.URL, Grant: o.Grant, Per: o.Per, Issuer: o.Issuer, ClientID: o.ClientID, Secret: password, Key: key,
		Document: o.MetadataURL, Scopes: o.Scopes, Redirect: d.Authz.Base + authz.RedirectPath(name), HTTP: d.Authz.Way(s.URL),
	})
	if err != nil {
		return err
	}
	c.HTTP = d.Authz.Transport(name, authz.Gateway, d.Authz.Servers)
	c.Apart = func(who sallyport.Principal) (string, http.RoundTripper, error) {
		id, err := d.Authz.For(name, who)
		if err != nil || id == authz.Gateway {
			return "", nil, err
		}
		return string(id), d.Authz.Transport(name, id, d.Authz.Servers), nil
	}
	return nil
}

// credential names what calls of a server with oauth are made with.
func credential(o config.OAuth) string {
	if o.Grant == "" {
		return ""
	}
	return strings.Join([]string{"oauth", o.Grant, o.Per, o.Issuer, o.ClientID}, " ")
}

// LoggedIn has a server be asked again for whom something has changed.
func (d *Servers) LoggedIn(server string, id authz.Identity) {
	key := string(id)
	if id == authz.Gateway {
		key = ""
	}
	d.Backend.Again(server, key)
}

// Tokens are those in hand, to recognise them where they must not be.
func (d *Servers) Tokens() (all []secret.Value) {
	if d == nil || d.Authz == nil {
		return nil
	}
	for token, server := range d.Authz.Known() {
		all = append(all, secret.Value{Name: "token of server " + server, Value: token})
	}
	return all
}

func identityOf(w adminapi.LoginWish) authz.Identity {
	switch {
	case w.Agent != "":
		return authz.Identity(authz.PerAgent + ":" + w.Agent)
	case w.User != "":
		return authz.Identity(authz.PerUser + ":" + w.User)
	}
	return authz.Gateway
}

// BeginLogin starts a login of a human at a server.
func (d *Servers) BeginLogin(ctx context.Context, server string, w adminapi.LoginWish, by string) (adminapi.ServerLogin, error) {
	if w.Agent != "" {
		if _, err := d.Store.Agent(ctx, d.Tenant, w.Agent); err != nil {
			return adminapi.ServerLogin{}, err
		}
	}
	l, err := d.Authz.Begin(ctx, server, authz.Wish{For: identityOf(w), Issuer: w.Issuer, By: by})
	return adminapi.ServerLogin{Server: l.Server, For: string(l.For), URL: l.URL, Issuer: l.Issuer, Scopes: l.Scopes, Expires: l.Expires}, err
}

// EndLogin forgets what a login gave.
func (d *Servers) EndLogin(ctx context.Context, server string, w adminapi.LoginWish, e sallyport.Entry) error {
	return d.Authz.Logout(ctx, server, identityOf(w), e)
}

// grants says what is held for a server, and what is missing.
func (d *Servers) grants(ctx context.Context, name string) (out []adminapi.ServerGrant) {
	all, _ := d.Authz.Status(ctx, name)
	for _, g := range all {
		out = append(out, adminapi.ServerGrant{For: string(g.Identity), Issuer: g.Issuer, Scopes: g.Scopes, Since: g.Since, Wants: g.Wants})
	}
	return out
}

// Missing says of each server with oauth what its authorisation lacks, "" if nothing.
func Missing(servers []adminapi.ServerStatus) map[string]string {
	out := map[string]string{}
	for _, s := range servers {
		if len(s.OAuth) > 0 {
			out[s.Name] = wanting(s.OAuth)
		}
	}
	return out
}

// wanting says in one line what a server's authorisation lacks, "" if nothing.
func wanting(all []adminapi.ServerGrant) string {
	var lacks []string
	for _, g := range all {
		if g.Wants != "" {
			lacks = append(lacks, cmp.Or(g.For, "gateway")+" needs "+g.Wants)
		}
	}
	return strings.Join(lacks, "; ")
}
