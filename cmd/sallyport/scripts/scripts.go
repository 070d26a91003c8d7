// Package scripts wires what lets programs in sandboxes call tools.
package scripts

import (
	"context"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/sandbox"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/script"
)

// A Store is what scripts need of one.
type Store interface {
	script.Agents
	script.Past
}

// Wire lets the programs of a sandbox host, nil if there is none, call tools. It
// returns the gateway that their calls go through, which differs from door in whose
// credentials it takes.
func Wire(host *sandbox.Backend, db Store, door *gateway.Gateway, policies gateway.Authorizer, plans gateway.Plans,
	build func(gateway.Authenticator, gateway.Authorizer, gateway.Plans) *gateway.Gateway) *gateway.Gateway {
	seal := &script.Seal{Agents: db, Door: door}
	path := build(seal, script.Sealed{Authorizer: policies, Seal: seal}, plans)
	engine := &script.Engine{Seal: seal, Path: path, Past: db}
	if host != nil {
		host.Scripts(func(ctx context.Context, job sallyport.Job, tools []string) (sandbox.Script, error) {
			r, err := engine.Open(ctx, job, tools)
			if err != nil {
				return nil, err // and no Run within an interface
			}
			return r, nil
		})
	}
	return path
}
