package desk

import (
	"context"
	"slices"

	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/backend/upstream"
	"sallyport.dev/sallyport/backend/upstream/breaker"
	"sallyport.dev/sallyport/telemetry"
)

// Silent names the servers that have not told their tools yet, whatever the
// reason. A configuration that cannot be used is not waited for.
func (d *Servers) Silent() []string {
	names := d.Backend.Silent()
	for _, s := range d.APIs.Status() {
		if s.State == openapi.StateStarting || s.State == openapi.StateDown {
			names = append(names, s.Name)
		}
	}
	return names
}

// Down names the servers that take no calls just now. What they told before still
// counts.
func (d *Servers) Down() []string {
	names := d.Backend.Down()
	for _, s := range d.APIs.Status() {
		if s.State == openapi.StateDown || s.Circuit == breaker.Open {
			names = append(names, s.Name)
		}
	}
	return names
}

// Health is how each server does, for the metrics.
func (d *Servers) Health(ctx context.Context) (all []telemetry.Server) {
	silent := d.Silent()
	list, _ := d.ServerStatus(ctx)
	for _, s := range list {
		all = append(all, telemetry.Server{
			Name: s.Name, Ready: s.State == string(upstream.StateReady), Silent: slices.Contains(silent, s.Name),
			Circuit: s.Circuit, Opened: s.Opened, Restarts: s.Restarts,
		})
	}
	return all
}
