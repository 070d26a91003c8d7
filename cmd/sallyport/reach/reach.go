// Package reach says which addresses the gateway itself connects to, for HTTP APIs,
// for MCP servers behind a URL, and for the authorization servers of those.
package reach

import (
	"context"
	"net"
	"net/netip"

	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/egress"
)

// APIs connects for calls of HTTP APIs as the egress broker does for sandboxes:
// no private address that the operator does not list, no metadata service, not
// the gateway itself.
func APIs(c *config.Config) (Dial, error) {
	return behind(c, c.Egress.Private, openapi.Refused("its name leads to an address that calls may not reach"))
}

// Servers connects to MCP servers behind a URL. The operator names each, on a
// private network as a rule; but no name leads to a metadata service, or back to
// the gateway itself.
func Servers(c *config.Config) (Dial, error) {
	return behind(c, []string{"0.0.0.0/0", "::/0"}, openapi.Refused("its name leads to a metadata service, or back to this gateway itself, so it is not used"))
}

// A Dial connects to an address that was checked.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

func behind(c *config.Config, private []string, refusal error) (Dial, error) {
	own, err := egress.OwnAddresses(c.Listen)
	if err != nil {
		return nil, err
	}
	b := &egress.Broker{Own: own}
	for _, s := range private {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		b.Private = append(b.Private, p)
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := b.DialContext(ctx, network, address)
		if egress.Refusal(err) == egress.BadAddress {
			return nil, refusal
		}
		return conn, err
	}, nil
}
