// Package egress is the only way out of a sandbox. A sandbox has no network
// interface; a program in it that wants to reach something speaks to a proxy on
// its loopback interface, which leads to a unix socket of a Broker. The socket
// is the sandbox's own, so whatever comes out of it is bounded by the one Grant
// that the Broker was given for it.
//
// The Broker denies by default. It resolves names itself, checks every address
// that a name has, and connects to the address that it checked: a name that
// changes its mind in between gains nothing. What is sent must be TLS for the
// host that was asked for, or HTTP whose Host says the same.
package egress

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"sallyport.dev/sallyport"
)

// A Grant is what one sandbox may reach. It lives in memory only.
type Grant struct {
	ID    string        `json:"id"`    // of the sandbox
	Rules []string      `json:"rules"` // host:port; see ParseRule
	Bytes int64         `json:"bytes"` // in both directions together, over all connections
	Rate  int64         `json:"rate"`  // bytes a second, over more than a second; see attemptBytes
	Conns int           `json:"conns"` // at once
	For   time.Duration `json:"for"`   // from now on

	Inject []Injection `json:"inject,omitempty"`
	CA     *Authority  `json:"ca,omitempty"` // of this sandbox, for HTTPS requests that secrets are injected into
}

// Check says why a grant cannot be served.
func (g Grant) Check() error {
	_, err := g.rules()
	return err
}

func (g Grant) rules() (Rules, error) {
	rules, err := ParseRules(g.Rules)
	if err != nil {
		return nil, err
	}
	for _, i := range g.Inject {
		if err := i.check(rules); err != nil {
			return nil, err
		}
	}
	g.CA = nil
	if data, err := json.Marshal(g); err != nil || len(data) > maxGrant {
		return nil, errors.Join(err, fmt.Errorf("the hosts and secrets of one run take %d bytes; at most %d fit", len(data), maxGrant))
	}
	if g.Conns <= 0 || g.Bytes <= 0 || g.Rate <= 0 || g.For <= 0 {
		return nil, fmt.Errorf("grant %s has no bounds", g.ID)
	}
	return rules, nil
}

// applied tells what a grant lets through: nothing, if it cannot be served.
func (g Grant) applied() (a sallyport.AppliedEgress) {
	rules, err := g.rules()
	if err != nil {
		return a
	}
	for _, r := range rules {
		a.Rules = append(a.Rules, r.String())
	}
	for _, i := range g.Inject {
		a.Injected = append(a.Injected, i.Name+" at "+i.Host)
	}
	return a
}

// An Event tells of one attempt to reach something.
type Event struct {
	Grant   string    `json:"grant"`
	Time    time.Time `json:"time"`
	Host    string    `json:"host"`
	Port    uint16    `json:"port"`
	Allowed bool      `json:"allowed"`
	Open    bool      `json:"open,omitempty"`    // it begins; it is told again when it is over
	Reason  Reason    `json:"reason,omitempty"`  // why not
	Address string    `json:"address,omitempty"` // that was connected to
	Bytes   int64     `json:"bytes,omitempty"`   // in both directions, once it is over
}

// A Reason says why something was not allowed.
type Reason string

// The reasons.
const (
	NotListed   Reason = "not_listed"      // the tool's list has no such host and port
	BadTarget   Reason = "bad_target"      // not a host and a port as they are written
	BadAddress  Reason = "address_refused" // the name leads to an address that is never reached
	NoAddress   Reason = "no_address"      // the name has no address
	NoAnswer    Reason = "no_answer"       // the host did not take the connection
	WrongName   Reason = "name_mismatch"   // SNI or Host says another host than was asked for
	NotSpoken   Reason = "protocol"        // neither TLS nor HTTP
	TooMuch     Reason = "limit"           // bytes, connections or time of the grant are used up
	Unsearched  Reason = "unsearchable"    // an answer that may hold an injected secret and cannot be searched
	NotTheProxy Reason = "not_a_proxy_request"
)

// A Resolver finds addresses. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Broker serves grants. Its fields may not change once it serves.
type Broker struct {
	Resolver Resolver                                                             // nil means the system's
	Dial     func(ctx context.Context, network, address string) (net.Conn, error) // nil means net.Dialer
	Private  []netip.Prefix                                                       // that the operator lets sandboxes reach
	Own      []netip.AddrPort                                                     // of the gateway: never reached; port 0 means all ports
	Report   func(Event)                                                          // must not block; nil drops
	Roots    *x509.CertPool                                                       // for HTTPS that secrets are injected into; nil means the system's
	Clock    func() time.Time                                                     // nil means time.Now
}

