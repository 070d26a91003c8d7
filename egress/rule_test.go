package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"example.com:443": "example.com:443", "EXAMPLE.com.:443": "example.com:443", "a_b.example.com:1": "a_b.example.com:1",
		"192.0.2.7:80": "192.0.2.7:80", "[2001:db8::1]:443": "[2001:db8::1]:443", "[2001:0DB8::0:1]:443": "[2001:db8::1]:443",
		"xn--bcher-kva.example:443": "xn--bcher-kva.example:443", "localhost:65535": "localhost:65535", "1e100.net:443": "1e100.net:443",
	} {
		got, err := ParseTarget(in)
		if err != nil || got.String() != want {
			t.Errorf("ParseTarget(%q) = %v, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ":", "example.com", "example.com:", ":443", "example.com:0", "example.com:65536", "example.com:+1", "example.com:080", "example.com:http",
		"example.com:443:443", "user@example.com:443", "exa mple.com:443", "example.com\x00.evil.test:443", "example.com\n:443", "example.com/:443",
		"..:443", "example..com:443", "-a.com:443", "a-.com:443", "bücher.example:443", "example。com:443", "ⓔxample.com:443",
		"2130706433:80", "0x7f000001:80", "0177.0.0.1:80", "127.1:80", "127.0.0.1.:80", "0:80", "1.2.3.4.5:80", "0x7f.1:80", "a.0x10:80", "example.123:80",
		"::1:80", "[::1:80", "[example.com]:80", "[127.0.0.1]:80", "[fe80::1%eth0]:80", "[]:80", "fe80::1%1:80", "http://example.com:80",
	} {
		if got, err := ParseTarget(in); err == nil {
			t.Errorf("ParseTarget(%q) = %v, want an error", in, got)
		}
	}
}

func TestRules(t *testing.T) {
	rules, err := ParseRules([]string{"api.example.com:443", "*.cdn.example.com:443", "192.0.2.7:80", "[2001:db8::1]:443"})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]bool{
		"api.example.com:443": true, "API.example.com.:443": true, "api.example.com:80": false, "x.api.example.com:443": false, "example.com:443": false,
		"a.cdn.example.com:443": true, "a.b.cdn.example.com:443": true, "cdn.example.com:443": false, "evilcdn.example.com:443": false,
		"192.0.2.7:80": true, "192.0.2.8:80": false, "[2001:db8:0::1]:443": true, "[::ffff:192.0.2.7]:80": false,
		"api.example.com.evil.test:443": false,
	} {
		target, err := ParseTarget(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.Allow(target); got != want {
			t.Errorf("Allow(%s) = %t, want %t", in, got, want)
		}
	}
	for _, bad := range []string{"*:443", "*.com:443", "*.1.2.3.4:80", "**.example.com:443", "a.*.example.com:443", "example.com:*", "example.com"} {
		if _, err := ParseRules([]string{bad}); err == nil {
			t.Errorf("ParseRules(%q) was taken", bad)
		}
	}
}

func TestMayReach(t *testing.T) {
	own := netip.MustParseAddrPort("198.51.99.9:7450")
	b := &Broker{Own: []netip.AddrPort{own}}
	open := &Broker{Own: b.Own, Private: prefixes("0.0.0.0/0", "::/0")}
	for in, want := range map[string][2]bool{ // by default, and where the operator lists everything
		"93.184.216.34": {true, true}, "2606:2800:220:1::1": {true, true}, "198.51.99.10": {true, true},
		"127.0.0.1": {false, true}, "10.1.2.3": {false, true}, "172.31.0.1": {false, true}, "192.168.1.1": {false, true},
		"100.64.0.1": {false, true}, "169.254.1.1": {false, true}, "198.18.0.1": {false, true}, "240.0.0.1": {false, true},
		"::1": {false, true}, "fc00::1": {false, true}, "fe80::1": {false, true}, "::ffff:10.0.0.1": {false, true}, "::10.0.0.1": {false, true},
		"64:ff9b::a00:1": {false, true}, "2002:a00:1::1": {false, true}, "2001::1": {false, true},
		"169.254.169.254": {}, "::ffff:169.254.169.254": {}, "::169.254.169.254": {}, "64:ff9b::a9fe:a9fe": {}, "2002:a9fe:a9fe::1": {},
		"fd00:ec2::254": {}, "100.100.100.200": {}, "168.63.129.16": {}, "0.0.0.0": {}, "::": {}, "224.0.0.1": {}, "ff02::1": {}, "255.255.255.255": {},
		"198.51.99.9": {}, "::ffff:198.51.99.9": {},
	} {
		a, port := netip.MustParseAddr(in), uint16(80)
		if strings.Contains(in, "198.51.99.9") {
			port = own.Port()
		}
		if got := [2]bool{b.mayReach(a, port), open.mayReach(a, port)}; got != want {
			t.Errorf("mayReach(%s) = %v, want %v", in, got, want)
		}
	}
	if open.mayReach(netip.MustParseAddr("127.9.9.9"), 7450) || !open.mayReach(netip.MustParseAddr("127.9.9.9"), 7451) {
		t.Error("the gateway's port on the loopback interface")
	}
	if !b.mayReach(own.Addr(), 443) || open.mayReach(netip.MustParseAddr("fe80::1%eth0"), 443) {
		t.Error("another port of the gateway's address, or an address with a zone")
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:80", "0x7f.1:80", "127.1:80", "a\x00b:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := ParseTarget(s)
		if err != nil {
			return
		}
		again, err := ParseTarget(target.String())
		if err != nil || again != target {
			t.Fatalf("%q → %v → %v, %v", s, target, again, err)
		}
	})
}
