// Package literal reads JSON as it is written: arguments in canonical form, and
// numbers that nobody may be made to compute with.
package literal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder makes Go values of canonical JSON, the form in which all arguments
// come here: no white space, no duplicates, depth bounded. It takes a third of
// the time of a general one. Numbers stay literals. Anything that is not
// canonical sets broken.
type decoder struct {
	raw    []byte
	i      int
	broken bool
	costly error // a number that would be costly to compute with
}

func (d *decoder) peek() byte {
	if d.i < len(d.raw) {
		return d.raw[d.i]
	}
	return 0
}

// take consumes c if it is next.
func (d *decoder) take(c byte) bool {
	if d.peek() != c {
		return false
	}
	d.i++
	return true
}

func (d *decoder) value() any {
	switch c := d.peek(); {
	case c == '{':
		return d.object()
	case c == '[':
		return d.array()
	case c == '"':
		return d.text()
	case c == '-' || c >= '0' && c <= '9':
		from := d.i
		for c := d.peek(); c != 0 && strings.IndexByte("+-.eE0123456789", c) >= 0; c = d.peek() {
			d.i++
		}
		n := string(d.raw[from:d.i])
		if err := checkNumber(n); err != nil {
			d.costly = err
		}
		return json.Number(n)
	}
	switch rest := d.raw[d.i:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		d.i += 4
		return true
	case bytes.HasPrefix(rest, []byte("false")):
		d.i += 5
		return false
	case bytes.HasPrefix(rest, []byte("null")):
		d.i += 4
		return nil
	}
	d.broken = true
	return nil
}

func (d *decoder) text() string {
	from := d.i
	plain := true
	for d.i++; d.i < len(d.raw); d.i++ {
		switch d.raw[d.i] {
		case '\\':
			plain = false
			d.i++
		case '"':
			d.i++
			if plain {
				return string(d.raw[from+1 : d.i-1])
			}
			b, err := jsontext.AppendUnquote(nil, d.raw[from:d.i])
			d.broken = d.broken || err != nil
			return string(b)
		}
	}
	d.broken = true
	return ""
}

func (d *decoder) object() map[string]any {
	d.i++
	out := map[string]any{}
	for !d.take('}') && !d.broken {
		if len(out) > 0 && !d.take(',') || d.peek() != '"' {
			d.broken = true
			break
		}
		name := d.text()
		if _, twice := out[name]; twice || !d.take(':') {
			d.broken = true
			break
		}
		out[name] = d.value()
	}
	return out
}

func (d *decoder) array() []any {
	d.i++
	out := []any{}
	for !d.take(']') && !d.broken {
		if len(out) > 0 && !d.take(',') {
			d.broken = true
			break
		}
		out = append(out, d.value())
	}
	return out
}

var errBroken = errors.New("they are not valid JSON")

// Decode returns canonical JSON as Go values, with numbers as literals.
func Decode(raw []byte) (any, error) {
	d := decoder{raw: raw}
	doc := d.value()
	if d.broken || d.i != len(raw) {
		return nil, errBroken
	}
	return doc, d.costly
}

// Bounds on one number.
const (
	maxNumber   = 1024 // characters of its literal
	maxExponent = 4096 // a larger one would be multiplied out
)

// Depth is the deepest nesting of valid JSON.
func Depth(raw []byte) int {
	level, deepest := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			level++
			deepest = max(deepest, level)
		case '}', ']':
			level--
		}
	}
	return deepest
}

// CheckNumbers refuses numbers that would be costly to compute with. Their
// literals otherwise pass as they are.
func CheckNumbers(raw []byte) error {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case c == '-' || c >= '0' && c <= '9':
			from := i
			for i < len(raw) && strings.IndexByte("+-.eE0123456789", raw[i]) >= 0 {
				i++
			}
			if err := checkNumber(string(raw[from:i])); err != nil {
				return err
			}
			i--
		}
	}
	return nil
}

func checkNumber(literal string) error {
	if len(literal) > maxNumber {
		return fmt.Errorf("a number of %d characters is too long, at most %d are taken", len(literal), maxNumber)
	}
	e := strings.IndexAny(literal, "eE")
	if e < 0 {
		return nil
	}
	exponent := 0
	for _, c := range strings.TrimLeft(literal[e+1:], "+-") {
		if exponent = exponent*10 + int(c-'0'); exponent > maxExponent {
			return fmt.Errorf("the exponent of the number %.40s is too large, at most %d is taken", literal, maxExponent)
		}
	}
	return nil
}
