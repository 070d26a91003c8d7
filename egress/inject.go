package egress

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// An Injection adds a stored secret to the requests that a sandbox sends to one
// host. The secret never enters the sandbox: what the sandbox itself sends in
// that header is dropped, and answers are searched for the secret.
type Injection struct {
	Name   string `json:"name"`   // of the secret, for people
	Host   string `json:"host"`   // host:port, as in a rule; without a *
	Header string `json:"header"` // e.g. Authorization
	Prefix string `json:"prefix"` // before the value, e.g. "Bearer "
	Value  []byte `json:"value"`
}

// minSecret bounds what answers are searched for: a shorter value would be
// found everywhere.
const minSecret = 6

// check says why an injection cannot be made.
func (i Injection) check(rules Rules) error {
	t, err := ParseTarget(i.Host)
	if err != nil {
		return fmt.Errorf("secret %q: %w", i.Name, err)
	}
	value := i.Prefix + string(i.Value)
	switch {
	case !rules.Allow(t):
		return fmt.Errorf("secret %q: %s is not among what the tool may reach", i.Name, t)
	case !httpguts.ValidHeaderFieldName(i.Header) || !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("secret %q does not fit into a header", i.Name)
	case len(i.Value) < minSecret:
		return fmt.Errorf("secret %q is shorter than %d bytes", i.Name, minSecret)
	}
	switch http.CanonicalHeaderKey(i.Header) {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Expect":
		return fmt.Errorf("secret %q: header %s belongs to the connection", i.Name, i.Header)
	}
	return nil
}

// injections are those for a target.
func (s *session) injections(t Target) (out []Injection) {
	for _, i := range s.grant.Inject {
		if at, err := ParseTarget(i.Host); err == nil && at == t {
			out = append(out, i)
		}
	}
	return out
}

// credentials are what a client may not send beside an injected one.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token", "X-Goog-Api-Key"}

// inject replaces the client's credentials.
func inject(h http.Header, all []Injection) {
	if len(all) == 0 {
		return
	}
	for _, name := range credentials {
		h.Del(name)
	}
	for _, i := range all {
		h.Set(i.Header, i.Prefix+string(i.Value))
	}
	h.Set("Accept-Encoding", "identity") // an answer that is packed cannot be searched
}

// An Authority is a certificate authority for one sandbox, and for as long as
// it lives. Only a sandbox for which secrets are injected has one.
type Authority struct {
	Cert []byte `json:"cert"` // PEM; goes into the sandbox
	Key  []byte `json:"key"`  // PEM; never does
}

// NewAuthority makes one that is good for a while.
func NewAuthority(now time.Time, within time.Duration) (Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Authority{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Sallyport, this sandbox only"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(within + time.Hour),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Authority{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return Authority{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}, err
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return big.NewInt(time.Now().UnixNano()) // crypto/rand does not fail
	}
	return n
}

// leaf makes a certificate for one host.
func (a Authority) leaf(host string, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the authority's key cannot sign")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: strings.ToValidUTF8(host, "")}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, pair.Certificate[0]}, PrivateKey: key}, nil
}
