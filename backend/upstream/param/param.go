// Package param finds the arguments of a tool that its server wants to see as
// HTTP headers too (x-mcp-header in its input schema), and writes them.
package param

import (
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

// Headers reads the annotations of an input schema. A schema that uses
// them wrongly is an error: such a tool must not be listed.
func Headers(schema json.RawMessage) ([]Header, error) {
	if !strings.Contains(string(schema), "x-mcp-header") {
		return nil, nil
	}
	var found []Header
	seen := map[string]bool{}
	var walk func(schema json.RawMessage, path []string) error
	walk = func(schema json.RawMessage, path []string) error {
		if len(path) > maxDepth {
			return errors.New("x-mcp-header: nested too deep")
		}
		if v := wire.Member(schema, "x-mcp-header"); v != nil {
			name, _ := wire.String(v)
			kind, _ := wire.String(wire.Member(schema, "type"))
			lower := strings.ToLower(name)
			switch {
			case len(path) == 0 || !token(name) || seen[lower]:
				return fmt.Errorf("x-mcp-header %.60s is misplaced, not a header name, or there twice", v)
			case kind != "string" && kind != "integer" && kind != "boolean":
				return fmt.Errorf("x-mcp-header %.60q is on a parameter of type %.40q", name, kind)
			}
			seen[lower] = true
			found = append(found, Header{name, append([]string(nil), path...)})
		}
		for name, sub := range wire.Members(wire.Member(schema, "properties")) {
			if err := walk(sub, append(path, string(name))); err != nil {
				return err
			}
		}
		return nil
	}
	err := walk(schema, nil)
	return found, err
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
