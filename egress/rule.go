package egress

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Target is a host and a port that somebody wants to reach.
type Target struct {
	Host string     // lower case, no final dot; an address in its shortest form
	Port uint16     // never 0
	Addr netip.Addr // valid if the host is an address
}

func (t Target) String() string {
	if t.Addr.Is6() {
		return fmt.Sprintf("[%s]:%d", t.Host, t.Port)
	}
	return fmt.Sprintf("%s:%d", t.Host, t.Port)
}

// ParseTarget reads HOST:PORT. There is one way to write a host: letters,
// digits, hyphens and dots, or an address in its usual form. Every other form
// that some program somewhere takes for an address (octal, hexadecimal, one
// number, fewer than four parts, a zone) is refused, as is anything that is not
// ASCII: a name in another script is written in its xn-- form.
func ParseTarget(s string) (Target, error) {
	host, port, err := splitTarget(s)
	if err != nil {
		return Target{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
		return Target{}, fmt.Errorf("%.80q has no port from 1 to 65535", s)
	}
	t := Target{Port: uint16(n)}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return Target{}, fmt.Errorf("%.80q has a zone", s)
		}
		if a.Is6() != (s[0] == '[') {
			return Target{}, fmt.Errorf("%.80q: an IPv6 address, and nothing else, stands in brackets", s)
		}
		t.Addr = a
		t.Host = a.String()
		return t, nil
	}
	if s[0] == '[' {
		return Target{}, fmt.Errorf("%.80q: no IPv6 address stands in the brackets", s)
	}
	t.Host = strings.TrimSuffix(strings.ToLower(host), ".")
	return t, checkName(t.Host)
}

func splitTarget(s string) (host, port string, err error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || i == len(s)-1 {
		return "", "", fmt.Errorf("%.80q is not HOST:PORT", s)
	}
	host, port = s[:i], s[i+1:]
	if host[0] == '[' {
		if host[len(host)-1] != ']' || len(host) < 3 {
			return "", "", fmt.Errorf("%.80q has an open bracket", s)
		}
		host = host[1 : len(host)-1]
	} else if strings.IndexByte(host, ':') >= 0 {
		return "", "", fmt.Errorf("%.80q: an IPv6 address stands in brackets", s)
	}
	return host, port, nil
}

// checkName refuses what is no DNS name, and what resolvers may read as an
// address: a name whose last label is a number (URL standard, "ends in a number").
func checkName(name string) error {
	if len(name) == 0 || len(name) > 253 {
		return fmt.Errorf("a host name has 1 to 253 characters")
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if len(l) == 0 || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return fmt.Errorf("%.80q is not a host name", name)
		}
		for _, c := range []byte(l) {
			if c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return fmt.Errorf("%.80q is not a host name: write letters, digits and hyphens", name)
			}
		}
	}
	last := labels[len(labels)-1]
	if last[0] >= '0' && last[0] <= '9' && isNumber(last) {
		return fmt.Errorf("%.80q could be read as an address", name)
	}
	return nil
}

func isNumber(s string) bool {
	if strings.HasPrefix(s, "0x") {
		s = s[2:]
		return strings.Trim(s, "0123456789abcdef") == ""
	}
	return strings.Trim(s, "0123456789") == ""
}

// Rules are what a tool may reach.
type Rules []rule

type rule struct {
	Target
	below bool // any name below Host
}

func (r rule) String() string {
	if r.below {
		return "*." + r.Target.String()
	}
	return r.Target.String()
}

// ParseRules reads an allow-list: host:port, or *.host:port for any name below
// a host that has at least two labels.
func ParseRules(list []string) (Rules, error) {
	rules := make(Rules, 0, len(list))
	for _, s := range list {
		text, below := strings.CutPrefix(s, "*.")
		t, err := ParseTarget(text)
		if err != nil {
			return nil, fmt.Errorf("egress rule: %w", err)
		}
		if below && (t.Addr.IsValid() || strings.IndexByte(t.Host, '.') < 0) {
			return nil, fmt.Errorf("egress rule: %.80q: *. stands before a name of at least two labels", s)
		}
		rules = append(rules, rule{t, below})
	}
	return rules, nil
}

// Allow tells whether a target is on the list.
func (r Rules) Allow(t Target) bool {
	for _, rule := range r {
		if rule.Port != t.Port {
			continue
		}
		if rule.below && !t.Addr.IsValid() && strings.HasSuffix(t.Host, "."+rule.Host) || !rule.below && rule.Host == t.Host {
			return true
		}
	}
	return false
}
