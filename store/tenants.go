package store

import "time"

// A TenantCall is a call that counts against the bounds of its tenant, at all
// gateways together. Zero bounds are none.
type TenantCall struct {
	Tenant, ID string

	Every       time.Duration // one call, and so
	Burst       int           // many at once
	Concurrency int           // in flight

	Lasts time.Duration // that it counts as in flight after the last sign of its gateway
}

// A TenantRefusal says why a call may not begin. Zero means that it does.
type TenantRefusal struct {
	Wait     time.Duration // for the rate
	InFlight int           // calls, which are as many as may be
}
