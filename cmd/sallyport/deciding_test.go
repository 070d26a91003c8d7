package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sallyport.dev/sallyport/approval/passkey/passkeytest"
	"sallyport.dev/sallyport/test/stage"
)

// authenticatorsKey finds the passkeys of a script, by the name of their holder.
type authenticatorsKey struct{}

// browse opens the link that FILE comes to hold with NAME's authenticator, and
// clicks through.
//
//	browse NAME FILE [with OTHER]     OTHER's passkey confirms
func browse(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 && (len(args) != 4 || args[2] != "with") {
		ts.Fatalf("usage: browse NAME FILE [with OTHER]")
	}
	all := ts.Value(authenticatorsKey{}).(map[string]*passkeytest.Authenticator)
	holder := func(name string) *passkeytest.Authenticator {
		if all[name] == nil {
			all[name] = passkeytest.New()
		}
		return all[name]
	}
	link := ""
	for deadline := time.Now().Add(stage.Patience); link == ""; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(ts.MkAbs(args[1])); err == nil {
			link = regexp.MustCompile(`http://localhost:\S+#[A-Za-z0-9_-]+`).FindString(string(b))
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no link in %s within %v", args[1], stage.Patience)
		}
	}
	b := passkeytest.Browser{Authenticator: holder(args[0]), Dial: "127.0.0.1:" + ts.Getenv("PORT")}
	if len(args) == 4 {
		b.Confirming = holder(args[3])
	}
	state, err := b.Open(context.Background(), link)
	if (err != nil) != neg {
		ts.Fatalf("browse: %s, %v", state, err)
	}
	ts.Logf("%s %v", state, err)
}

// receiver starts another tool at $RECEIVER; what it is told is in the files
// told/ID.json.
func receiver(ts *testscript.TestScript, _ bool, _ []string) {
	dir := ts.MkAbs("told")
	ts.Check(os.MkdirAll(dir, 0o755))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(r.Header.Get("Webhook-Id"))+".json"), b, 0o600)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	ts.Defer(s.Close)
	ts.Setenv("RECEIVER", s.URL)
}

// deliver sends a decision, signed with the secret in FILE; the status must be N.
//
//	deliver N FILE ID BODY
func deliver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: deliver N FILE ID BODY")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(ts.ReadFile(args[1])), "whsec_"))
	ts.Check(err)
	at := time.Now().Unix()
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.%s", args[2], at, args[3])
	req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:"+ts.Getenv("PORT")+"/api/v1/webhooks/decisions", strings.NewReader(args[3]))
	ts.Check(err)
	req.Header.Set("webhook-id", args[2])
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at, 10))
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if strconv.Itoa(resp.StatusCode) != args[0] {
		ts.Fatalf("%s, want %s", resp.Status, args[0])
	}
}
