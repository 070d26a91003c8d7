package mcpserver

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"

	"sallyport.dev/sallyport/wire"
)

// Recover keeps a panic in one request from ending the process: the panic is
// counted and logged with an id, and the caller sees only that id.
func Recover(log *slog.Logger, count *atomic.Int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := &startWatch{ResponseWriter: w}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares it like this
				panic(v)
			}
			count.Add(1)
			id := newLogID()
			log.Error("panic in a request", "id", id, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			if began.started {
				panic(http.ErrAbortHandler) // cut the connection: half an answer must not look whole
			}
			writeError(w, http.StatusInternalServerError, nil, internalError(id))
		}()
		next.ServeHTTP(began, r)
	})
}

// startWatch notes whether an answer has begun.
type startWatch struct {
	http.ResponseWriter
	started bool
}

func (w *startWatch) WriteHeader(status int) {
	w.started = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *startWatch) Write(b []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *startWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func newLogID() string { return "err_" + rand.Text() }

func internalError(id string) *wire.Error {
	return &wire.Error{Code: wire.CodeInternal, Message: "internal error " + id + " (the operator finds the reason in the log under this id)"}
}
