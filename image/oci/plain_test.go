package oci

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

type never struct{ asked []string }

func (n *never) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked = append(n.asked, r.URL.String())
	return nil, http.ErrNotSupported
}

// Plain HTTP is spoken to this machine only, whatever a registry's address looks
// like.
func TestPlainHTTPStaysHere(t *testing.T) {
	n := &never{}
	for url, here := range map[string]bool{
		"http://10.0.0.7:5000/v2/": false, "http://192.168.1.1/v2/": false, "http://registry.local/v2/": false, "http://localhost.evil.test/v2/": false,
		"http://127.0.0.1.evil.test/v2/": false, "http://[fe80::1]/v2/": false, "http://0.0.0.0:5000/v2/": false, "http://2130706433/v2/": false,
		"http://127.0.0.1:5000/v2/": true, "http://localhost:5000/v2/": true, "http://[::1]:5000/v2/": true, "https://10.0.0.7/v2/": true,
	} {
		n.asked = nil
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = onlyTLS{n}.RoundTrip(r)
		if (len(n.asked) > 0) != here || !here && !strings.Contains(err.Error(), "plain HTTP") {
			t.Errorf("%s: asked %q, %v", url, n.asked, err)
		}
	}
}
