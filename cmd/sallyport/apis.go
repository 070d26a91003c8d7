package main

import (
	"context"
	"net"
	"net/netip"

	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/egress"
)

// guarded connects for calls of HTTP APIs as the egress broker does for sandboxes:
// no private address that the operator does not list, no metadata service, not
// the gateway itself.
func guarded(c *config.Config) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	own, err := egress.OwnAddresses(c.Listen)
	if err != nil {
		return nil, err
	}
	b := &egress.Broker{Own: own}
	for _, s := range c.Egress.Private {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		b.Private = append(b.Private, p)
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := b.DialContext(ctx, network, address)
		if egress.Refusal(err) == egress.BadAddress {
			return nil, openapi.Refused("its name leads to an address that calls may not reach")
		}
		return conn, err
	}, nil
}
