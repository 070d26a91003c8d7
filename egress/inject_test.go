package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const secretValue = "s3cr3t/value+for=tests"

// echoWorld has a server that answers with all that it was sent, in every form.
func echoWorld(t *testing.T, path string, host string) (*world, *[]http.Header) {
	g := grant("ok.test:80", "ok.test:443", "other.test:80", "other.test:443")
	ca, err := NewAuthority(time.Now(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	g.CA = &ca
	g.Inject = []Injection{{Name: "token", Host: host, Header: "Authorization", Prefix: "Bearer ", Value: []byte(secretValue)}}
	w := newWorld(t, g)
	seen := new([]http.Header)
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, r.Header.Clone())
		auth := r.Header.Get("Authorization")
		rw.Header().Set("X-Echo", auth)
		if path == "/packed" {
			rw.Header().Set("Content-Encoding", "gzip")
		}
		bare := strings.TrimPrefix(auth, "Bearer ")
		for _, form := range []string{auth, bare, base64.StdEncoding.EncodeToString([]byte(bare)), hex.EncodeToString([]byte(auth)), strings.ReplaceAll(bare, "/", `\/`)} {
			for _, part := range []string{form[:len(form)/2], form[len(form)/2:]} { // in two pieces
				_, _ = io.WriteString(rw, part)
				rw.(http.Flusher).Flush()
			}
			_, _ = io.WriteString(rw, "\n")
		}
		fmt.Fprint(rw, strings.Repeat("x", 1<<17))
	})
	w.plain.Config.Handler, w.tls.Config.Handler = h, h
	w.broker.Roots = x509.NewCertPool()
	w.broker.Roots.AddCert(w.tls.Certificate())
	return w, seen
}

// trusting makes the client trust the sandbox's authority, and nothing else.
func trusting(t *testing.T, w *world, g *Authority) *http.Client {
	t.Helper()
	c := w.client()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(g.Cert) {
		t.Fatal("no certificate")
	}
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return c
}

func TestInjection(t *testing.T) {
	w, seen := echoWorld(t, "/", "ok.test:80")
	req, _ := http.NewRequest("GET", "http://ok.test/", http.NoBody) //nolint:noctx // a test
	req.Header.Set("Authorization", "Bearer own")
	req.Header.Set("Cookie", "session=own")
	r, err := w.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if h := (*seen)[0]; h.Get("Authorization") != "Bearer "+secretValue || h.Get("Cookie") != "" {
		t.Errorf("the server saw %v", h)
	}
	checkMasked(t, string(body), r.Header)

	// Another host gets nothing, and the client's own credential stays.
	req, _ = http.NewRequest("GET", "http://other.test/", http.NoBody) //nolint:noctx // a test
	req.Header.Set("Authorization", "Bearer own")
	if r, err = w.client().Do(req); err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if h := (*seen)[1]; h.Get("Authorization") != "Bearer own" {
		t.Errorf("another host saw %v", h)
	}
}

func checkMasked(t *testing.T, body string, h http.Header) {
	t.Helper()
	all := body + h.Get("X-Echo")
	for _, form := range []string{secretValue, base64.StdEncoding.EncodeToString([]byte(secretValue)), hex.EncodeToString([]byte("Bearer " + secretValue)), strings.ReplaceAll(secretValue, "/", `\/`)} {
		if strings.Contains(all, form) {
			t.Errorf("the answer holds %q", form)
		}
	}
	if n := strings.Count(all, "[masked: secret token]"); n != 6 {
		t.Errorf("masked %d times, want 6: %.300q", n, all)
	}
	if n := strings.Count(body, "x"); n != 1<<17 {
		t.Errorf("%d of the other bytes arrived", n)
	}
}

