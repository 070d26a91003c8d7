// Package holding wires the calls that wait for their clients' answers, in this
// gateway and in those of the same database.
package holding

import (
	"net"
	"net/http"
	"time"

	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/gateway/held"
	"sallyport.dev/sallyport/store/relational"
)

// Address is where the other gateways of the database reach this one, "" if the
// configuration does not tell.
func Address(c *config.Config) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return c.Listen
}

// New returns the calls that a gateway holds. key is one that the gateways of the
// database share.
func New(c *config.Config, db *relational.Store, key []byte) (*held.Calls, error) {
	return held.New(held.Options{
		Key: key, Replica: db.Writer(), Peers: held.NewPeers(key, db.Address), Wait: c.Limits.Answer, Now: time.Now,
	})
}

// Beside takes what other gateways pass on, and leaves the rest to next. It stands
// before what looks at names of hosts: gateways use addresses, and a key.
func Beside(calls *held.Calls, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == held.Path {
			calls.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
