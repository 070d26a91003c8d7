package openapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/backendtest"
	"sallyport.dev/sallyport/backend/openapi"
	"sallyport.dev/sallyport/egress"
	"sallyport.dev/sallyport/test/await"
)

// TO-12: no redirect takes a credential or a body anywhere, whatever its code;
// without a credential, what asks is followed within its origin only.
func TestTO12_Redirects(t *testing.T) {
	p := startPeer(t)
	for _, auth := range []string{"", "key", "query", "cookie", "bearer"} {
		w := open(t, p, func(c *openapi.Config, _ *openapi.Options) {
			if auth != "" {
				c.Auth = map[string]string{auth: "$k"}
			}
		})
		for _, code := range []int{301, 302, 303, 307, 308} {
			for _, to := range []string{"same", "other", "sub", "meta", "userinfo", "loop"} {
				for _, name := range []string{"redirect", "redirectPost"} {
					args := fmt.Sprintf(`{"code":"%d","to":"%s"}`, code, to)
					if name == "redirectPost" {
						args = fmt.Sprintf(`{"code":"%d","to":"%s","body":"canary-body"}`, code, to)
					}
					before, others := p.to(t, "/v1/pets"), p.toPort(t, p.other)
					out, err := w.call(t, name, args)
					if err != nil {
						t.Fatalf("%s %s %d %s: %v", auth, name, code, to, err)
					}
					followed := p.to(t, "/v1/pets") - before
					want := 0
					if auth == "" && to == "same" && name == "redirect" {
						want = 1
					}
					if followed != want || p.toPort(t, p.other) != others || out.IsError != (want == 0) {
						t.Errorf("credential %q, %s, %d to %s: followed %d times, want %d; isError %t: %s", auth, name, code, to, followed, want, out.IsError, out.Content)
					}
					if want == 0 && !strings.Contains(string(out.Content), "which is not followed") {
						t.Errorf("%d to %s: the caller is not told: %s", code, to, out.Content)
					}
					if strings.Contains(string(out.Content), canaryKey) {
						t.Errorf("credential %q, %d to %s: the answer holds the key", auth, code, to)
					}
				}
			}
		}
	}
}

// toPort counts what arrived at an origin.
func (p *peer) toPort(t testing.TB, base string) (n int) {
	for _, s := range p.saw(t) {
		if strings.Contains(base, ":"+s.Port+"/") {
			n++
		}
	}
	return n
}

