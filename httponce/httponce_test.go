package httponce_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/httponce"
)

// A server that hangs up on a kept connection gets the request once, and it counts as
// sent; where nobody listens it does not. No error names the address.
func TestSentOnceOrNotAtAll(t *testing.T) {
	var came atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if came.Add(1) > 1 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		}
	}))
	t.Cleanup(s.Close)
	c := httponce.Client(s.Client().Transport)
	post := func(link string) (sent bool, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, link, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "1") // Go would repeat it
		httponce.SetBody(req, []byte("all of it"))
		resp, sent, err := httponce.Do(c, req)
		if err == nil {
			resp.Body.Close()
		} else if strings.Contains(err.Error(), "secret-path") {
			t.Errorf("the error names the address: %v", err)
		}
		return sent, err
	}
	if sent, err := post(s.URL + "/secret-path"); err != nil || !sent {
		t.Fatalf("%t, %v", sent, err)
	}
	if sent, err := post(s.URL + "/secret-path"); err == nil || !sent || came.Load() != 2 {
		t.Errorf("hung up on: sent %t, came %d times, %v", sent, came.Load(), err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if sent, err := post("http://" + l.Addr().String() + "/secret-path"); err == nil || sent {
		t.Errorf("nobody there: sent %t, %v", sent, err)
	}
}

// Half a body is no request.
func TestCutShortIsNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 100))
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	httponce.SetBody(req, make([]byte, 64<<20))
	if _, sent, err := httponce.Do(httponce.Client(&http.Transport{}), req); err == nil || sent {
		t.Errorf("sent %t, %v", sent, err)
	}
}
