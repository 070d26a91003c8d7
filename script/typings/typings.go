// Package typings words tools as functions: what a model reads that writes a
// program which calls them.
package typings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// A Function is one tool as a function.
type Function struct {
	Name        string   `json:"name"`        // by which it is called
	Path        []string `json:"path"`        // where it is in the object tools: one or two names
	Call        string   `json:"call"`        // how a program names it
	About       string   `json:"about"`       // in a line
	Declaration string   `json:"declaration"` // in TypeScript, with what it is for
}

// Bounds of one declaration: a schema may refer to itself, and be of any size.
const (
	maxDepth = 6
	maxType  = 4 << 10
	maxAbout = 100
	maxDoc   = 1 << 10
)

// Of words a tool, as agents see it.
func Of(t sallyport.Tool) Function {
	d := struct {
		Name         string
		Description  string
		InputSchema  json.RawMessage
		OutputSchema json.RawMessage
	}{t.Shown(), t.Description, t.InputSchema, t.OutputSchema}
	var seen struct {
		Description  *string         `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
	}
	if json.Unmarshal(t.Definition, &seen) == nil { // what agents are shown wins
		if seen.Description != nil {
			d.Description = *seen.Description
		}
		d.InputSchema, d.OutputSchema = orElse(seen.InputSchema, d.InputSchema), orElse(seen.OutputSchema, d.OutputSchema)
	}
	f := Function{Name: d.Name, Path: []string{d.Name}, About: firstLine(d.Description)}
	if server, tool, ok := strings.Cut(d.Name, "__"); ok && server != "" && tool != "" {
		f.Path = []string{server, tool}
	}
	f.Call = "tools"
	for _, p := range f.Path {
		f.Call += member(p)
	}
	in, optional := typeOf(d.InputSchema)
	mark := ""
	if optional {
		mark = "?"
	}
	out := "string | object"
	if len(d.OutputSchema) > 0 {
		out, _ = typeOf(d.OutputSchema)
	}
	f.Declaration = comment(d.Description) + fmt.Sprintf("%s(arguments%s: %s): Promise<%s>", f.Call, mark, in, out)
	return f
}

func orElse(a, b json.RawMessage) json.RawMessage {
	if len(a) > 0 && string(a) != "null" {
		return a
	}
	return b
}

var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func member(name string) string {
	if identifier.MatchString(name) {
		return "." + name
	}
	return "[" + quote(name) + "]"
}

func key(name string) string {
	if identifier.MatchString(name) {
		return name
	}
	return quote(name)
}

func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSpace(b.String())
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[:n]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func firstLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if i := strings.Index(s, ". "); i > 0 {
		s = s[:i+1]
	}
	return clip(s, maxAbout)
}

// comment is s as comments of one line each, which nothing in s can end. One between
// /* and */ would be taken for a text that is hidden from readers (redact/inject).
func comment(s string) string {
	s = lineBreaks.Replace(clip(strings.TrimSpace(s), maxDoc))
	if s == "" {
		return ""
	}
	return "// " + strings.ReplaceAll(s, "\n", "\n// ") + "\n"
}

// lineBreaks are all that end a line of TypeScript.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n")

// typeOf words a schema; optional says that {} fits it.
func typeOf(schema json.RawMessage) (text string, optional bool) {
	var root any
	in := json.NewDecoder(bytes.NewReader(schema))
	in.UseNumber() // numbers stay as they are written
	if in.Decode(&root) != nil {
		return "object", true
	}
	w := writer{root: root}
	text = w.schema(root, maxDepth)
	if len(text) > maxType {
		text = "object /* too large to show; see the tool's schema in tools/list */"
	}
	m, _ := root.(map[string]any)
	required, _ := m["required"].([]any)
	return text, len(required) == 0
}

// A writer words one schema. size bounds its work.
type writer struct {
	root any
	size int
}

func (w *writer) schema(v any, depth int) string {
	m, ok := v.(map[string]any)
	if w.size++; !ok || depth == 0 || w.size > maxType/2 {
		return "any"
	}
	if ref, ok := m["$ref"].(string); ok {
		return w.schema(w.find(ref), depth-1)
	}
	if c, ok := m["const"]; ok {
		return literal(c)
	}
	if values, ok := m["enum"].([]any); ok && len(values) > 0 {
		return union(values, literal)
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if all, ok := m[name].([]any); ok && len(all) > 0 {
			return union(all, func(v any) string { return w.schema(v, depth-1) })
		}
	}
	if kinds, ok := m["type"].([]any); ok && len(kinds) > 0 {
		return union(kinds, func(k any) string { return w.kind(fmt.Sprint(k), m, depth) })
	}
	kind, _ := m["type"].(string)
	if kind == "" && m["properties"] != nil {
		kind = "object"
	}
	return w.kind(kind, m, depth)
}

func (w *writer) kind(kind string, m map[string]any, depth int) string {
	switch kind {
	case "string", "boolean", "null":
		return kind
	case "number", "integer":
		return "number"
	case "array":
		if m["items"] == nil {
			return "any[]"
		}
		item := w.schema(m["items"], depth-1)
		if strings.ContainsAny(item, " ") {
			return "Array<" + item + ">"
		}
		return item + "[]"
	case "object":
		return w.object(m, depth)
	default:
		return "any"
	}
}

func (w *writer) object(m map[string]any, depth int) string {
	properties, _ := m["properties"].(map[string]any)
	if len(properties) == 0 {
		if more, ok := m["additionalProperties"].(map[string]any); ok {
			return "Record<string, " + w.schema(more, depth-1) + ">"
		}
		if m["additionalProperties"] == false {
			return "{}"
		}
		return "Record<string, any>"
	}
	required := map[string]bool{}
	names, _ := m["required"].([]any)
	for _, n := range names {
		required[fmt.Sprint(n)] = true
	}
	var b strings.Builder
	b.WriteString("{ ")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		mark := "?"
		if required[name] {
			mark = ""
		}
		fmt.Fprintf(&b, "%s%s: %s; ", key(name), mark, w.schema(properties[name], depth-1))
		if b.Len() > maxType {
			break
		}
	}
	return b.String() + "}"
}

// find follows a reference within the schema.
func (w *writer) find(ref string) any {
	at := w.root
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	for _, part := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > 200 {
		return "any"
	}
	return string(b)
}

// union words alternatives, each once.
func union(all []any, word func(any) string) string {
	var out []string
	for _, v := range all[:min(len(all), 50)] {
		if s := word(v); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(all) > 50 {
		out = append(out, "any")
	}
	return strings.Join(out, " | ")
}