func TestInjectionOverTLS(t *testing.T) {
	w, seen := echoWorld(t, "/", "ok.test:443")
	// The test server's certificate is for example.com: the host is verified, so
	// it must have the right name.
	status, _, _ := get(t, trusting(t, w, authorityOf(w)), "https://ok.test/")
	if status != http.StatusBadGateway || len(*seen) != 0 {
		t.Errorf("a host with another's certificate: status %d, %d requests", status, len(*seen))
	}
	retarget(t, w)
	r, err := trusting(t, w, authorityOf(w)).Get("https://ok.test/") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if len(*seen) != 1 || (*seen)[0].Get("Authorization") != "Bearer "+secretValue {
		t.Fatalf("the server saw %v", *seen)
	}
	checkMasked(t, string(body), r.Header)
	if r.TLS == nil || r.TLS.PeerCertificates[0].Subject.CommonName != "ok.test" {
		t.Errorf("certificate %v", r.TLS)
	}
	// A host without a secret is not intercepted: its own certificate arrives.
	if _, err := trusting(t, w, authorityOf(w)).Get("https://other.test/"); err == nil { //nolint:bodyclose,noctx // it must fail
		t.Error("another host is intercepted as well")
	}
}

// A client that sends whole https:// addresses has the broker speak TLS for it: to
// hosts that are listed, whose certificate is theirs.
func TestTLSForTheClient(t *testing.T) {
	w, seen := echoWorld(t, "/", "ok.test:443")
	ask := func(address string) (int, string, http.Header) {
		c := w.dial(t)
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: own\r\nConnection: close\r\n\r\n", address)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(b), r.Header
	}
	if status, body, _ := ask("https://ok.test/"); status != http.StatusBadGateway || len(*seen) != 0 {
		t.Errorf("a host with another's certificate: %d %s, %d requests", status, body, len(*seen))
	}
	retarget(t, w)
	status, body, h := ask("https://ok.test/")
	if status != 200 || len(*seen) != 1 || (*seen)[0].Get("Authorization") != "Bearer "+secretValue {
		t.Fatalf("%d, the server saw %v", status, *seen)
	}
	checkMasked(t, body, h)
	for address, want := range map[string]int{"https://none.test/": 403, "https://ok.test:444/": 403, "https://u:p@ok.test/": 400, "https://ok.test:0/": 400} {
		if status, body, _ := ask(address); status != want || len(*seen) != 1 {
			t.Errorf("%s: %d %s", address, status, body)
		}
	}
}

func TestPackedAnswerIsRefused(t *testing.T) {
	w, _ := echoWorld(t, "/packed", "ok.test:80")
	if status, _, body := get(t, w.client(), "http://ok.test/packed"); status == 200 || strings.Contains(body, "s3cr3t") {
		t.Errorf("%d %.100q", status, body)
	}
}

func TestInjectionCheck(t *testing.T) {
	rules, _ := ParseRules([]string{"ok.test:443"})
	good := Injection{Name: "t", Host: "ok.test:443", Header: "Authorization", Value: []byte("long enough")}
	if err := good.check(rules); err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(*Injection){
		"not listed":     func(i *Injection) { i.Host = "other.test:443" },
		"wildcard":       func(i *Injection) { i.Host = "*.ok.test:443" },
		"a line feed":    func(i *Injection) { i.Value = []byte("long\r\nX: enough") },
		"too short":      func(i *Injection) { i.Value = []byte("short") },
		"header name":    func(i *Injection) { i.Header = "A b" },
		"header Host":    func(i *Injection) { i.Header = "host" },
		"header framing": func(i *Injection) { i.Header = "Content-Length" },
	} {
		i := good
		alter(&i)
		if i.check(rules) == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// authorityOf returns the authority that the world's grant has.
func authorityOf(w *world) *Authority { return w.grant.CA }

// retarget gives the TLS server a certificate for ok.test that the broker trusts.
func retarget(t *testing.T, w *world) {
	t.Helper()
	ca, err := NewAuthority(time.Now(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.leaf("ok.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h := w.tls.Config.Handler
	w.tls.Close()
	w.tls = httptest.NewUnstartedServer(h)
	w.tls.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}
	w.tls.StartTLS()
	t.Cleanup(w.tls.Close)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Cert)
	w.broker.Roots = pool
}
