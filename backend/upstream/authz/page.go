package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/oauth/client"
)

// RedirectPath is where humans come back to after a login at a server. Each server
// has a path of its own, so that what one authorization server sends cannot pass
// for another's.
func RedirectPath(server string) string { return "/oauth/upstream/" + server + "/callback" }

// Routes adds to mux where humans come back to, and the documents by which
// authorization servers know the gateway.
func (k *Keeper) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /oauth/upstream/{server}/callback", k.callback)
	mux.HandleFunc("GET /oauth/upstream/{server}/client.json", k.document)
}

func (k *Keeper) callback(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address holds the code
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	l, err := k.Finish(r.Context(), r.PathValue("server"), r.URL.Query())
	if err != nil {
		said := "internal error: the gateway's log says more"
		if e, ok := errors.AsType[*sallyport.Error](err); ok {
			said = e.Message
			if e.Hint != "" {
				said += "\n" + e.Hint
			}
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "This login did not succeed: %s\n", said)
		return
	}
	fmt.Fprintf(w, "Sallyport may now call server %q for %s. You can close this page.\n", l.Server, l.For)
}

func (k *Keeper) document(w http.ResponseWriter, r *http.Request) {
	s := k.server(r.PathValue("server"))
	if s == nil || s.Document == "" {
		http.NotFound(w, r)
		return
	}
	d := client.Describe(s.Redirect)
	d.ClientID = s.Document
	b, err := json.Marshal(d)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(b)
}
