package deciding

import (
	"context"

	"sallyport.dev/sallyport/gateway"
)

// Patient waits for humans only as long as the gateway serves: who waits when
// it stops is told that the call still needs one.
type Patient struct {
	gateway.Tickets
	Serving context.Context //nolint:containedctx // the gateway's life, not a call's
}

// Wait is that of Tickets, until the gateway stops.
func (p Patient) Wait(ctx context.Context, tenant, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.Serving, cancel)()
	return p.Tickets.Wait(ctx, tenant, id)
}
