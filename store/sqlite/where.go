package sqlite

import (
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/store"
)

// where collects conditions; values only ever travel as arguments.
type where struct {
	conds []string
	args  []any
}

func (w *where) eq(column, v string) {
	if v != "" {
		w.conds, w.args = append(w.conds, column+" = ?"), append(w.args, v)
	}
}

func (w *where) in(column string, vs []string) {
	if len(vs) > 0 {
		b, _ := json.Marshal(vs) // strings always marshal
		w.conds, w.args = append(w.conds, column+" IN (SELECT value FROM json_each(?))"), append(w.args, string(b))
	}
}

func (w *where) sql() string {
	if len(w.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conds, " AND ")
}

func states[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = string(v)
	}
	return out
}

func limit(n int) int {
	if n <= 0 || n > store.MaxList {
		return store.MaxList
	}
	return n
}

func notFound(step sallyport.Step, msg string) error {
	return &sallyport.Error{Code: sallyport.NotFound, Step: step, Message: msg}
}
