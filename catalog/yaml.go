package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/spelling"
	"sallyport.dev/sallyport/wire"
)

// document reads one YAML file by walking its syntax tree, so that every
// error can name the line, and no value is ever converted in silence. Anchors,
// aliases, merge keys and tags are refused.
type document struct{ file string }

// A setter takes one value in.
type setter func(n ast.Node) error

// fields are the keys that an object may have.
type fields map[string]setter

func (d document) errorf(n ast.Node, hint, format string, args ...any) error {
	line := 1
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		line = n.GetToken().Position.Line
	}
	e := fault("%s:%d: %s", d.file, line, fmt.Sprintf(format, args...))
	e.Hint = hint
	return e
}

// parse returns the root of the one document in src.
func (d document) parse(src []byte) (ast.Node, error) {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		line, what := 1, err.Error()
		if y, ok := errors.AsType[yaml.Error](err); ok {
			what = y.GetMessage()
			if t := y.GetToken(); t != nil && t.Position != nil {
				line = t.Position.Line
			}
		}
		e := fault("%s:%d: %.300s", d.file, line, what)
		e.Hint = "correct the YAML: indentation (spaces, no tabs), quotes and colons at that line and the next"
		return nil, e
	}
	var docs []ast.Node
	for _, doc := range file.Docs {
		if doc != nil && doc.Body != nil {
			docs = append(docs, doc.Body)
		}
	}
	switch len(docs) {
	case 0:
		return nil, d.errorf(nil, "write a manifest, or remove the file", "the file is empty")
	case 1:
		return docs[0], nil
	}
	return nil, d.errorf(docs[1], "put it into a file of its own", "a file holds one manifest")
}

// object reads a mapping of known keys.
func (d document) object(n ast.Node, what string, known fields) error {
	entries, err := d.entries(n, what)
	if err != nil {
		return err
	}
	for _, e := range entries {
		set, ok := known[e.key]
		if !ok {
			return d.errorf(e.node, suggest(e.key, known), "%s has no key %.60q", what, e.key)
		}
		if err := set(e.value); err != nil {
			return err
		}
	}
	return nil
}

type mapEntry struct {
	key   string
	node  ast.Node
	value ast.Node
}

func (d document) entries(n ast.Node, what string) ([]mapEntry, error) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, d.errorf(n, "write key: value lines", "%s must be a mapping, not %s", what, kind(n))
	}
	seen := map[string]bool{}
	var out []mapEntry
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			return nil, d.errorf(v.Key, "write the key as plain text", "a key of %s must be text, not %s", what, kind(v.Key))
		}
		if seen[key.Value] {
			return nil, d.errorf(v.Key, "keep one of them", "the key %.60q is there twice", key.Value)
		}
		seen[key.Value] = true
		out = append(out, mapEntry{key.Value, v.Key, v.Value})
	}
	return out, nil
}

func kind(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode:
		return "a number"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias (not supported)"
	case *ast.TagNode:
		return "a tagged value (not supported)"
	}
	return "something else"
}

func (d document) text(to *string) setter {
	return func(n ast.Node) error {
		s, ok := textOf(n)
		if !ok {
			return d.errorf(n, "put it in quotes", "expected text, got %s", kind(n))
		}
		*to = s
		return nil
	}
}

func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

func (d document) boolean(to *bool) setter {
	return func(n ast.Node) error {
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return d.errorf(n, "write true or false", "expected true or false, got %s", kind(n))
		}
		*to = b.Value
		return nil
	}
}

func (d document) oneOf(to *string, allowed ...string) setter {
	return func(n ast.Node) error {
		s, ok := textOf(n)
		if !ok || !slices.Contains(allowed, s) {
			return d.errorf(n, "use one of: "+strings.Join(allowed, ", "), "unexpected value %.60q", n.String())
		}
		*to = s
		return nil
	}
}

func (d document) list(item setter) setter {
	return func(n ast.Node) error {
		s, ok := n.(*ast.SequenceNode)
		if !ok {
			return d.errorf(n, "write a list: [a, b], or lines that begin with -", "expected a list, got %s", kind(n))
		}
		for _, v := range s.Values {
			if err := item(v); err != nil {
				return err
			}
		}
		return nil
	}
}

// schema takes a JSON object, written as YAML or as JSON text.
func (d document) schema(to *json.RawMessage) setter {
	return func(n ast.Node) error {
		raw, err := d.objectJSON(n)
		if err != nil {
			return err
		}
		if _, err := compile(raw); err != nil {
			return d.errorf(n, "write a JSON Schema 2020-12 object", "the schema cannot be used: %v", err)
		}
		*to = raw
		return nil
	}
}

// objectJSON returns a mapping, or text that holds a JSON object, as JSON.
func (d document) objectJSON(n ast.Node) (json.RawMessage, error) {
	if s, ok := textOf(n); ok {
		raw := json.RawMessage(strings.TrimSpace(s))
		if err := wire.Validate(raw); err != nil {
			return nil, d.errorf(n, "write it as YAML, or correct the JSON", "not valid JSON: %v", err)
		}
		if !wire.IsObject(raw) {
			return nil, d.errorf(n, "write an object", "expected a JSON object")
		}
		return raw, nil
	}
	if _, err := d.entries(n, "this"); err != nil {
		return nil, err
	}
	return d.appendJSON(nil, n, 0)
}

// appendJSON writes a YAML value as JSON; number literals stay as they are.
func (d document) appendJSON(dst []byte, n ast.Node, level int) ([]byte, error) {
	if level > maxSchemaDepth {
		return nil, d.errorf(n, "flatten it", "nested deeper than %d levels", maxSchemaDepth)
	}
	if s, ok := textOf(n); ok {
		return wire.AppendString(dst, s), nil
	}
	switch v := n.(type) {
	case *ast.NullNode:
		return append(dst, "null"...), nil
	case *ast.BoolNode:
		return fmt.Appendf(dst, "%t", v.Value), nil
	case *ast.IntegerNode, *ast.FloatNode:
		literal := v.GetToken().Value
		if wire.Validate([]byte(literal)) != nil {
			return nil, d.errorf(n, "write it as JSON does", "the number %.40q is not one in JSON", literal)
		}
		return append(dst, literal...), nil
	case *ast.SequenceNode:
		dst = append(dst, '[')
		for i, item := range v.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = d.appendJSON(dst, item, level+1); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	entries, err := d.entries(n, "this")
	if err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(wire.AppendString(dst, e.key), ':')
		if dst, err = d.appendJSON(dst, e.value, level+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// suggest names the key that was probably meant.
func suggest(key string, known fields) string {
	names := slices.Sorted(maps.Keys(known))
	if best := spelling.Closest(key, names); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known keys: " + strings.Join(names, ", ")
}

func (d document) level(to **sallyport.Level) setter {
	return func(n ast.Node) error {
		s, _ := textOf(n)
		var l sallyport.Level
		if err := l.UnmarshalText([]byte(s)); err != nil {
			return d.errorf(n, "use low, medium, high or critical", "unexpected risk %.40q", n.String())
		}
		*to = &l
		return nil
	}
}
