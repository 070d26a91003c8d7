package plan

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A node is one value of a plan, YAML or JSON, with its line. Nothing is
// converted: numbers are literals.
type node struct {
	line    int
	kind    byte // '{' '[' '"' '0' (a number) 't' (true or false) 'n' (null)
	text    string
	items   []node
	members []member
}

type member struct {
	name  string
	line  int
	value node
}

func (n node) what() string {
	switch n.kind {
	case '{':
		return "a block of keys"
	case '[':
		return "a list"
	case '"':
		return "text"
	case '0':
		return "a number"
	case 't':
		return "true or false"
	}
	return "nothing"
}

func (n node) member(name string) *node {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i].value
		}
	}
	return nil
}

// json writes the value as JSON; canonical makes it canonical.
func (n node) json(dst []byte) []byte {
	switch n.kind {
	case '{':
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(wire.AppendString(dst, m.name), ':')
			dst = m.value.json(dst)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.json(dst)
		}
		return append(dst, ']')
	case '"':
		return wire.AppendString(dst, n.text)
	}
	return append(dst, n.text...)
}

// A source is a text that is read, for errors with file and line.
type source struct{ file string }

func (s source) errorf(line int, hint, format string, args ...any) error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Validate,
		Message: fmt.Sprintf("%s:%d: %s", s.file, line, fmt.Sprintf(format, args...)), Hint: hint,
	}
}

// read parses text that is JSON if it begins with a brace, else YAML.
func (s source) read(text []byte) (node, error) {
	switch {
	case len(text) > MaxBytes:
		return node{}, s.errorf(1, "split it", "the plan has %d bytes, more than %d", len(text), MaxBytes)
	case !utf8.Valid(text):
		return node{}, s.errorf(1, "save it as UTF-8", "the plan is not UTF-8")
	case len(bytes.TrimSpace(text)) == 0:
		return node{}, s.errorf(1, "write steps:", "the plan is empty")
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return s.readJSON(text)
	}
	return s.readYAML(text)
}

func (s source) readJSON(text []byte) (node, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	line := func() int { return 1 + bytes.Count(text[:min(int(d.InputOffset()), len(text))], []byte("\n")) }
	fail := func(err error) error {
		return s.errorf(line(), "correct the JSON", "not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	var value func(depth int) (node, error)
	value = func(depth int) (node, error) {
		tok, err := d.ReadToken()
		if err != nil {
			return node{}, fail(err)
		}
		n := node{line: line(), kind: byte(tok.Kind())}
		if depth > maxDepth {
			return n, s.errorf(n.line, "flatten it", "nested deeper than %d levels", maxDepth)
		}
		switch n.kind {
		case '"', '0', 'n':
			n.text = tok.String()
		case 't', 'f':
			n.kind, n.text = 't', tok.String()
		case '{', '[':
			end := jsontext.Kind('}')
			if n.kind == '[' {
				end = ']'
			}
			for d.PeekKind() != end {
				m := member{}
				if n.kind == '{' {
					name, err := d.ReadToken()
					if err != nil {
						return n, fail(err)
					}
					m.name, m.line = name.String(), line()
				}
				if m.value, err = value(depth + 1); err != nil {
					return n, err
				}
				if n.kind == '{' {
					n.members = append(n.members, m)
				} else {
					n.items = append(n.items, m.value)
				}
			}
			if _, err := d.ReadToken(); err != nil {
				return n, fail(err)
			}
		default:
			return n, s.errorf(n.line, "correct the JSON", "not JSON")
		}
		return n, nil
	}
	root, err := value(0)
	if err == nil && len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		err = s.errorf(line(), "keep one of them", "more than one value")
	}
	return root, err
}

func (s source) readYAML(text []byte) (root node, err error) {
	defer func() { // a bug of the parser is a plan that cannot be read
		if p := recover(); p != nil {
			err = s.errorf(1, "correct the YAML", "cannot be parsed")
		}
	}()
	if tooDeep(text) {
		return root, s.errorf(1, "flatten it", "nested deeper than %d levels", maxDepth)
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, what := 1, "is not YAML"
		var y yaml.Error
		if errors.As(err, &y) {
			what, _, _ = strings.Cut(y.GetMessage(), "\n")
			if t := y.GetToken(); t != nil && t.Position != nil {
				line = t.Position.Line
			}
		}
		return root, s.errorf(line, "check indentation, quotes and colons", "%.200s", what)
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc != nil && doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) != 1 {
		return root, s.errorf(1, "write one plan to a file", "the file holds %d documents", len(bodies))
	}
	return s.fromYAML(bodies[0], 0)
}

// tooDeep bounds what the parser is given: it recurses.
func tooDeep(text []byte) bool {
	open := 0
	for line := range bytes.Lines(text) {
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		if indent > 16*maxDepth || bytes.Count(line, []byte("- ")) > maxDepth {
			return true
		}
		for _, c := range line {
			switch c {
			case '[', '{':
				if open++; open > maxDepth {
					return true
				}
			case ']', '}':
				open = max(0, open-1)
			}
		}
	}
	return false
}

func (s source) fromYAML(a ast.Node, depth int) (node, error) {
	line := 1
	if t := a.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	n := node{line: line}
	if depth > maxDepth {
		return n, s.errorf(line, "flatten it", "nested deeper than %d levels", maxDepth)
	}
	switch v := a.(type) {
	case *ast.StringNode:
		n.kind, n.text = '"', v.Value
	case *ast.LiteralNode:
		n.kind, n.text = '"', v.Value.Value
	case *ast.BoolNode:
		n.kind, n.text = 't', fmt.Sprint(v.Value)
	case *ast.NullNode:
		n.kind, n.text = 'n', "null"
	case *ast.IntegerNode, *ast.FloatNode:
		n.kind, n.text = '0', a.GetToken().Value
		if wire.Validate([]byte(n.text)) != nil {
			return n, s.errorf(line, "write it as JSON does, or in quotes", "the number %.40q is not one in JSON", n.text)
		}
	case *ast.SequenceNode:
		n.kind = '['
		for _, item := range v.Values {
			child, err := s.fromYAML(item, depth+1)
			if err != nil {
				return n, err
			}
			n.items = append(n.items, child)
		}
	case *ast.MappingNode:
		return s.mapping(n, v.Values, depth)
	case *ast.MappingValueNode:
		return s.mapping(n, []*ast.MappingValueNode{v}, depth)
	default:
		return n, s.errorf(line, "write the value out", "anchors, aliases and tags are not supported")
	}
	if n.kind == '"' && !utf8.ValidString(n.text) {
		return n, s.errorf(line, "write it as UTF-8", "text that is not UTF-8")
	}
	return n, nil
}

func (s source) mapping(n node, values []*ast.MappingValueNode, depth int) (node, error) {
	n.kind = '{'
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		line := n.line
		if t := v.Key.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
		if !ok || !utf8.ValidString(key.Value) {
			return n, s.errorf(line, "put the key in quotes", "a key must be text")
		}
		if slices.ContainsFunc(n.members, func(m member) bool { return m.name == key.Value }) {
			return n, s.errorf(line, "keep one of them", "the key %.60q is there twice", key.Value)
		}
		child, err := s.fromYAML(v.Value, depth+1)
		if err != nil {
			return n, err
		}
		n.members = append(n.members, member{key.Value, line, child})
	}
	return n, nil
}
