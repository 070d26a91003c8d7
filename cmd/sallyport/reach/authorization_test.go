package reach_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cmd/sallyport/reach"
	"sallyport.dev/sallyport/config"
	"sallyport.dev/sallyport/oauth/discovery"
)

// What a server far away names is not reached at a private address, unless its range
// is listed; a server on this machine may have its authorization server here.
func TestPrivateAddressesAreNotReached(t *testing.T) {
	asked := 0
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++; http.NotFound(w, nil) }))
	t.Cleanup(here.Close)
	c := config.Default()
	try := func(server, link string) error {
		way, err := reach.Authorization(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = discovery.Finder{HTTP: way(server)}.Server(t.Context(), link)
		return err
	}
	for _, link := range []string{here.URL, strings.Replace(here.URL, "127.0.0.1", "localhost", 1), strings.Replace(here.URL, "127.0.0.1", "[::1]", 1), "https://10.0.0.1", "https://169.254.169.254", "https://[fd00::1]"} {
		err := try("https://far.example/mcp", link)
		if sallyport.CodeOf(err) != sallyport.Unavailable && !strings.Contains(err.Error(), "private") {
			t.Errorf("%s: %v", link, err)
		}
	}
	if asked != 0 {
		t.Errorf("a private address was asked %d times", asked)
	}
	if err := try("http://127.0.0.1:9/mcp", here.URL); err == nil || asked == 0 {
		t.Errorf("from this machine: %v, asked %d times", err, asked)
	}
	for _, link := range []string{"https://10.0.0.1", "https://169.254.169.254"} {
		if err := try("http://127.0.0.1:9/mcp", link); err == nil || !strings.Contains(err.Error(), "private") {
			t.Errorf("%s from this machine: %v", link, err)
		}
	}
	before := asked
	c.Egress.Private = []string{"127.0.0.0/8"}
	if err := try("https://far.example/mcp", here.URL); err == nil || asked == before {
		t.Errorf("listed: %v", err)
	}
}
