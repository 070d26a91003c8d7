// Package strangers counts requests without a good credential by where they come
// from. Whom a request is from decides what it may have, never where it comes from:
// many share one address. Only these requests have nobody else to count them by, so
// they are counted apart from all others, and who has a good credential from the
// same address is not concerned.
package strangers

import (
	"net"
	"net/netip"
	"time"

	"sallyport.dev/sallyport/limit/gcra"
)

const (
	perSecond = 20 // from one address
	atOnce    = 400
	known     = 16_384 // addresses
)

// A Count is safe for concurrent use.
type Count struct{ by *gcra.Table }

// New returns a count with a rate for each address; a zero rate is 20 a second,
// 400 at once.
func New(rate gcra.Rate) *Count {
	if rate == (gcra.Rate{}) {
		rate = gcra.PerSecond(perSecond, atOnce)
	}
	return &Count{gcra.NewTable(rate, known)}
}

// Add counts a request from a remote address, HOST:PORT. Where too many come from
// there it returns how long to wait.
func (c *Count) Add(remote string, now time.Time) (wait time.Duration) {
	from := origin(remote)
	if c.by.Add(from, now) {
		return 0
	}
	return max(c.by.Wait(from, now), time.Millisecond)
}

// origin is the address of a client: of IPv6 the network, of which every client
// has many addresses.
func origin(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap().WithZone(""); a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
