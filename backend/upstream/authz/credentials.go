package authz

import (
	"context"

	"sallyport.dev/sallyport/oauth/discovery"
)

// prepare fills in where the gateway's own credentials are shown. That is the
// issuer of the configuration and no other, whatever the server names.
func (k *Keeper) prepare(ctx context.Context, s *server, g *grant) error {
	if g.Issuer == s.Issuer && g.URL == s.URL && g.Fails == 0 && g.Client.ClientID == s.ClientID && g.Client.Secret == s.Secret && g.Client.Key == s.Key {
		return nil
	}
	r, at, err := k.find(ctx, s, "")
	if err != nil {
		return err
	}
	reg, err := k.register(ctx, s, at)
	if err != nil {
		return err
	}
	if g.Issuer != at.Issuer || g.URL != s.URL {
		*g = grant{}
	}
	g.ownership, g.Issuer, g.At, g.Client, g.Resource, g.Began = ownership{s.URL}, at.Issuer, at, reg, r.Resource, k.Now()
	g.Asked = discovery.Union(g.Asked, s.scopes(r, at, grant{}))
	return nil
}
