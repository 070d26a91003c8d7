package passkey

import (
	"embed"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
)

//go:embed page
var files embed.FS

// maxAnswer bounds what the page sends.
const maxAnswer = 64 << 10

// policy lets the page load its own two files and talk to its own gateway, and
// nothing else. Text of a ticket could not become code even where it became
// markup, which it does not: the page only ever sets textContent.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page and what it asks for, under PagePath. It needs no
// login: a link's token is the right to one ceremony, and the passkey's
// signature is what counts.
func (d *Desk) Handler() http.Handler {
	mux := http.NewServeMux()
	seen := gcra.NewTable(gcra.PerSecond(5, 50), 4096)
	for path, file := range map[string][2]string{
		"": {"page.html", "text/html; charset=utf-8"}, "/page.js": {"page.js", "text/javascript; charset=utf-8"}, "/page.css": {"page.css", "text/css; charset=utf-8"},
	} {
		mux.HandleFunc("GET "+PagePath+path, d.guard(seen, func(w http.ResponseWriter, _ *http.Request) {
			b, err := files.ReadFile("page/" + file[0])
			if err != nil {
				http.Error(w, "internal error", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", file[1])
			w.Write(b)
		}))
	}
	mux.HandleFunc("POST "+PagePath+"/begin", d.guard(seen, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Token string `json:"token"`
		}
		if d.read(w, r, &in) {
			o, err := d.begin(r.Context(), in.Token)
			d.reply(w, o, err)
		}
	}))
	mux.HandleFunc("POST "+PagePath+"/finish", d.guard(seen, func(w http.ResponseWriter, r *http.Request) {
		var in answer
		if d.read(w, r, &in) {
			state, err := d.finish(r.Context(), in)
			d.reply(w, map[string]any{"state": state}, err)
		}
	}))
	return mux
}

// guard sets what protects the page, sends a browser that came by another name
// (127.0.0.1) to the one that passkeys belong to, and slows floods down.
func (d *Desk) guard(seen *gcra.Table, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "publickey-credentials-get=(self), publickey-credentials-create=(self)")
		if d.Keys.party == nil {
			e, _ := errors.AsType[*sallyport.Error](d.Keys.why)
			http.Error(w, e.Message+"\n"+e.Hint, http.StatusServiceUnavailable)
			return
		}
		if _, host, _ := strings.Cut(d.Keys.origin(), "://"); !strings.EqualFold(r.Host, host) {
			// Nobody types a form here, so a 307 of a POST would only help a stranger.
			if r.Method != http.MethodGet {
				d.reply(w, nil, &sallyport.Error{Code: sallyport.Denied, Message: "passkeys work under " + d.Keys.origin() + " only", Hint: "open the page there"})
				return
			}
			to := d.Keys.origin() + r.URL.EscapedPath()
			if r.URL.RawQuery != "" {
				to += "?" + r.URL.RawQuery
			}
			http.Redirect(w, r, to, http.StatusTemporaryRedirect) // browsers keep the fragment
			return
		}
		remote, _, _ := net.SplitHostPort(r.RemoteAddr)
		if !seen.Add(remote, d.now()) {
			d.reply(w, nil, &sallyport.Error{Code: sallyport.RateLimited, Message: "too many requests", Hint: "wait a few seconds", RetryAfter: 5 * time.Second})
			return
		}
		next(w, r)
	}
}

func (d *Desk) read(w http.ResponseWriter, r *http.Request, v any) bool {
	if r.Header.Get("Content-Type") != "application/json" {
		d.reply(w, nil, &sallyport.Error{Code: sallyport.Invalid, Message: "the body must be application/json"})
		return false
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAnswer))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		d.reply(w, nil, &sallyport.Error{Code: sallyport.TooLarge, Message: "the body is too large"})
		return false
	} else if err != nil {
		d.reply(w, nil, &sallyport.Error{Code: sallyport.Invalid, Message: "the body is not what this page sends"})
		return false
	}
	return true
}

var statuses = map[sallyport.Code]int{
	sallyport.NotFound: 404, sallyport.Invalid: 400, sallyport.Denied: 403, sallyport.Rejected: 403, sallyport.Conflict: 409,
	sallyport.RateLimited: 429, sallyport.TooLarge: 413, sallyport.Unavailable: 503,
}

func (d *Desk) reply(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		e, ours := errors.AsType[*sallyport.Error](err)
		if !ours {
			d.log().Error("passkeys", "err", err)
			e = &sallyport.Error{Code: sallyport.Internal, Message: "internal error", Hint: "the gateway's log says more"}
		}
		status, ok := statuses[e.Code]
		if !ok {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		v = map[string]any{"code": e.Code, "message": e.Message, "hint": e.Hint}
	}
	_ = json.NewEncoder(w).Encode(v) // the peer has gone: nobody is left to tell
}
