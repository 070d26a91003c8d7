package egress

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// ServeHTTP answers one request to the proxy: CONNECT HOST:PORT, or a request
// whose target is a whole address of http:// or https://. A redirect goes back to the client,
// whose next request is a new one.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.active.Done()
	s.pace(attemptBytes)
	if r.Method == http.MethodConnect {
		s.connectMethod(w, r)
		return
	}
	defer drain(r)
	t, d := absolute(r)
	if d != nil {
		s.refuse(w, d)
		return
	}
	var secure *tls.Config
	if r.URL.Scheme == "https" {
		secure = s.broker.secure(t)
	}
	s.forward(w, r, t, secure)
}

// maxUnread bounds what is taken of a body that goes nowhere.
const maxUnread = 16 << 20

// drain takes what nobody wanted of a body: isolates wait for ever to be rid of it.
func drain(r *http.Request) {
	if r.Header.Get("Expect") == "" { // else it may never come
		_, _ = io.CopyN(io.Discard, r.Body, maxUnread)
	}
}

// absolute is where a request to a proxy goes. With https, the broker speaks TLS for
// a client that has none of its own, such as an isolate: so it needs no authority
// to add a secret.
func absolute(r *http.Request) (Target, *denial) {
	port := map[string]string{"http": ":80", "https": ":443"}[r.URL.Scheme]
	switch {
	case r.URL.Host == "":
		return Target{}, deny(Target{}, NotTheProxy, "this is a proxy: send it a whole address, or CONNECT")
	case port == "":
		return Target{}, deny(unread(r.URL.Host), BadTarget, "for %.20q, use CONNECT", r.URL.Scheme)
	case r.URL.User != nil:
		return Target{}, deny(unread(r.URL.Hostname()), BadTarget, "an address with a user name in it is refused")
	}
	host := r.URL.Host
	if r.URL.Port() == "" {
		host = strings.TrimSuffix(host, ":") + port
	}
	t, err := ParseTarget(host)
	if err != nil {
		return Target{}, deny(unread(r.URL.Hostname()), BadTarget, "%s", err)
	}
	return t, nil
}

// forward sends one HTTP request to a target, over a connection of its own; over
// TLS if secure is set.
func (s *session) forward(w http.ResponseWriter, r *http.Request, t Target, secure *tls.Config) {
	up, d := s.connect(r.Context(), t)
	if d != nil {
		s.refuse(w, d)
		return
	}
	defer up.Close()
	s.began(t, up)
	defer func() { s.ended(t, up) }() // also where the copy of a body is aborted by a panic of net/http
	scheme, port := "http", ":80"
	if secure != nil {
		scheme, port = "https", ":443"
	}
	secrets := s.injections(t)
	if len(secrets) > 0 {
		w = unhinted{w}
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: scheme, Host: t.String(), Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
			p.Out.Host = strings.TrimSuffix(t.String(), port)
			p.Out.Header.Del("Proxy-Authorization")
			inject(p.Out.Header, secrets)
		},
		ModifyResponse: func(r *http.Response) error { return scan(r, needles(secrets)) },
		Transport:      over(up, secure),
		FlushInterval:  -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			reason := NoAnswer
			switch {
			case errors.Is(err, errUsedUp):
				reason = TooMuch
			case errors.Is(err, errPacked):
				reason = Unsearched
			}
			answer(w, deny(t, reason, "%s did not answer", t))
		},
	}
	proxy.ServeHTTP(w, r)
}

// over makes a transport for one request over a connection that is there.
func over(c net.Conn, secure *tls.Config) *http.Transport {
	once := make(chan net.Conn, 1)
	once <- c
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader, TLSClientConfig: secure,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("one connection for one request")
			}
		},
	}
}

// began reports an allowed connection, so that one that never ends is known too.
func (s *session) began(t Target, up *metered) {
	s.report(t, Event{Allowed: true, Open: true, Address: up.RemoteAddr().String()})
}

// ended reports an allowed connection that has ended.
func (s *session) ended(t Target, up *metered) {
	if up.spare {
		return
	}
	s.report(t, Event{Allowed: true, Address: up.RemoteAddr().String(), Bytes: up.bytes.Load()})
}

// refuse says why, inside the sandbox and to the record.
func (s *session) refuse(w http.ResponseWriter, d *denial) {
	s.report(d.target, Event{Reason: d.reason})
	answer(w, d)
}

// DeniedHeader marks an answer that is the broker's own, so that nobody takes
// it for a fault of the host that was asked for.
const DeniedHeader = "Sallyport-Egress"

// A Denied is the body of a refusal.
type Denied struct {
	Error   string `json:"error"` // "egress_denied"
	Reason  Reason `json:"reason"`
	Host    string `json:"host,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func answer(w http.ResponseWriter, d *denial) {
	status, hint := http.StatusForbidden, "this is a rule, not a fault: do not look for another way; an operator can allow HOST:PORT in the tool's egress list"
	switch d.reason {
	case NoAddress, NoAnswer:
		status, hint = http.StatusBadGateway, "the host is allowed; it cannot be reached now"
	case TooMuch:
		status = http.StatusTooManyRequests
	case BadTarget, NotTheProxy:
		status = http.StatusBadRequest
	default:
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(DeniedHeader, "denied; reason="+string(d.reason))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Denied{
		Error: "egress_denied", Reason: d.reason, Host: d.target.Host, Port: d.target.Port, Message: d.text, Hint: hint,
	})
}
