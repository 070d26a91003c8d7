package sallyport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth bounds the nesting of arguments. Deeper ones are refused.
const MaxDepth = 128

// Canonical returns the one form of args that policy, approver, record and
// backend all see: keys sorted (by UTF-16 code units, RFC 8785), no white
// space, strings decoded and minimally escaped, number literals verbatim.
// Duplicate keys, invalid UTF-8, trailing data, nesting beyond MaxDepth and
// anything but one JSON object are refused. Empty args mean {}.
func Canonical(args json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		return json.RawMessage("{}"), nil
	}
	v := jsontext.Value(bytes.Clone(args))
	if k := v.Kind(); k != '{' {
		if !v.IsValid() {
			return nil, errors.New("arguments are not JSON")
		}
		return nil, fmt.Errorf("arguments must be a JSON object, not %s", k)
	}
	if err := checkDepth(v); err != nil {
		return nil, err
	}
	err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return nil, fmt.Errorf("arguments are not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	return json.RawMessage(v), nil
}

func checkDepth(v jsontext.Value) error {
	depth, inString := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("arguments are nested deeper than %d levels (at byte %d)", MaxDepth, i)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
