// Package narrow tells whether the bounds that stand in a condition leave rows
// out of a table, as far as that can be told without the table. It doubts: what
// might hold for every row is not narrow. The analysers of all SQL dialects
// share it, so that they draw the same line.
package narrow

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What counts as a narrow range. Anything wider may be a whole table.
const (
	maxWidth = 10_000               // of numbers
	maxSpan  = 400 * 24 * time.Hour // of dates
)

// Unknown stands for a value that only the call knows: a parameter.
const Unknown = "?"

// Range tells whether from..to is narrow: near numbers, near dates, or texts
// with the same first letter.
func Range(from, to string) bool {
	if from == Unknown || to == Unknown {
		return true
	}
	low, err := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	if err == nil && err2 == nil {
		return high-low <= maxWidth
	}
	start, ok := date(from)
	end, ok2 := date(to)
	if ok && ok2 {
		return end.Sub(start) <= maxSpan
	}
	return !ok && !ok2 && from != "" && to != "" && strings.EqualFold(from[:1], to[:1])
}

func date(s string) (time.Time, bool) {
	if len(s) < 10 {
		return time.Time{}, false
	}
	t, err := time.Parse(time.DateOnly, s[:10])
	return t, err == nil
}

// Ranges are one-sided conditions on columns that hold together. The zero value
// is ready.
type Ranges struct {
	from, to map[string]string
}

// Add notes  column op value  where op is <, <=, > or >=; others say nothing here.
func (r *Ranges) Add(column, op, value string) {
	if r.from == nil {
		r.from, r.to = map[string]string{}, map[string]string{}
	}
	switch op {
	case ">", ">=":
		r.from[column] = value
	case "<", "<=":
		r.to[column] = value
	}
}

// Bounded tells whether some column is bounded from both sides, narrowly.
func (r *Ranges) Bounded() bool {
	for column, from := range r.from {
		if to, ok := r.to[column]; ok && Range(from, to) {
			return true
		}
	}
	return false
}

// Mirrored is the operator that says the same with its sides exchanged.
func Mirrored(op string) string {
	switch op {
	case "<":
		return ">"
	case ">":
		return "<"
	case "<=":
		return ">="
	case ">=":
		return "<="
	}
	return op
}

// certain is how many letters a pattern must have that may stand anywhere in a
// text: %a% is in nearly every name.
const certain = 3

// Like tells whether a pattern of LIKE leaves texts out: it says how they begin,
// or has more than a letter or two between its wildcards. escape is the escape
// character, "" for none.
func Like(pattern, escape string) bool {
	letters := 0
	for i := 0; i < len(pattern); i++ {
		if escape != "" && strings.HasPrefix(pattern[i:], escape) {
			if i += len(escape); i >= len(pattern) {
				break
			}
		} else if c := pattern[i]; c == '%' || c == '_' {
			continue
		}
		if letters++; letters > i || letters >= certain {
			return true
		}
	}
	return false
}

// Regexp tells whether a regular expression matches nothing but texts with
// something certain in them. It knows only the plainest ones.
func Regexp(pattern string) bool { return plainRegexp.MatchString(pattern) }

var plainRegexp = regexp.MustCompile(`^\^?[A-Za-z0-9 _@/:,-]+\$?$`)

// Key tells whether a column seen through a function still says which row it is.
func Key(function string) bool {
	switch strings.ToLower(function) {
	case "lower", "upper", "lcase", "ucase", "trim", "btrim", "md5", "sha1", "sha2", "date", "hex":
		return true
	}
	return false
}
