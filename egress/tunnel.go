package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// connectMethod opens a tunnel. Whether the target may be reached is settled
// before the client hears 200; what it then says is settled by its first bytes.
func (s *session) connectMethod(w http.ResponseWriter, r *http.Request) {
	t, err := ParseTarget(r.RequestURI)
	if err != nil {
		s.refuse(w, deny(unread(r.URL.Hostname()), BadTarget, "%s", err))
		return
	}
	up, d := s.connect(r.Context(), t)
	if d != nil {
		s.refuse(w, d)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer down.Close()
	defer context.AfterFunc(r.Context(), func() { _ = down.Close(); _ = up.Close() })()
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if d := s.tunnel(r.Context(), &rejoined{down, buffered.Reader}, up, t); d != nil {
		s.report(t, Event{Reason: d.reason})
		return
	}
	s.ended(t, up)
}

// tunnel carries TLS for the target, or HTTP to it.
func (s *session) tunnel(ctx context.Context, down *rejoined, up *metered, t Target) *denial {
	_ = down.SetReadDeadline(time.Now().Add(dialPatience))
	first, err := down.r.Peek(1)
	if err != nil {
		return deny(t, NotSpoken, "nothing was sent")
	}
	if first[0] != recordHandshake {
		_ = down.SetReadDeadline(time.Time{})
		return s.tunnelHTTP(ctx, down, up, t, first[0])
	}
	raw, hello, err := clientHello(down)
	if err != nil {
		return deny(t, NotSpoken, "the TLS greeting cannot be read")
	}
	if d := checkHello(t, hello); d != nil {
		_, _ = down.Write(alertUnrecognizedName)
		return d
	}
	_ = down.SetReadDeadline(time.Time{})
	if len(s.injections(t)) > 0 {
		return s.intercept(ctx, &replayed{down, io.MultiReader(bytes.NewReader(raw), down)}, up, t)
	}
	if _, err := up.Write(raw); err != nil {
		return deny(t, NoAnswer, "%s closed the connection", t)
	}
	s.began(t, up)
	pipe(down, up)
	return nil
}

const (
	recordHandshake = 22
	extensionECH    = 0xfe0d // encrypted_client_hello, RFC 9849
)

// alertUnrecognizedName is the fatal alert 112 of RFC 8446, section 6.2.
var alertUnrecognizedName = []byte{21, 3, 3, 0, 2, 2, 112}

// checkHello: the name in the clear must be the host that was asked for. A
// greeting that carries a hidden name as well is refused.
func checkHello(t Target, h *tls.ClientHelloInfo) *denial {
	name := strings.TrimSuffix(strings.ToLower(h.ServerName), ".")
	switch {
	case slices.Contains(h.Extensions, extensionECH):
		return deny(t, WrongName, "an encrypted greeting hides the name")
	case t.Addr.IsValid() && name != "":
		return deny(t, WrongName, "the greeting names a host, and %s was asked for", t.Host)
	case !t.Addr.IsValid() && name != t.Host:
		return deny(t, WrongName, "the greeting names another host than %s", t.Host)
	}
	return nil
}

var errSeen = errors.New("the greeting was read")

// clientHello reads a TLS greeting with the standard library's parser and
// returns the bytes that it took.
func clientHello(c net.Conn) ([]byte, *tls.ClientHelloInfo, error) {
	var raw bytes.Buffer
	var hello *tls.ClientHelloInfo
	server := tls.Server(overheard{c, &raw}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = h
			return nil, errSeen
		},
	})
	err := server.Handshake() //nolint:noctx // the connection has a deadline
	if hello == nil {
		return nil, nil, err
	}
	return raw.Bytes(), hello, nil
}

// overheard keeps what is read and drops what is written.
type overheard struct {
	net.Conn
	raw *bytes.Buffer
}

func (o overheard) Read(p []byte) (int, error) {
	if o.raw.Len() > maxHeader {
		return 0, errors.New("the greeting is too long")
	}
	n, err := o.Conn.Read(p)
	o.raw.Write(p[:n])
	return n, err
}

