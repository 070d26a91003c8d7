package store_test

import (
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// One thing has many names. Whatever form the second call gives it, it is what
// was refused; what is something else is not.
func TestSharedObject(t *testing.T) {
	for _, tt := range []struct {
		refused string
		same    []string
		other   []string
	}{
		{"/srv/data/x", []string{"/srv/data/./x", "/srv/data/y/../x", "//srv/data/x", "/srv//data/x", "/SRV/data/x", "/srv/data/x/", "/srv/data/x/y", "/srv/data", "/srv",
			"x", "./x", "../data/x", "data/x", "/srv/data/?", "/srv/data/*", "/srv/*/x", `\srv\data\x`, `"/srv/data/x"`, "/srv/data/\uff58"},
			[]string{"/srv/data/z", "/srv/database", "/srv/other/y", "z", "/srv/data/xx", "ax", "/tmp/*"}},
		{"/", []string{"/", "//", "/srv", "/srv/x/y", "/*"}, []string{"orders"}},
		{"/srv/caf\u00e9", []string{"/srv/cafe\u0301"}, []string{"/srv/cafe"}},
		{"h.example", []string{"H.EXAMPLE:443", "h.example.", "h.example:8443", "www.h.example", "\uff48.example"}, []string{"h.example.org", "oh.example", "h2.example:443"}},
		{"public.orders", []string{"orders", "ORDERS", "\"public\".\"orders\"", "[orders]", "shop.public.orders", "\uff4frders", "public.orders/17"}, []string{"preorders", "public.orders2", "public"}},
	} {
		shares := func(o string) string {
			return store.SharedObject(sallyport.Risk{Objects: []string{tt.refused}}, sallyport.Risk{Objects: []string{o}})
		}
		for _, o := range tt.same {
			if shares(o) == "" {
				t.Errorf("after %q was refused, %q is let through", tt.refused, o)
			}
		}
		for _, o := range tt.other {
			if shares(o) != "" {
				t.Errorf("after %q was refused, %q is refused, too", tt.refused, o)
			}
		}
	}
}
