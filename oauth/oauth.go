// Package oauth is the gateway's own authorization server, in its first form,
// and the check of the tokens that it issues.
//
// An agent exchanges its client secret at POST /oauth/token for an access
// token: a JWT signed with Ed25519 that is good for one resource of this
// gateway, for ten minutes. What an agent may do is not in the token. Its
// roles and state are looked up at each use, so that a suspended agent stops
// at once.
//
// Humans do not get tokens here: Logins remembers who logged in from where.
package oauth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// Lifetime is how long an access token is good.
const Lifetime = 10 * time.Minute

// Skew is how far the clocks of gateways that share a key may differ.
const Skew = 5 * time.Second

// Agents finds agents. The store implements it.
type Agents interface {
	// Agent returns the agent, or an error with code NotFound.
	Agent(ctx context.Context, tenant, id string) (sallyport.Agent, error)
}

// A Config says what a Server and a Verifier need to know.
type Config struct {
	Issuer    string   // the gateway's external URL, without a slash at the end
	Resources []string // URLs that tokens can be for, exactly; the first is the default
	Keys      *Keys
	Agents    Agents
	Now       func() time.Time // nil means time.Now
}

func (c Config) check() (Config, error) {
	if c.Issuer == "" || strings.HasSuffix(c.Issuer, "/") {
		return c, fmt.Errorf("issuer %q: want a URL without a slash at the end", c.Issuer)
	}
	if len(c.Resources) == 0 || slices.Contains(c.Resources, "") {
		return c, fmt.Errorf("resources %q: want at least one, none empty", c.Resources)
	}
	if c.Keys == nil || c.Agents == nil {
		return c, fmt.Errorf("keys and agents are needed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

// ClientID is how an agent names itself at the token endpoint: its id, with
// the tenant before it unless that is the default one.
func ClientID(tenant, id string) string {
	if tenant == sallyport.DefaultTenant {
		return id
	}
	return tenant + "/" + id
}

// splitClientID is the inverse of ClientID.
func splitClientID(client string) (tenant, id string) {
	if tenant, id, ok := strings.Cut(client, "/"); ok {
		return tenant, id
	}
	return sallyport.DefaultTenant, client
}

// active says why an agent may not act now, or nil.
func active(a sallyport.Agent) error {
	if a.State == "active" {
		return nil
	}
	return fmt.Errorf("the agent is %q", a.State)
}