func (o overheard) Write(p []byte) (int, error) { return len(p), nil }

// tunnelHTTP serves requests that were sent through a tunnel in the clear.
// Each must name the target as its Host.
func (s *session) tunnelHTTP(ctx context.Context, down *rejoined, up *metered, t Target, first byte) *denial {
	if first < 'A' || first > 'Z' {
		return deny(t, NotSpoken, "a tunnel carries TLS or HTTP")
	}
	up.discard()
	s.serveConn(ctx, down, t, nil)
	return nil
}

// intercept ends the sandbox's TLS here, under its own authority, so that
// secrets can be added to its requests; the host is spoken to over TLS that is
// checked as ever.
func (s *session) intercept(ctx context.Context, down net.Conn, up *metered, t Target) *denial {
	up.discard()
	if s.grant.CA == nil || t.Addr.IsValid() {
		return deny(t, WrongName, "no secret can be sent to %s over TLS", t)
	}
	cert, err := s.grant.CA.leaf(t.Host, s.broker.now())
	if err != nil {
		return deny(t, NotSpoken, "no certificate could be made")
	}
	secure := tls.Server(down, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	s.serveConn(ctx, secure, t, s.broker.secure(t))
	return nil
}

// secure is how the broker itself speaks TLS to a target.
func (b *Broker) secure(t Target) *tls.Config {
	return &tls.Config{ServerName: t.Host, RootCAs: b.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

// serveConn serves the requests for one target that come over a connection.
func (s *session) serveConn(ctx context.Context, down net.Conn, t Target, secure *tls.Config) {
	port := ":80"
	if secure != nil {
		port = ":443"
	}
	srv := &http.Server{
		ReadHeaderTimeout: dialPatience, MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.pace(attemptBytes)
			if d := sameHost(r, t, port); d != nil {
				s.refuse(w, d)
				return
			}
			s.forward(w, r, t, secure)
		}),
	}
	_ = srv.Serve(newOnceListener(down)) // ends when the connection does
}

// sameHost: the request names the target that the tunnel was opened for.
func sameHost(r *http.Request, t Target, port string) *denial {
	host := r.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host += port
	}
	named, err := ParseTarget(host)
	if r.Method == http.MethodConnect || r.URL.Host != "" || err != nil || named != t {
		return deny(t, WrongName, "the request names another host than %s", t)
	}
	return nil
}

// A replayed connection reads again what was taken from it.
type replayed struct {
	net.Conn
	r io.Reader
}

func (c *replayed) Read(p []byte) (int, error) { return c.r.Read(p) }

// A rejoined connection reads what was buffered first.
type rejoined struct {
	net.Conn
	r *bufio.Reader
}

func (c *rejoined) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite passes a half-close on, where the connection knows it.
func (c *rejoined) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// discard closes a connection that is not needed: each request of the tunnel
// gets one of its own.
func (m *metered) discard() {
	m.spare = true
	_ = m.Close()
}

// CloseWrite passes a half-close on.
func (m *metered) CloseWrite() error { return closeWrite(m.Conn) }

// pipe copies both ways until both have ended.
func pipe(a *rejoined, b *metered) {
	back := make(chan struct{})
	go func() {
		defer close(back)
		if _, err := io.Copy(a, b); err != nil {
			_ = a.Close()
		}
		_ = a.CloseWrite()
	}()
	if _, err := io.Copy(b, a); err != nil {
		_ = b.Close()
	}
	_ = b.CloseWrite()
	<-back
}

// A onceListener gives one connection and then waits for its end.
type onceListener struct {
	conn chan net.Conn
	done chan struct{}
	addr net.Addr
}

type watchedConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

func newOnceListener(c net.Conn) *onceListener {
	l := &onceListener{conn: make(chan net.Conn, 1), done: make(chan struct{}), addr: c.LocalAddr()}
	l.conn <- &watchedConn{Conn: c, done: l.done}
	return l
}

func (l *onceListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *onceListener) Close() error   { return nil }
func (l *onceListener) Addr() net.Addr { return l.addr }
