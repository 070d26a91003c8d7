package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"sallyport.dev/sallyport"
)

// What a row can expect.
const (
	allow    = "allow"
	deny     = "deny"
	approval = "approval" // a human must say yes first
)

// A row is one call of a table.
type row struct {
	line    int
	name    string
	agent   string
	roles   []string
	profile string
	tool    string
	args    json.RawMessage
	tainted bool
	expect  string
}

const maxTable = 4 << 20 // bytes of one file

// parseTable reads {cases: [{agent, roles, tool, args, expect, …}]}, or JSON of
// the same shape. Unknown keys are refused; errors say file and line.
func parseTable(file string, src []byte) ([]row, error) {
	t := table{file}
	if len(src) > maxTable {
		return nil, t.fault(nil, "split it", "the file has %d bytes, more than %d", len(src), maxTable)
	}
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		if y, ok := errors.AsType[yaml.Error](err); ok && y.GetToken() != nil {
			return nil, t.at(y.GetToken().Position.Line, "correct the YAML", "%.200s", y.GetMessage())
		}
		return nil, t.fault(nil, "correct the YAML", "%.200s", err)
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		return nil, t.fault(nil, "write cases: and a list of calls", "the file holds no table")
	}
	var rows []row
	err = t.object(f.Docs[0].Body, map[string]func(ast.Node) error{"cases": func(n ast.Node) error {
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return t.fault(n, "begin each call with - ", "cases must be a list")
		}
		for _, item := range list.Values {
			r, err := t.row(item)
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
		return nil
	}})
	if err == nil && len(rows) == 0 {
		err = t.fault(nil, "write cases: and a list of calls", "the file holds no call, so it would test nothing")
	}
	return rows, err
}

type table struct{ file string }

func (t table) at(line int, hint, format string, args ...any) error {
	return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("%s:%d: %s", t.file, line, fmt.Sprintf(format, args...)), Hint: hint}
}

func (t table) fault(n ast.Node, hint, format string, args ...any) error {
	return t.at(lineOf(n), hint, format, args...)
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 1
	}
	return n.GetToken().Position.Line
}

func (t table) row(n ast.Node) (r row, err error) {
	r.line, r.args = lineOf(n), json.RawMessage("{}")
	err = t.object(n, map[string]func(ast.Node) error{
		"name": t.text(&r.name), "agent": t.text(&r.agent), "profile": t.text(&r.profile), "tool": t.text(&r.tool), "expect": t.text(&r.expect),
		"tainted": func(n ast.Node) error {
			b, ok := n.(*ast.BoolNode)
			if !ok {
				return t.fault(n, "write true or false", "tainted must be true or false")
			}
			r.tainted = b.Value
			return nil
		},
		"roles": func(n ast.Node) error {
			list, ok := n.(*ast.SequenceNode)
			if !ok {
				return t.fault(n, "for example roles: [agent]", "roles must be a list")
			}
			for _, item := range list.Values {
				var s string
				if err := t.text(&s)(item); err != nil {
					return err
				}
				r.roles = append(r.roles, s)
			}
			return nil
		},
		"args": func(n ast.Node) error {
			src, err := yaml.YAMLToJSON([]byte(n.String()))
			if err == nil {
				r.args, err = sallyport.Canonical(src)
			}
			if err != nil || !strings.HasPrefix(string(r.args), "{") {
				return t.fault(n, `for example args: {sql: "SELECT 1"}`, "args must be the arguments of a call, an object")
			}
			return nil
		},
	})
	switch {
	case err != nil:
	case r.agent == "":
		err = t.at(r.line, "add agent:", "a call needs who makes it")
	case r.tool == "":
		err = t.at(r.line, "add tool:", "a call needs a tool")
	case !slices.Contains([]string{allow, deny, approval}, r.expect):
		err = t.at(r.line, "write expect: allow, deny or approval", "%.40q of expect is none of allow, deny and approval", r.expect)
	}
	if r.name == "" {
		r.name = r.agent + " calls " + r.tool
	}
	return r, err
}

func (t table) text(to *string) func(ast.Node) error {
	return func(n ast.Node) error {
		switch s := n.(type) {
		case *ast.StringNode:
			*to = s.Value
		case *ast.LiteralNode:
			*to = s.Value.Value
		default:
			return t.fault(n, "put it in quotes", "expected text, got %.40q", n.String())
		}
		return nil
	}
}

// object reads a mapping of known keys, each once.
func (t table) object(n ast.Node, known map[string]func(ast.Node) error) error {
	var entries []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		entries = m.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{m}
	default:
		return t.fault(n, "write KEY: VALUE", "expected a block of keys, got %.40q", n.String())
	}
	seen := map[string]bool{}
	for _, e := range entries {
		key := e.Key.String()
		set, ok := known[strings.Trim(key, `"'`)]
		switch {
		case !ok:
			var names []string
			for k := range known {
				names = append(names, k)
			}
			slices.Sort(names)
			return t.fault(e.Key, "the keys here are "+strings.Join(names, ", "), "unknown key %.40q", key)
		case seen[key]:
			return t.fault(e.Key, "keep one of them", "%s is there twice", key)
		}
		seen[key] = true
		if err := set(e.Value); err != nil {
			return err
		}
	}
	return nil
}
