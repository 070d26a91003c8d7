package relational

import (
	"fmt"
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

// in compares an expression, which may have arguments of its own, with values.
func (w *where) in(expr string, vs []string, args ...any) {
	if len(vs) == 0 {
		return
	}
	w.conds, w.args = append(w.conds, expr+" IN "+marks(len(vs))), append(w.args, args...)
	for _, v := range vs {
		w.args = append(w.args, v)
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

// noSuch is notFound for what a command of its name lists.
func noSuch(step sallyport.Step, what, name string) error {
	return &sallyport.Error{Code: sallyport.NotFound, Step: step, Message: fmt.Sprintf("there is no %s %.64q", what, name),
		Hint: fmt.Sprintf("`sallyport %ss list` shows what there is", what)}
}

func notFound(step sallyport.Step, msg string) error {
	return &sallyport.Error{Code: sallyport.NotFound, Step: step, Message: msg}
}
