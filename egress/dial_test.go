package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// turning leads to a public address when it is asked first, and inside after that.
type turning struct{ asked int }

func (r *turning) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	r.asked++
	if r.asked == 1 {
		return []netip.Addr{netip.MustParseAddr("198.41.0.4")}, nil
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// A name is resolved once for a connection, and what was checked is connected to:
// one that changes its mind in between gains nothing.
func TestDialContextConnectsToWhatItChecked(t *testing.T) {
	names := &turning{}
	var dialled []string
	b := &Broker{Resolver: names, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, errors.New("nobody there")
	}}
	_, first := b.DialContext(t.Context(), "tcp", "api.example:443")
	if names.asked != 1 || !slices.Equal(dialled, []string{"198.41.0.4:443"}) || Refusal(first) != "" {
		t.Errorf("asked %d times, dialled %q, %v", names.asked, dialled, first)
	}
	_, second := b.DialContext(t.Context(), "tcp", "api.example:443")
	if len(dialled) != 1 || Refusal(second) != BadAddress {
		t.Errorf("dialled %q, %v", dialled, second)
	}
	for _, odd := range []string{"api.example", "a b:1", "10.0.0.1:0", "[::1%lo]:80"} {
		if _, err := b.DialContext(t.Context(), "tcp", odd); err == nil || len(dialled) != 1 {
			t.Errorf("%s is dialled", odd)
		}
	}
}