// Serve answers on the socket of one sandbox until ctx ends, the grant is over
// or the listener fails. It closes the listener and every connection.
func (b *Broker) Serve(ctx context.Context, l net.Listener, g Grant) error {
	rules, err := g.rules()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, g.For)
	defer cancel()
	s := &session{broker: b, grant: g, rules: rules}
	s.left.Store(g.Bytes)
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: dialPatience, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: log.New(io.Discard, "", 0),
	}
	srv.SetKeepAlivesEnabled(false) // a connection that rests would keep another from its turn
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	err = srv.Serve(netutil.LimitListener(l, g.Conns))
	cancel()
	s.leave()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// A session is the use of one grant.
type session struct {
	broker *Broker
	grant  Grant
	rules  Rules
	left   atomic.Int64 // bytes

	mu     sync.Mutex
	over   bool      // no request is taken any more
	paid   time.Time // when all so far is within the rate
	active sync.WaitGroup
}

// attemptBytes is what each attempt to reach something counts for.
const attemptBytes = 16 << 10

// pace waits where n bytes more are beyond a second's worth of the grant's rate.
func (s *session) pace(n int64) {
	s.mu.Lock()
	now := time.Now()
	if s.paid.Before(now) {
		s.paid = now
	}
	s.paid = s.paid.Add(time.Duration(float64(n) / float64(s.grant.Rate) * float64(time.Second)))
	wait := s.paid.Sub(now) - time.Second
	s.mu.Unlock()
	time.Sleep(wait)
}

// enter counts a request in, unless the grant is over.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.active.Add(1)
	}
	return !s.over
}

// leave waits until every request has ended and been reported.
func (s *session) leave() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.active.Wait()
}

func (s *session) report(t Target, e Event) {
	if s.broker.Report == nil {
		return
	}
	e.Grant, e.Time, e.Host, e.Port = s.grant.ID, s.broker.now(), t.Host, t.Port
	s.broker.Report(e)
}

func (b *Broker) now() time.Time {
	if b.Clock == nil {
		return time.Now()
	}
	return b.Clock()
}

// A denial is an attempt that was not allowed.
type denial struct {
	target Target
	reason Reason
	text   string // for whoever reads it inside the sandbox; nothing of the network behind is in it
}

func (d *denial) Error() string { return string(d.reason) + ": " + d.text }

// unread is a target that was not understood: as much of it as is told. A sandbox
// writes what it likes, and what it wrote is in the record.
func unread(host string) Target {
	return Target{Host: strings.ToValidUTF8(host[:min(len(host), 80)], "?")}
}

func deny(t Target, r Reason, format string, args ...any) *denial {
	return &denial{t, r, fmt.Sprintf(format, args...)}
}

// connect checks a target and connects to it.
func (s *session) connect(ctx context.Context, t Target) (*metered, *denial) {
	if !s.rules.Allow(t) {
		return nil, deny(t, NotListed, "%s is not among what this tool may reach", t)
	}
	if s.left.Load() <= 0 {
		return nil, deny(t, TooMuch, "the bytes that this run may transfer are used up")
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	addrs, err := s.broker.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	dial := s.broker.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	for _, a := range addrs {
		c, err := dial(ctx, "tcp", netip.AddrPortFrom(a, t.Port).String())
		if err == nil {
			return &metered{Conn: c, s: s}, nil
		}
	}
	return nil, deny(t, NoAnswer, "%s does not take the connection", t)
}

const (
	dialPatience = 10 * time.Second // for finding and reaching a host, and for a client to say what it wants
	maxHeader    = 64 << 10
)

// resolve returns the addresses of a target. One bad address spoils the name:
// whoever answers for it is not to be trusted with the others.
func (b *Broker) resolve(ctx context.Context, t Target) ([]netip.Addr, *denial) {
	addrs := []netip.Addr{t.Addr}
	if !t.Addr.IsValid() {
		r := b.Resolver
		if r == nil {
			r = net.DefaultResolver
		}
		var err error
		if addrs, err = r.LookupNetIP(ctx, "ip", t.Host); err != nil || len(addrs) == 0 {
			return nil, deny(t, NoAddress, "%s has no address", t.Host)
		}
	}
	for i, a := range addrs {
		if !b.mayReach(a, t.Port) {
			return nil, deny(t, BadAddress, "%s leads to an address that sandboxes may not reach", t)
		}
		addrs[i] = a.Unmap()
	}
	return addrs, nil
}

// A metered connection takes its bytes from the grant.
type metered struct {
	net.Conn
	s     *session
	bytes atomic.Int64
	spare bool // not used: each request of the tunnel had a connection of its own
}

var errUsedUp = errors.New("the bytes of the grant are used up")

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	return n, m.count(n, err)
}

func (m *metered) Write(p []byte) (int, error) {
	if m.s.left.Load() <= 0 {
		return 0, errUsedUp
	}
	n, err := m.Conn.Write(p)
	return n, m.count(n, err)
}

func (m *metered) count(n int, err error) error {
	m.s.pace(int64(n))
	m.bytes.Add(int64(n))
	if m.s.left.Add(-int64(n)) <= 0 && err == nil {
		return errUsedUp
	}
	return err
}
