package tier

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

// MaxConnections bounds the connections that a Result tells of.
const MaxConnections = 64

// A Broker lets sandboxes reach what they may. (egress)
type Broker interface {
	// Authority makes one for one sandbox, good for as long as within.
	Authority(within time.Duration) (Authority, error)
	// Open serves l, the socket of one sandbox, for as long as within at most.
	// It takes l over. ca is what the sandbox trusts; it is needed where w injects
	// anything. end stops the service and tells what was attempted.
	Open(id string, w Way, ca Authority, within time.Duration, l *net.UnixListener) (end func() Passed, err error)
}

// An Authority signs for the hosts that secrets are injected for. The zero value
// is none.
type Authority struct {
	Cert []byte // PEM; the sandbox trusts it
	Key  []byte // PEM; never enters it
}

// A Teller is a Broker that also tells of a sandbox that goes on.
type Teller interface {
	// Tell tells what was attempted since it was told last. One goroutine asks of
	// one sandbox at a time.
	Tell(id string) []sallyport.Connection
}

// Passed is what a broker tells of one sandbox at its end.
type Passed struct {
	Egress      sallyport.AppliedEgress
	Connections []sallyport.Connection
}

// A Way says what a sandbox may reach. The zero value is nothing.
type Way struct {
	Reach  []string // host:port
	Inject []Injection
}

// An Injection is a secret that the broker adds to requests to one host. It
// never enters the sandbox.
type Injection struct {
	Name   string // of the secret
	Host   string // host:port, one of Reach
	Header string
	Prefix string
	Value  []byte
}

// A Socket is where a sandbox finds its way out.
type Socket struct {
	Path string // in a folder that is deleted as a whole
	Mode os.FileMode
	UID  int // and gid
}

// Check says why a host with this broker, nil for none, cannot open the way.
func (w Way) Check(b Broker) error {
	if len(w.Reach) == 0 || b != nil {
		return nil
	}
	return Unavailable("start the sandbox host with an egress broker", "this sandbox host lets nothing out, and the run is to reach %q", w.Reach)
}

// Serve makes the socket of one sandbox and has the broker serve it, as Broker.Open
// does. ca is what the sandbox trusts already; where that is nothing and secrets are
// injected, an authority is made. The way must lead somewhere.
func (w Way) Serve(b Broker, at Socket, id string, ca Authority, within time.Duration) (_ Authority, end func() Passed, err error) {
	if err := w.Check(b); err != nil {
		return ca, nil, err
	}
	if len(w.Inject) > 0 && ca.Cert == nil {
		if ca, err = b.Authority(within); err != nil {
			return ca, nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at.Path, Net: "unix"})
	if err != nil {
		return ca, nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(at.Path, at.Mode), os.Lchown(at.Path, at.UID, at.UID)); err != nil {
		l.Close()
		return ca, nil, err
	}
	end, err = b.Open(id, w, ca, within, l)
	return ca, end, err
}

// Denials tells what was asked of a sandbox that reaches nothing. targets are as its
// proxy was asked for them: addresses, or HOST:PORT.
func Denials(targets []string) []sallyport.Connection {
	count := map[string]int{}
	for _, t := range targets {
		count[hostPort(t)]++
	}
	var out []sallyport.Connection
	for _, t := range slices.Sorted(maps.Keys(count)) {
		out = append(out, sallyport.Connection{Target: t, Reason: "not_listed", Count: count[t]})
	}
	return out
}

// hostPort is where an address leads, as rules and the broker say it. What it holds
// beside that may be anybody's secret, also where it is no address.
func hostPort(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Hostname() == "" {
		_, where, found := strings.Cut(target, "//")
		if !found {
			where = target
		}
		if end := strings.IndexAny(where, "/?#"); end >= 0 {
			where = where[:end]
		}
		return cmp.Or(where[strings.LastIndexByte(where, '@')+1:], "/")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
