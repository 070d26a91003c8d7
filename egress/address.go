package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// never lists what no sandbox reaches, whatever the operator lists: the
// metadata services of the clouds, which give out credentials.
var never = prefixes(
	"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", // AWS, GCP, Azure, ECS, EKS
	"fd00:ec2::/32",      // AWS over IPv6
	"fd20:ce::254/128",   // GCP over IPv6
	"100.100.100.200/32", // Alibaba
	"168.63.129.16/32",   // Azure's wire server
	"192.0.0.192/32",     // Oracle
	"0.0.0.0/8", "::/128", "255.255.255.255/32",
	"224.0.0.0/4", "ff00::/8", // multicast
)

// private lists what is reached only where the operator lists it. The source is
// IANA's special-purpose address registries (RFC 6890), and the forms of IPv6
// that carry an IPv4 address.
var private = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "100.64.0.0/10",
	"192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "192.88.99.0/24", "240.0.0.0/4",
	"::/96", "::1/128", "fc00::/7", "fe80::/10", "fec0::/10",
	"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16",
)

// embedding lists the forms of IPv6 whose last four bytes are an IPv4 address.
var embedding = prefixes("::/96", "64:ff9b::/96", "64:ff9b:1::/48")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// DialContext connects as for a sandbox: to an address that was checked after the
// name was resolved, whatever the name leads to at another moment.
func (b *Broker) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	t, err := ParseTarget(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	addrs, refusal := b.resolve(ctx, t)
	if refusal != nil {
		return nil, refusal
	}
	dial := b.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	for _, a := range addrs {
		var c net.Conn
		if c, err = dial(ctx, "tcp", netip.AddrPortFrom(a, t.Port).String()); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// Refusal returns why an error of DialContext says no, "" if it does not.
func Refusal(err error) Reason {
	if d, ok := errors.AsType[*denial](err); ok {
		return d.reason
	}
	return ""
}

// mayReach tells whether an address may be connected to at all.
func (b *Broker) mayReach(a netip.Addr, port uint16) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap() // ::ffff:10.0.0.1 is 10.0.0.1
	if within(never, a) || embedsNever(a) {
		return false
	}
	for _, own := range b.Own {
		same := own.Addr().Unmap() == a || a.IsLoopback() // a listener on every address is behind all of 127.0.0.0/8
		if same && (own.Port() == 0 || own.Port() == port) {
			return false
		}
	}
	return !within(private, a) || within(b.Private, a)
}

// OwnAddresses are those at which a gateway that listens on s is found.
func OwnAddresses(s string) ([]netip.AddrPort, error) {
	tcp, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		return nil, err
	}
	at := tcp.AddrPort()
	if at.Addr().IsValid() && !at.Addr().IsUnspecified() {
		return []netip.AddrPort{at}, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	out := []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())} // so that loopback counts on its own
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, netip.AddrPortFrom(p.Addr(), at.Port()))
		}
	}
	return out, nil
}

// embedsNever finds the metadata services behind the IPv6 forms that a network
// may translate to IPv4: compatible, NAT64 and 6to4 addresses. Listing such a
// range as private must not open them.
func embedsNever(a netip.Addr) bool {
	if !a.Is6() || a == netip.IPv6Loopback() {
		return false
	}
	b := a.As16()
	tail := netip.AddrFrom4([4]byte(b[12:16]))
	sixToFour := netip.AddrFrom4([4]byte(b[2:6]))
	switch {
	case within(embedding, a):
		return within(never, tail)
	case b[0] == 0x20 && b[1] == 0x02:
		return within(never, sixToFour)
	}
	return false
}
