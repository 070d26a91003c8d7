package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// api starts an HTTP API of pets in this process, which is not the gateway's: it
// keeps what it was asked in $LEDGER, a line for each request, and knows only who
// sends its key. $API is its address.
func api(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: api")
	}
	path := ts.MkAbs("ledger")
	ledger, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	var mu sync.Mutex
	pets := map[string]string{"1": `{"id":1,"name":"Rex","weight":9007199254740993.10}`}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(ledger, "%s %s idempotency=%s key=%t %s\n", r.Method, r.RequestURI, r.Header.Get("Idempotency-Key"), r.Header.Get("X-Api-Key") == "canary-of-pets", body)
		w.Header().Set("Content-Type", "application/json")
		id := strings.TrimPrefix(r.URL.Path, "/v1/pets/")
		_, there := pets[id]
		switch {
		case r.URL.Path == "/openapi.yaml":
			http.ServeFile(w, r, ts.MkAbs("pets.yaml"))
		case r.Header.Get("X-Api-Key") != "canary-of-pets":
			w.WriteHeader(401)
			fmt.Fprintf(w, `{"message":"your key is %s"}`, r.Header.Get("X-Api-Key"))
		case r.URL.Path == "/v1/pets" && r.Method == "POST":
			pets["2"] = string(body)
			w.WriteHeader(201)
			w.Write(body)
		case r.URL.Path == "/v1/mirror":
			fmt.Fprintf(w, `{"your key":%q}`, r.Header.Get("X-Api-Key"))
		case r.URL.Path == "/v1/odd":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(418)
			io.WriteString(w, "short \x1b[2J and \u202estout")
		case r.URL.Path == "/v1/cutoff":
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				c.Close()
			}
		case !there:
			w.WriteHeader(404)
			io.WriteString(w, `{"message":"no such pet"}`)
		case r.Method == "DELETE":
			delete(pets, id)
			w.WriteHeader(204)
		default:
			io.WriteString(w, pets[id])
		}
	}))
	ts.Defer(func() { srv.Close(); ledger.Close() })
	ts.Setenv("API", srv.URL)
	ts.Setenv("LEDGER", path)
}
