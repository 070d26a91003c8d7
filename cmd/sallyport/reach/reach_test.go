package reach_test

import (
	"net"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/reach"
	"sallyport.dev/sallyport/config"
)

// A server behind a URL may be on any network, but no name of one leads to a
// metadata service or to the gateway; an HTTP API, which a document of strangers
// describes, needs private ranges to be listed.
func TestTO53_ServersBehindURLs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := config.Default()
	c.Listen = "127.0.0.1:17450"
	server, err := reach.Servers(c)
	if err != nil {
		t.Fatal(err)
	}
	api, err := reach.APIs(c)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := server(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("a server on this machine: %v", err)
	}
	conn.Close()
	if _, err := api(t.Context(), "tcp", l.Addr().String()); err == nil || !strings.Contains(err.Error(), "may not reach") {
		t.Errorf("an API on this machine: %v", err)
	}
	for _, address := range []string{
		"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "0.0.0.0:80",
		"127.0.0.1:17450", "[::1]:17450", "127.9.9.9:17450", "localhost:17450",
	} {
		if _, err := server(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), "metadata service, or back to this gateway") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