// TO-53, TO-60: which addresses calls reach. The name is resolved and checked when
// it is connected to; one that changes its mind gains nothing.
func TestTO53_Addresses(t *testing.T) {
	p := startPeer(t)
	own := netip.MustParseAddrPort(strings.TrimSuffix(strings.TrimPrefix(p.base, "http://"), "/v1"))
	for name, c := range map[string]struct {
		private []string
		own     []netip.AddrPort
		answers []string // of the resolver, one after the other
		ok      bool
	}{
		"listed":                      {private: []string{"127.0.0.0/8"}, answers: []string{"127.0.0.1"}, ok: true},
		"not listed":                  {answers: []string{"127.0.0.1"}},
		"another range":               {private: []string{"10.0.0.0/8"}, answers: []string{"127.0.0.1"}},
		"mapped":                      {answers: []string{"::ffff:127.0.0.1"}},
		"metadata":                    {private: []string{"169.254.0.0/16", "127.0.0.0/8"}, answers: []string{"169.254.169.254"}},
		"one good and one bad":        {private: []string{"127.0.0.0/8"}, answers: []string{"127.0.0.1,169.254.169.254"}},
		"the gateway itself":          {private: []string{"127.0.0.0/8"}, own: []netip.AddrPort{own}, answers: []string{"127.0.0.1"}},
		"all of the gateway's host":   {private: []string{"127.0.0.0/8"}, own: []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), own.Port())}, answers: []string{"127.0.0.1"}},
		"private, listed by a longer": {private: []string{"127.0.0.2/32"}, answers: []string{"127.0.0.1"}},
	} {
		broker := &egress.Broker{Own: c.own, Resolver: &scripted{answers: c.answers}}
		for _, s := range c.private {
			broker.Private = append(broker.Private, netip.MustParsePrefix(s))
		}
		w := open(t, p, func(cfg *openapi.Config, o *openapi.Options) {
			cfg.Base = strings.Replace(p.base, "127.0.0.1", "api.example", 1)
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := broker.DialContext(ctx, network, address)
				if egress.Refusal(err) == egress.BadAddress {
					err = openapi.Refused("its name leads to an address that calls may not reach")
				}
				return conn, err
			}
		})
		before := len(p.saw(t))
		out, err := w.call(t, "search", `{}`)
		if arrived := len(p.saw(t)) > before; (err == nil && !out.IsError) != c.ok || arrived != c.ok {
			t.Errorf("%s: %s, %v, arrived %t; want ok %t", name, out.Content, err, arrived, c.ok)
		}
		if !c.ok && (!errors.Is(err, sallyport.ErrNotExecuted) || !strings.Contains(err.Error(), "may not reach") || strings.Contains(err.Error(), "127.0.0.1")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An address written in another way is refused, or is what it is.
func TestTO53_OddAddresses(t *testing.T) {
	p := startPeer(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(p.base, "http://127.0.0.1"), ":")
	broker := &egress.Broker{Resolver: &scripted{answers: []string{"127.0.0.1"}}}
	for _, host := range []string{"127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "[::127.0.0.1]", "localhost", "LOCALHOST.", "0", "0.0.0.0", "[64:ff9b::7f00:1]", "a.example", "xn--bcher-kva.example"} {
		w := open(t, p, func(c *openapi.Config, o *openapi.Options) {
			c.Base, o.Dial = "http://"+host+":"+port, broker.DialContext
		})
		if _, err := w.call(t, "search", `{}`); !errors.Is(err, sallyport.ErrNotExecuted) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := open(t, p, nil).call(t, "search", `{}`); err != nil || len(p.saw(t)) != 1 { // the control
		t.Errorf("%v, %d requests arrived", err, len(p.saw(t)))
	}
}

// scripted answers each question with the next of its answers.
type scripted struct {
	answers []string
	n       int
}

func (s *scripted) LookupNetIP(context.Context, string, string) (out []netip.Addr, _ error) {
	for a := range strings.SplitSeq(s.answers[min(s.n, len(s.answers)-1)], ",") {
		out = append(out, netip.MustParseAddr(a))
	}
	s.n++
	return out, nil
}

// The document chooses neither who sees the client's secret, nor, once it comes
// from elsewhere, who sees any credential; a route of another place is not used.
func TestDocumentChoosesNoPlace(t *testing.T) {
	p := startPeer(t)
	for _, c := range []struct {
		token, given string
		ok           bool
	}{{p.base + "/token", "", true}, {"/v1/token", "", true}, {p.other + "/token", "", false}, {p.other + "/token", p.other + "/token", true}, {"", "", false}} {
		w := open(t, p, func(cfg *openapi.Config, _ *openapi.Options) {
			cfg.Document = strings.NewReplacer("BASE", p.base, "TOKEN", c.token).Replace(peerDocument)
			cfg.Auth, cfg.TokenURL = map[string]string{"oauth": "$k"}, c.given
		})
		w.keys["k"] = "id:s3cret-s3cret"
		before := p.toPort(t, p.other)
		out, err := w.call(t, "search", `{}`)
		if (err == nil && !out.IsError) != c.ok || !c.ok && p.toPort(t, p.other) != before {
			t.Errorf("%+v: %s, %v, %d requests elsewhere", c, out.Content, err, p.toPort(t, p.other)-before)
		}
	}
	w := open(t, p, nil)
	moved := w.tool("search")
	route := *moved.Route
	moved.Route = &route
	for _, target := range []string{p.other + "/search", p.base + "x/search", strings.TrimSuffix(p.base, "/v1") + "/search"} {
		route.URL = target
		_, err := w.do(t, backendtest.Job(moved, `{}`))
		if !errors.Is(err, sallyport.ErrNotExecuted) || sallyport.CodeOf(err) != sallyport.Conflict {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// A document that comes from elsewhere does not choose who sees a credential.
func TestForeignDocumentNeedsABase(t *testing.T) {
	p := startPeer(t)
	for _, c := range []struct {
		auth, base string
		ok         bool
	}{{"", "", true}, {"key", "", false}, {"key", p.other, true}} {
		w := open(t, p, func(cfg *openapi.Config, _ *openapi.Options) {
			*cfg = openapi.Config{Name: "peer", URL: p.base + "/foreign", Base: c.base}
			if c.auth != "" {
				cfg.Auth = map[string]string{c.auth: "$k"}
			}
		})
		var s openapi.Status
		await.That(t, "it is judged", func() bool { s = w.Status()[0]; return s.State != openapi.StateStarting })
		if (s.State == openapi.StateReady) != c.ok || !c.ok && !strings.Contains(s.Error, "say so with base") || c.ok && s.Base != p.other {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}
