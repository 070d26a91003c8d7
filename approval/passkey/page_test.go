package passkey_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/approval/passkey"
	"sallyport.dev/sallyport/approval/passkey/passkeytest"
	"sallyport.dev/sallyport/audit"
	"sallyport.dev/sallyport/store"
)

func TestLinks(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	a := w.enrol("ada")
	x := w.ticket("x", true)
	link, _, err := w.desk.AskToSign(t.Context(), "ada", x.ID, "", "")
	w.must(err)
	if got, err := w.desk.LinkState(t.Context(), link.ID); err != nil || got.State != "open" || got.URL != "" {
		t.Errorf("open: %+v, %v", got, err)
	}
	_, err = w.browser(a).Begin(t.Context(), w.base+passkey.PagePath+"#made-up")
	if r, ok := errors.AsType[*passkeytest.Refusal](err); !ok || r.Status != 404 {
		t.Errorf("a made-up token: %v", err)
	}
	bad := w.browser(a)
	bad.Origin = "https://evil.test"
	_, err = bad.Open(t.Context(), link.URL)
	if err == nil {
		t.Fatal("accepted")
	}
	if got, err := w.desk.LinkState(t.Context(), link.ID); err != nil || !strings.Contains(got.Error, "not accepted") {
		t.Errorf("whoever waits is told why: %+v, %v", got, err)
	}
	for range 20 {
		_, err = w.browser(a).Begin(t.Context(), link.URL)
	}
	if r, ok := errors.AsType[*passkeytest.Refusal](err); !ok || r.Status != 429 {
		t.Errorf("the twentieth challenge: %v", err)
	}
	w.pass(10 * time.Minute)
	if got, err := w.desk.LinkState(t.Context(), link.ID); err != nil || got.State != "expired" {
		t.Errorf("expired: %+v, %v", got, err)
	}
	for _, name := range []string{"tkt_none"} {
		_, _, err := w.desk.AskToSign(t.Context(), "ada", name, "", "")
		w.wantCode("no such ticket", err, sallyport.NotFound)
	}
	if rows, err := audit.Search(t.Context(), w.db, audit.Filter{Text: strings.SplitN(link.URL, "#", 2)[1]}, 9); err != nil || len(rows) != 0 {
		t.Errorf("the token is on record: %v, %v", rows, err)
	}
}

// Where passkeys cannot work, that is said, and is an error if they must.
func TestWherePasskeysWork(t *testing.T) {
	for base, works := range map[string]bool{
		"http://localhost:7450": true, "https://gw.example.com": true, "https://gw.example.com:8443": true, "http://gw.localhost:1": true,
		"http://127.0.0.1:7450": false, "https://10.0.0.1": false, "https://[::1]:7450": false, "http://gw.example.com": false, "nonsense": false, "": false,
	} {
		k, err := passkey.NewKeys(nil, passkey.Enrolled, base)
		if err != nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		err = k.Usable()
		if (err == nil) != works {
			t.Errorf("%s: %v", base, err)
		}
		if e, _ := errors.AsType[*sallyport.Error](err); !works && !strings.Contains(e.Hint, "approvals.url") {
			t.Errorf("%s: no hint: %v", base, err)
		}
		if _, err := passkey.NewKeys(nil, passkey.Required, base); (err == nil) != works {
			t.Errorf("required at %s: %v", base, err)
		}
	}
}

// The page loads nothing from elsewhere, runs no inline code, is framed by
// nobody, and is not served under an address that has no passkeys.
func TestPage(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path, host string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.addr+path, nil)
		w.must(err)
		req.Host = host
		resp, err := client.Do(req)
		w.must(err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		w.must(err)
		return resp, string(b)
	}
	host := strings.TrimPrefix(w.base, "http://")
	for path, want := range map[string]string{"": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"} {
		resp, body := get(passkey.PagePath+path, host)
		h := resp.Header
		if resp.StatusCode != 200 || !strings.HasPrefix(h.Get("Content-Type"), want) || body == "" {
			t.Errorf("%s: %s %s", path, resp.Status, h.Get("Content-Type"))
		}
		csp := h.Get("Content-Security-Policy")
		for _, need := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(csp, need) {
				t.Errorf("%s: policy %q lacks %q", path, csp, need)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, h)
		}
		for _, evil := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=", "style=", "https://", "http://", "localStorage", "document.cookie"} {
			if strings.Contains(body, evil) {
				t.Errorf("%s holds %s", path, evil)
			}
		}
		if strings.Count(body, "<script") > 1 || strings.Contains(body, "<script>") {
			t.Errorf("%s has inline code", path)
		}
	}
	resp, _ := get(passkey.PagePath+"?ticket=tkt_1", w.addr)
	if resp.StatusCode != 307 || resp.Header.Get("Location") != w.base+passkey.PagePath+"?ticket=tkt_1" {
		t.Errorf("by its address: %s, %s", resp.Status, resp.Header.Get("Location"))
	}
	wrong := w.browser(w.enrol("ada"))
	if _, err := wrong.Begin(t.Context(), "http://"+w.addr+passkey.PagePath+"#x"); err == nil {
		t.Error("a ceremony under an address")
	}
	keys, err := passkey.NewKeys(w.db, passkey.Enrolled, "http://127.0.0.1:7450")
	w.must(err)
	rec := httptest.NewRecorder()
	(&passkey.Desk{Tenant: "t", Keys: keys}).Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, passkey.PagePath, nil))
	if rec.Code != 503 || !strings.Contains(rec.Body.String(), "a passkey belongs to a name") {
		t.Errorf("where passkeys cannot work: %d %s", rec.Code, rec.Body)
	}
}

func TestPageRefusesWhatItDoesNotSend(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	for name, tt := range map[string]struct {
		path, kind, body string
		want             int
	}{
		"form":      {"/begin", "application/x-www-form-urlencoded", `{"token":"x"}`, 400},
		"not JSON":  {"/begin", "application/json", `token`, 400},
		"two":       {"/begin", "application/json", `{"token":"x"}{}`, 400},
		"unknown":   {"/begin", "application/json", `{"token":"x","admin":"bob"}`, 400},
		"too large": {"/finish", "application/json", `{"token":"` + strings.Repeat("x", 70_000) + `"}`, 413},
		"no token":  {"/finish", "application/json", `{}`, 404},
	} {
		req := httptest.NewRequest(http.MethodPost, passkey.PagePath+tt.path, strings.NewReader(tt.body))
		req.Host = strings.TrimPrefix(w.base, "http://")
		req.Header.Set("Content-Type", tt.kind)
		rec := httptest.NewRecorder()
		w.desk.Handler().ServeHTTP(rec, req)
		if rec.Code != tt.want {
			t.Errorf("%s: %d %s, want %d", name, rec.Code, rec.Body, tt.want)
		}
	}
}

// Passkeys of another name are of no use here, and do not let a password through.
func TestAnotherName(t *testing.T) {
	w := newWorld(t, passkey.Enrolled)
	w.must(w.db.PutPasskey(t.Context(), store.Passkey{Tenant: "t", ID: "pk_old", Admin: "ada", RPID: "old.example.com", Credential: json.RawMessage(`{}`)}, "", entry()))
	x := w.ticket("x", true)
	_, err := w.engine.Decide(t.Context(), "t", unsigned(x, "ada", true))
	w.wantCode("with a passkey of another name enrolled", err, sallyport.Denied)
	_, _, err = w.desk.AskToSign(t.Context(), "ada", x.ID, "", "")
	if err == nil || !strings.Contains(err.Error(), "old.example.com") {
		t.Errorf("signing: %v", err)
	}
}
