package web

import (
	"encoding/base32"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// metadataNames lead to a cloud's credentials, hereNames to the machine itself or to
// what commands it.
var (
	metadataNames = []string{"metadata", "metadata.google.internal", "instance-data", "metadata.azure.internal", "metadata.tencentyun.com", "metadata.platformequinix.com"}
	hereNames     = []string{"localhost", "kubernetes.default", "kubernetes.default.svc", "host.docker.internal", "gateway.docker.internal"}
)

// A nearness says how much it counts that a host is this machine, or one of a
// private network: to ask there reads what the outside cannot, to change
// something there is more.
type nearness struct{ here, private sallyport.Level }

func nearTo(r Request, verb string) nearness {
	if r.Guessed {
		verb = ""
	}
	return near(verb)
}

func near(verb string) nearness {
	if safe(strings.ToUpper(strings.TrimSpace(verb))) {
		return nearness{sallyport.Medium, sallyport.Medium}
	}
	return nearness{sallyport.Critical, sallyport.High}
}

// mapped are domains whose names stand for the address written in them.
var mapped = []string{"nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me", "vcap.me", "lacolhost.com", "rbndr.us", "1u.ms"}

// A host is where a request goes, as programs understand it.
func host(l *finding.List, u *url.URL, n nearness) string {
	raw := u.Hostname()
	name := strings.ToLower(norm.NFKC.String(raw))
	name = strings.Map(func(r rune) rune {
		if r == '。' || r == '．' || r == '｡' {
			return '.'
		}
		return r
	}, name)
	name = strings.TrimRight(name, ".")
	if name == "" {
		l.Add(sallyport.Critical, "the URL names no host")
		return ""
	}
	l.Object(u.Host)
	if !ascii(raw) {
		l.Part("", "host", raw)
		if to, err := idna.Lookup.ToASCII(raw); err == nil {
			l.Object(to)
			if isAddress(to) {
				l.Add(sallyport.Critical, "the host %s is an address in an unusual form", raw)
			}
		} else {
			l.Add(sallyport.Critical, "the host %s is a name that is not allowed", raw)
		}
	}
	if why := OddName(name); why != "" {
		l.Part("", "host", name)
		l.Add(sallyport.Critical, "the host %s %s", name, why)
	}
	port(l, u, n)
	inner(l, name, n)
	labels(l, name)
	return name
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || odd(s)
}

// strange are ports of services that are not the web: a request there speaks to
// something else.
var strange = map[int]string{21: "FTP", 22: "SSH", 23: "Telnet", 25: "mail", 110: "mail", 111: "RPC", 135: "RPC", 139: "file shares", 143: "mail", 389: "LDAP",
	445: "file shares", 465: "mail", 587: "mail", 873: "rsync", 2375: "Docker", 2376: "Docker", 2379: "etcd", 3306: "MySQL", 4243: "Docker", 5432: "PostgreSQL",
	6379: "Redis", 7379: "Redis", 9222: "a browser's remote control", 9229: "a debugger", 6443: "Kubernetes", 10250: "Kubernetes", 10255: "Kubernetes", 11211: "memcached", 27017: "MongoDB"}

func port(l *finding.List, u *url.URL, near nearness) {
	p := u.Port()
	if p == "" {
		return
	}
	n, err := strconv.Atoi(p)
	switch {
	case err != nil || n < 1 || n > 65535:
		l.Add(sallyport.Critical, "the URL's port %s is none", p)
	case n == 6443 || n == 2379: // they speak HTTP
		l.Add(near.private, "port %d is one of %s", n, strange[n])
	case strange[n] != "":
		l.Add(sallyport.High, "port %d is one of %s, not of the web", n, strange[n])
	}
}

func inner(l *finding.List, host string, near nearness) {
	is := func(n string) bool {
		return host == n || strings.HasSuffix(host, "."+n) || strings.HasPrefix(host, n+".svc.")
	}
	switch {
	case slices.ContainsFunc(metadataNames, is):
		l.Add(sallyport.Critical, "the host %s is a cloud's metadata service", host)
		return
	case slices.ContainsFunc(hereNames, is):
		l.Add(near.here, "the host %s is this machine or its cluster", host)
		return
	}
	for _, m := range mapped {
		if host == m || strings.HasSuffix(host, "."+m) {
			l.Add(sallyport.Critical, "the host %s stands for an address that is written in it", host)
			return
		}
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		where(l, host, addr.WithZone(""), near)
	case odd(host):
		l.Add(sallyport.Critical, "the host %s is an address in an unusual form", host)
	case !strings.Contains(host, ".") && !strings.Contains(host, ":"):
		l.Add(near.private, "the host %s is a name of the local network", host)
	default:
		for _, end := range []string{".internal", ".local", ".lan", ".intranet", ".corp", ".home.arpa", ".cluster.local", ".consul", ".svc"} {
			if strings.HasSuffix(host, end) {
				l.Add(near.private, "the host %s is in a private network", host)
				return
			}
		}
	}
}

// metadata are the addresses of clouds' metadata services: AWS and most others,
// AWS over IPv6, ECS tasks, Alibaba, Azure's wire server, Oracle.
var metadata = []string{"169.254.169.254", "fd00:ec2::254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"}

var (
	carrier  = netip.MustParsePrefix("100.64.0.0/10")     // RFC 6598
	zero     = netip.MustParsePrefix("0.0.0.0/8")         // RFC 1122: this network
	reserved = netip.MustParsePrefix("240.0.0.0/4")       // RFC 1112, broadcast included
	nat64    = netip.MustParsePrefix("64:ff9b::/96")      // RFC 6052
	sixto4   = netip.MustParsePrefix("2002::/16")         // RFC 3056
	teredo   = netip.MustParsePrefix("2001::/32")         // RFC 4380
	compat   = netip.MustParsePrefix("::/96")             // RFC 4291: IPv4-compatible
	siit     = netip.MustParsePrefix("::ffff:0:0:0/96")   // RFC 7915: IPv4-translated
	isatap   = netip.MustParsePrefix("fe80::5efe:0:0/96") // RFC 5214
)

func where(l *finding.List, host string, addr netip.Addr, near nearness) {
	addr = addr.Unmap()
	if addr.Is6() {
		b := addr.As16()
		var in netip.Addr
		switch {
		case nat64.Contains(addr), siit.Contains(addr), isatap.Contains(addr), compat.Contains(addr) && b[12] != 0:
			in = netip.AddrFrom4([4]byte(b[12:16]))
		case sixto4.Contains(addr):
			in = netip.AddrFrom4([4]byte(b[2:6]))
		case teredo.Contains(addr):
			l.Add(sallyport.Critical, "the host %s is an address in an unusual form", host)
		}
		if in.IsValid() {
			l.Add(sallyport.High, "the host %s holds the address %s", host, in)
			where(l, host, in, nearness{sallyport.Critical, sallyport.High}) // it hides where it goes
			return
		}
	}
	switch {
	case isMetadata(addr):
		l.Add(sallyport.Critical, "the host %s is a cloud's metadata service", host)
	case addr.IsLoopback():
		l.Add(near.here, "the host %s is this machine", host)
	case addr.IsUnspecified() || zero.Contains(addr):
		l.Add(sallyport.Critical, "the host %s is this machine", host)
	case addr.IsLinkLocalUnicast() || addr.IsMulticast() || reserved.Contains(addr):
		l.Add(sallyport.Critical, "the host %s is a link-local, multicast or reserved address", host)
	case addr.IsPrivate() || carrier.Contains(addr):
		l.Add(near.private, "the host %s is in a private network", host)
	}
}

func isMetadata(addr netip.Addr) bool {
	for _, m := range metadata {
		if addr == netip.MustParseAddr(m) {
			return true
		}
	}
	return false
}

// odd finds addresses written as one number, in hex or octal, or with fewer
// than four parts, which resolvers accept and filters miss.
func odd(host string) bool {
	if host == "" {
		return false
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// labels sees data that is written into a host's name: names are looked up by
// servers that the name's owner chooses.
func labels(l *finding.List, host string) {
	for label := range strings.SplitSeq(host, ".") {
		if len(label) >= 32 && !strings.HasPrefix(label, "xn--") && dense(label) {
			l.Add(sallyport.High, "the host's name carries data: %s", label)
		}
	}
}

// dense tells whether a label is data rather than a name: hex or base32 of some
// length.
func dense(label string) bool {
	if strings.Trim(label, "0123456789abcdef") == "" {
		return true
	}
	_, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(label))
	return err == nil && strings.ContainsAny(label, "234567")
}
