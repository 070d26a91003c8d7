package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sallyport.dev/sallyport/spelling"
)

// A decoder fills a struct from a YAML tree. It knows no conversions: a string
// is a string, a number a number. Only fields marked text take any plain value
// as it is written.
type decoder struct {
	places map[string]pos // of what was set, by path: servers.github.env.TOKEN
	found  []problem
}

func (d *decoder) fail(p pos, hint, format string, args ...any) {
	d.found = append(d.found, problem{p, fmt.Sprintf(format, args...), hint})
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// value decodes n into v; path names it, for people and for places.
func (d *decoder) value(n ast.Node, v reflect.Value, path string, text bool) {
	if !d.plain(n, path) {
		return
	}
	switch v.Interface().(type) {
	case time.Duration:
		unit(d, n, v, path, parseDuration, durationHint)
		return
	case Size:
		unit(d, n, v, path, ParseSize, sizeHint)
		return
	case Value:
		d.anything(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.record(n, v, path)
	case reflect.Map:
		d.table(n, v, path, text)
	case reflect.Slice:
		d.list(n, v, path, text)
	case reflect.String:
		d.str(n, v, path, text)
	default:
		d.scalar(n, v, path)
	}
}

// plain refuses what this file does without: nothing, references and tags.
func (d *decoder) plain(n ast.Node, path string) bool {
	name := path
	if name == "" {
		name = "the file"
	}
	switch n.(type) {
	case *ast.NullNode:
		d.fail(at(n.GetToken()), "give it a value, or remove the line", "%s is empty", name)
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		d.fail(at(n.GetToken()), "write the value out", "%s: anchors and aliases are not supported", name)
	case *ast.TagNode:
		d.fail(at(n.GetToken()), "remove the tag", "%s: tags are not supported", name)
	default:
		return true
	}
	return false
}

func (d *decoder) wrong(n ast.Node, path, want, hint string) {
	d.fail(at(n.GetToken()), hint, "%s must be %s, not %s", path, want, kind(n))
}

func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a block of keys"
	}
	return "this"
}

// pairs returns the members of a mapping whose keys are plain and unique.
func (d *decoder) pairs(n ast.Node, path, hint string) []*ast.MappingValueNode {
	var all []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		all = m.Values
	case *ast.MappingValueNode:
		all = []*ast.MappingValueNode{m}
	default:
		d.wrong(n, path, "a block of keys", hint)
		return nil
	}
	seen := map[string]pos{}
	var out []*ast.MappingValueNode
	for _, p := range all {
		key, ok := keyOf(p)
		here := at(p.Key.GetToken())
		if !ok {
			d.fail(here, "write a plain word before the colon", "%s: a key must be a plain word", path)
			continue
		}
		if before, twice := seen[key]; twice {
			d.fail(here, "keep one of the two", "%s is set twice; first at line %d", join(path, key), before.line)
			continue
		}
		seen[key] = here
		out = append(out, p)
	}
	return out
}

func keyOf(p *ast.MappingValueNode) (string, bool) {
	switch k := p.Key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// record decodes a struct.
func (d *decoder) record(n ast.Node, v reflect.Value, path string) {
	fields, names := fieldsOf(v.Type())
	for _, p := range d.pairs(n, path, "indent keys below it; the keys are "+strings.Join(names, ", ")) {
		key, _ := keyOf(p)
		f, ok := fields[key]
		if !ok {
			hint := "the keys here are " + strings.Join(names, ", ")
			if c := spelling.Closest(key, names); c != "" {
				hint = "did you mean " + c + "? " + hint
			}
			d.fail(at(p.Key.GetToken()), hint, "unknown key %q", join(path, key))
			continue
		}
		d.set(p, join(path, key), func(path string) { d.value(p.Value, v.Field(f.index), path, f.text) })
	}
}

func (d *decoder) set(p *ast.MappingValueNode, path string, decode func(path string)) {
	d.places[path] = at(p.Key.GetToken())
	decode(path)
}

type field struct {
	index int
	text  bool
}

func fieldsOf(t reflect.Type) (map[string]field, []string) {
	fields := map[string]field{}
	var names []string
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		fields[name] = field{i, option == "text"}
		names = append(names, name)
	}
	return fields, names
}

// table decodes a map with names as keys.
func (d *decoder) table(n ast.Node, v reflect.Value, path string, text bool) {
	out := reflect.MakeMap(v.Type())
	for _, p := range d.pairs(n, path, "write NAME: and what belongs to it below, indented") {
		key, _ := keyOf(p)
		item := reflect.New(v.Type().Elem()).Elem()
		switch item.Type() {
		case reflect.TypeFor[Server]():
			item.Set(reflect.ValueOf(defaultServer()))
		case reflect.TypeFor[Profile]():
			item.Set(reflect.ValueOf(Profile{SearchAbove: DefaultSearchAbove}))
		}
		d.set(p, join(path, key), func(path string) { d.value(p.Value, item, path, text) })
		out.SetMapIndex(reflect.ValueOf(key), item)
	}
	v.Set(out)
}

func (d *decoder) list(n ast.Node, v reflect.Value, path string, text bool) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(n, path, "a list", "write [a, b], or one item a line, each after a hyphen")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, item := range s.Values {
		name := path + "[" + strconv.Itoa(i) + "]"
		d.places[name] = at(item.GetToken())
		if out.Index(i).Type() == reflect.TypeFor[Root]() {
			out.Index(i).Set(reflect.ValueOf(Root{ReadOnly: true}))
		}
		d.value(item, out.Index(i), name, text)
	}
	v.Set(out)
}

// str decodes text. With text set, a plain number or true is taken as it is
// written, so that env can say PORT: 08080.
func (d *decoder) str(n ast.Node, v reflect.Value, path string, text bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		v.SetString(s.Value)
		return
	case *ast.LiteralNode:
		v.SetString(s.Value.Value)
		return
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		if text {
			v.SetString(n.GetToken().Value)
			return
		}
	}
	d.wrong(n, path, "text", `put it in quotes: "…"`)
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	raw := n.GetToken().Value
	switch v.Kind() {
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
			return
		}
		d.wrong(n, path, "true or false", "write true or false, without quotes")
	case reflect.Int:
		if _, ok := n.(*ast.IntegerNode); ok {
			if i, err := strconv.ParseInt(raw, 10, 32); err == nil {
				v.SetInt(i)
				return
			}
			d.fail(at(n.GetToken()), "write a smaller number in digits", "%s: %q is not a number that fits", path, raw)
			return
		}
		d.wrong(n, path, "a whole number", "write digits, without quotes")
	case reflect.Float64:
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			if f, err := strconv.ParseFloat(raw, 64); err == nil {
				v.SetFloat(f)
				return
			}
		}
		d.wrong(n, path, "a number", "write digits, without quotes")
	}
}

// unit decodes a value with a unit.
func unit[T any](d *decoder, n ast.Node, v reflect.Value, path string, parse func(string) (T, error), hint string) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		d.fail(at(n.GetToken()), hint, "%s has no unit", path)
		return
	}
	x, err := parse(s.Value)
	if err != nil {
		d.fail(at(n.GetToken()), hint, "%s: %v", path, err)
		return
	}
	v.Set(reflect.ValueOf(x))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
