// Package hosts says under which names the gateway may be addressed, and which web
// pages may talk to it.
package hosts

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// A Policy says under which names the gateway may be addressed and which
// web pages may talk to it. It stops a page that makes a browser reach a
// loopback listener through a name of its own (DNS rebinding). Every HTTP
// face of the gateway uses it.
type Policy struct {
	// Hosts may be in the Host header besides loopback names and addresses
	// with the listener's own port: "gw.example.com" (with any port) or
	// "gw.example.com:8443".
	Hosts []string

	// Origins may be in the Origin header besides the gateway's own loopback
	// address: "https://console.example.com".
	Origins []string
}

// Guard answers 403 to a request that the policy does not allow, before the
// body is read. A missing Origin is allowed: only browsers send one, and every
// request needs a credential that no browser adds by itself. No CORS header is
// ever sent.
func (p Policy) Guard(next http.Handler) http.Handler {
	g := guard{hosts: lowerSet(p.Hosts), origins: lowerSet(p.Origins)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := g.check(r); why != "" {
			w.Header().Set("Connection", "close")
			http.Error(w, "403 forbidden: "+why, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type guard struct{ hosts, origins map[string]bool }

func lowerSet(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[strings.ToLower(strings.TrimSuffix(s, "/"))] = true
	}
	return set
}

// check returns why the request is refused, or "".
func (g guard) check(r *http.Request) string {
	host := strings.ToLower(r.Host)
	own, loopback := g.hostAllowed(host, r)
	if !own {
		return fmt.Sprintf("host %.100q is not one of the gateway's; name it under `hosts` in sallyport.yaml if it should be", r.Host)
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return ""
	}
	if len(origins) == 1 && g.originAllowed(strings.ToLower(origins[0]), host, loopback) {
		return ""
	}
	return fmt.Sprintf("origin %.100q may not talk to the gateway; name it under `origins` in sallyport.yaml if it should", strings.Join(origins, ", "))
}

// hostAllowed reports whether the gateway may be called host, and whether
// host is a loopback name.
func (g guard) hostAllowed(host string, r *http.Request) (own, loopback bool) {
	name, port := splitHost(host)
	if isLoopback(name) {
		local, ok := localPort(r)
		if ok && (local == "" || port == local || port == "" && (local == "80" || local == "443")) {
			return true, true
		}
	}
	return host != "" && (g.hosts[host] || g.hosts[name]), false
}

func (g guard) originAllowed(origin, host string, loopback bool) bool {
	if g.origins[origin] {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || !loopback || u.Host != host {
		return false
	}
	return origin == "http://"+host || origin == "https://"+host
}

func splitHost(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return host, ""
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return name, port
}

// isLoopback: localhost, or an IP literal of the loopback range. An address
// written in another way (127.1, 2130706433) is none.
func isLoopback(name string) bool {
	if name == "localhost" {
		return true
	}
	if v6, ok := strings.CutPrefix(name, "["); ok {
		v6, closed := strings.CutSuffix(v6, "]")
		a, err := netip.ParseAddr(v6)
		return closed && err == nil && a.Is6() && a.Zone() == "" && a.IsLoopback() && !a.Is4In6()
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Is4() && a.IsLoopback()
}

// localPort returns the port that the request came in on, "" for a listener
// that has none (a unix socket: no browser reaches it).
func localPort(r *http.Request) (string, bool) {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return strconv.Itoa(a.Port), true
	case *net.UnixAddr:
		return "", true
	}
	return "", false
}
