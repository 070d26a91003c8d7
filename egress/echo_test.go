package egress

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TO-18: a host that sends back what it was sent does so in more places than the
// body: in hints before the answer, in trailers behind it, and in names of headers.
func TestTO18_EchoBesideTheBody(t *testing.T) {
	w, _ := echoWorld(t, "/", "ok.test:80")
	w.plain.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		value := strings.TrimPrefix(auth, "Bearer ")
		for _, line := range []string{
			"HTTP/1.1 103 Early Hints", "Link: <" + auth + ">", "X-Hint: here", "",
			"HTTP/1.1 200 " + value, "X-Here: yes", "X-" + hex.EncodeToString([]byte(value)) + ": x", "Transfer-Encoding: chunked", "Trailer: X-Echo", "",
			"4;ext=" + value, "body", "0", "X-Echo: " + auth, "X-Other: " + value, "",
		} {
			fmt.Fprint(c, line+"\r\n")
		}
	})
	c := w.dial(t)
	fmt.Fprint(c, "GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nTE: trailers\r\nConnection: close\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	all, err := io.ReadAll(bufio.NewReader(c))
	if err != nil {
		t.Fatal(err)
	}
	got := string(all)
	if !strings.Contains(got, "body") || !strings.Contains(got, "X-Here: yes") || strings.Count(got, "[masked: secret token]") != 2 {
		t.Fatalf("control: %q", got)
	}
	if strings.Contains(got, secretValue) {
		t.Errorf("the secret came back: %q", got)
	}
	if strings.Contains(strings.ToLower(got), hex.EncodeToString([]byte(secretValue))) {
		t.Errorf("the secret came back in a name: %q", got)
	}
}
