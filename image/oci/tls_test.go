package oci_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/image/oci"
)

// A puller pulls in a process of its own: what a process trusts is settled once.
const pullerWord = "OCI_TEST_PULL"

func TestMain(m *testing.M) {
	ref := os.Getenv(pullerWord)
	if ref == "" {
		os.Exit(m.Run())
	}
	img, err := oci.Pull(context.Background(), ref, false)
	if err == nil {
		_, err = image.NewStore(os.Getenv("OCI_TEST_CACHE")).BuildLayers(context.Background(), img.Layers("test", 64<<20), func(string) {})
	}
	if err != nil {
		fmt.Println("REFUSED", err)
		os.Exit(0)
	}
	fmt.Println("PULLED", img.From)
	os.Exit(0)
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &authority{t, key, c, file}
}

// serve serves over TLS on an address of loopback, with a certificate for it.
func (a *authority) serve(addr string, names []string, h http.Handler) (host string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: names}
	if len(names) == 0 {
		c.IPAddresses = []net.IP{net.ParseIP(addr)}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		a.t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}, TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return l.Addr().String()
}

func (a *authority) pull(ref, docker string, trusted bool) string {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), pullerWord+"="+ref, "DOCKER_CONFIG="+docker, "SSL_CERT_DIR=/nonexistent", "OCI_TEST_CACHE="+a.t.TempDir())
	if trusted {
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+a.file)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// asked keeps what was asked for with which credentials.
type asked struct {
	mu   sync.Mutex
	with map[string]bool // by whether there were any
	h    http.Handler
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.with == nil {
		a.with = map[string]bool{}
	}
	a.with[fmt.Sprint(r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "")] = true
	a.mu.Unlock()
	a.h.ServeHTTP(w, r)
}

// Over TLS an image is pulled where the registry's certificate is trusted and is
// for it, by digest; another answer is refused.
func TestPullOverTLS(t *testing.T) {
	b, index := multi()
	var h http.Handler
	serve(t, b, index, func(inner http.Handler) http.Handler { h = inner; return inner })
	a := newAuthority(t)
	digest := index["digest"].(string)
	ref := func(host string) string { return host + "/team/app@" + digest }
	host, none := a.serve("127.0.0.1", nil, h), t.TempDir()
	if got := a.pull(ref(host), none, true); !strings.HasPrefix(got, "PULLED "+host) {
		t.Fatalf("a registry that is trusted: %s", got)
	}
	altered := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/manifests/"+digest) {
			w.Header().Set("Content-Type", typeIndex)
			w.Header().Set("Docker-Content-Digest", digest)
			_, _ = w.Write(encode(object{"manifests": []object{}}))
			return
		}
		h.ServeHTTP(w, r)
	})
	for name, tt := range map[string]struct {
		ref     string
		trusted bool
		want    string
	}{
		"not trusted":                 {ref(host), false, "certificate"},
		"a certificate of another":    {ref(a.serve("127.0.0.1", []string{"other.test"}, h)), true, "certificate"},
		"other bytes than the digest": {ref(a.serve("127.0.0.1", nil, altered)), true, "does not match"},
		"a digest that it has not":    {host + "/team/app@sha256:" + strings.Repeat("0", 64), true, "REFUSED"},
		"a tag":                       {host + "/team/app:v1", true, "is a tag"},
	} {
		if got := a.pull(tt.ref, none, tt.trusted); !strings.HasPrefix(got, "REFUSED") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// withAddresses runs the test again in a network namespace of its own that has
// these addresses. It returns true there.
func withAddresses(t *testing.T, all ...string) bool {
	t.Helper()
	if os.Getenv("OCI_TEST_NETWORK") != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces need root")
	}
	script := "ip link set lo up\n"
	for _, a := range all {
		script += "ip addr add " + a + "/32 dev lo\n"
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script+`exec "$0" -test.run="^$1$" -test.v`, "/proc/"+fmt.Sprint(os.Getpid())+"/exe", t.Name())
	cmd.Env = append(os.Environ(), "OCI_TEST_NETWORK=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in its namespace: %v", err)
	}
	return false
}

// A registry may send a client elsewhere for its layers. Where that is another
// host, or another port, the credentials do not go with it; to this machine or a private network it is not sent at all.
func TestPullKeepsCredentialsFromOthers(t *testing.T) {
	if !withAddresses(t, "93.184.216.34", "93.184.216.35") {
		return
	}
	b, index := multi()
	var h http.Handler
	serve(t, b, index, func(inner http.Handler) http.Handler { h = inner; return inner })
	a := newAuthority(t)
	for name, addr := range map[string]string{"another host": "93.184.216.35", "another port": "93.184.216.34", "this machine": "127.0.0.1"} {
		mirror := &asked{h: h}
		elsewhere := a.serve(addr, nil, mirror)
		registry := &asked{h: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, _ := r.BasicAuth(); u != "ann" || p != "s3cret-of-ann" {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, "https://"+elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			h.ServeHTTP(w, r)
		})}
		host, docker := a.serve("93.184.216.34", nil, registry), t.TempDir()
		if err := os.WriteFile(filepath.Join(docker, "config.json"), encode(object{"auths": object{host: object{"auth": "YW5uOnMzY3JldC1vZi1hbm4="}}}), 0o600); err != nil {
			t.Fatal(err)
		}
		got := a.pull(host+"/team/app@"+index["digest"].(string), docker, true)
		if name == "this machine" { // a registry out there does not lead into networks that it cannot see
			if !strings.HasPrefix(got, "REFUSED") || len(mirror.with) > 0 {
				t.Errorf("%s: %s; asked %v", name, got, mirror.with)
			}
			continue
		}
		if !strings.HasPrefix(got, "PULLED") || !registry.with["true"] {
			t.Errorf("control: %s: %s; credentials came: %v", name, got, registry.with)
		}
		if !mirror.with["false"] || mirror.with["true"] {
			t.Errorf("%s was asked with credentials: %v", name, mirror.with)
		}
	}
}
