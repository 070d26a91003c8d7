// Package param finds the arguments of a tool that its server wants to see as
// HTTP headers too (x-mcp-header in its input schema), and writes them.
package param

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"sallyport.dev/sallyport/wire"
)

// A Header is one such argument.
type Header struct {
	Name string // without the prefix that all of them have
	path []string
}

const maxDepth = 16

// annotation is the keyword of a schema that names a header.
const annotation = "x-mcp-header"

// Headers reads the annotations of an input schema. A schema that uses
// them wrongly is an error: such a tool must not be listed. An annotation may only be
// where properties alone lead: what is within a list, or under a condition, has no
// value that a header could be held against.
func Headers(schema json.RawMessage) ([]Header, error) {
	if text := string(schema); !strings.Contains(text, annotation) && !strings.Contains(text, `\u`) {
		return nil, nil
	}
	r := reader{seen: map[string]bool{}}
	err := r.schema(schema, nil, true)
	return r.found, err
}

type reader struct {
	found []Header
	seen  map[string]bool
}

// schema reads one schema; reached tells whether only properties led to it.
func (r *reader) schema(schema json.RawMessage, path []string, reached bool) error {
	if len(path) > maxDepth {
		return errors.New("x-mcp-header: nested too deep")
	}
	for name, v := range wire.Members(schema) {
		var err error
		switch name := string(name); {
		case name == annotation:
			err = r.take(schema, v, path, reached)
		case data[name]:
		case named[name]:
			for member, sub := range wire.Members(v) {
				err = cmp.Or(err, r.schema(sub, append(path[:len(path):len(path)], string(member)), reached && name == "properties"))
			}
		default:
			err = r.schema(v, nil, false)
			for sub := range wire.Elements(v) {
				err = cmp.Or(err, r.schema(sub, nil, false))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// data are keywords whose values are no schemas, named those whose members are.
var (
	data  = map[string]bool{"const": true, "enum": true, "default": true, "examples": true, "example": true}
	named = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true}
)

func (r *reader) take(schema, v json.RawMessage, path []string, reached bool) error {
	name, _ := wire.String(v)
	kind, _ := wire.String(wire.Member(schema, "type"))
	lower := strings.ToLower(name)
	switch {
	case len(path) == 0 || !reached || !token(name) || r.seen[lower]:
		return fmt.Errorf("x-mcp-header %.60s is misplaced, not a header name, or there twice", v)
	case kind != "string" && kind != "integer" && kind != "boolean":
		return fmt.Errorf("x-mcp-header %.60q is on a parameter of type %.40q", name, kind)
	}
	r.seen[lower] = true
	r.found = append(r.found, Header{name, path})
	return nil
}

// token reports whether s is made of what HTTP allows in a header's name.
func token(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// Value is the header's value for arguments; null and what is missing have none.
func (h Header) Value(args json.RawMessage) (string, bool) {
	raw := wire.Path(args, h.path...)
	if s, ok := wire.String(raw); ok {
		return wire.EncodeHeader(s), true
	}
	text := string(raw)
	switch text {
	case "true", "false":
		return text, true
	case "", "null":
		return "", false
	}
	if raw[0] == '{' || raw[0] == '[' || len(text) > 40 {
		return "", false
	}
	if !strings.ContainsAny(text, ".eE") {
		return text, true
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(text)-i > 4 {
		return "", false // far beyond what a header may hold
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok || !n.IsInt() {
		return "", false
	}
	return n.Num().String(), true
}
