package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"sallyport.dev/sallyport/wire"
)

// Bounds of one document.
const (
	MaxBytes      = 16 << 20
	maxYAML       = 4 << 20 // its parser takes some 100 times the text
	maxDepth      = 100
	maxOperations = 5000
)

// parse reads JSON or YAML to maps, lists, strings, json.Numbers, booleans and
// nil. Numbers keep their literals; keys of YAML that look like numbers, as
// those of responses do, are texts.
func parse(text []byte) (any, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	trimmed := bytes.TrimSpace(text)
	switch {
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), MaxBytes)
	case len(trimmed) == 0:
		return nil, errors.New("it is empty")
	case !utf8.Valid(text):
		return nil, errors.New("it is not UTF-8")
	case trimmed[0] == '{':
		return parseJSON(trimmed)
	case len(text) > maxYAML:
		return nil, fmt.Errorf("as YAML it may have %d bytes, and has %d: convert it to JSON", maxYAML, len(text))
	}
	return parseYAML(text)
}

func parseJSON(text []byte) (any, error) {
	if err := wire.Validate(text); err != nil {
		return nil, fmt.Errorf("it is not valid JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

func parseYAML(text []byte) (_ any, err error) {
	defer func() {
		if recover() != nil { // a bug in the parser is no reason to end the program
			err = errors.New("it is not valid YAML")
		}
	}()
	if deep(text) {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		what := err.Error()
		if y, ok := errors.AsType[yaml.Error](err); ok {
			what = y.GetMessage()
			if t := y.GetToken(); t != nil && t.Position != nil {
				what = fmt.Sprintf("line %d: %s", t.Position.Line, what)
			}
		}
		first, _, _ := strings.Cut(what, "\n")
		return nil, fmt.Errorf("it is not valid YAML: %.200s", first)
	}
	var root ast.Node
	for _, d := range file.Docs {
		if d == nil || d.Body == nil {
			continue
		}
		if root != nil {
			return nil, errors.New("it holds more than one YAML document")
		}
		root = d.Body
	}
	return plain(root, 0)
}

// deep finds nesting in the brackets of YAML that its parser, which recurses,
// should not meet. Brackets in texts count too, unless they are closed.
func deep(text []byte) bool {
	level := 0
	for _, c := range text {
		switch c {
		case '{', '[':
			if level++; level > 4*maxDepth {
				return true
			}
		case '}', ']':
			level = max(level-1, 0)
		}
	}
	return false
}

func plain(n ast.Node, level int) (any, error) {
	if level > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return nil, nil
	case *ast.StringNode:
		if t := n.GetToken(); t.Type == token.StringType && numeral.MatchString(n.Value) {
			return json.Number(n.Value), nil // too large for the parser
		}
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode:
		return number(n), nil
	case *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, nil
	case *ast.SequenceNode:
		out := make([]any, 0, len(n.Values))
		for _, v := range n.Values {
			p, err := plain(v, level+1)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
		return out, nil
	case *ast.MappingNode:
		return mapping(n.Values, level)
	case *ast.MappingValueNode:
		return mapping([]*ast.MappingValueNode{n}, level)
	}
	line := 0
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return nil, fmt.Errorf("line %d: anchors, aliases, merge keys and tags are not read: write the value out, or convert the document to JSON", line)
}

// numeral is a number of JSON.
var numeral = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func number(n ast.Node) any {
	literal := n.GetToken().Value
	if wire.Validate([]byte(literal)) == nil {
		return json.Number(literal)
	}
	if i, ok := n.(*ast.IntegerNode); ok {
		return json.Number(fmt.Sprint(i.Value)) // 0x1F
	}
	return literal
}

func mapping(values []*ast.MappingValueNode, level int) (any, error) {
	out := make(map[string]any, len(values))
	for _, v := range values {
		var key string
		switch k := v.Key.(type) {
		case *ast.StringNode:
			key = k.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			key = k.GetToken().Value
		default:
			return plain(v.Key, maxDepth) // says what is wrong with it
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("line %d: the key %.80q is there twice", v.Key.GetToken().Position.Line, key)
		}
		p, err := plain(v.Value, level+1)
		if err != nil {
			return nil, err
		}
		out[key] = p
	}
	return out, nil
}
