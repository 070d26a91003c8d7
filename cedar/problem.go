package cedar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// A Problem is one thing wrong with the policies.
type Problem struct {
	File    string `json:"file"` // path as given, "" for the folder as a whole
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Policy  string `json:"policy,omitempty"` // its id, if it has come so far
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning,omitempty"` // does not stop the policies from loading
}

func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Policy != "" {
		fmt.Fprintf(&b, "policy %q: ", p.Policy)
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are why policies were refused, in the order of files and lines.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// failure turns problems into the error that Load and Reload return.
func failure(ps Problems) error {
	msg, hint := ps[0].String(), ps[0].Hint
	if n := len(ps) - 1; n > 0 {
		msg += fmt.Sprintf(" (and %d more)", n)
	}
	if hint == "" {
		hint = "run `sallyport policy check` to see every problem"
	}
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: "configure",
		Message: "the policies are not usable: " + msg, Hint: hint, Err: ps,
	}
}
