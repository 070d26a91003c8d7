package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A ref stands in arguments for one value:
//
//	{"$ref": "steps.create.structuredContent.id", "type": "string", "pattern": "^[0-9]+$", "max_length": 20}
//
// It is a path and nothing else: no expressions, no text around it. The first
// word says where the value comes from: inputs, steps.ID (the result of an
// earlier step), and in a compensation arguments and result, those of the step
// that it undoes. The rest are names of members, or numbers of items.
type ref struct {
	path    []string
	kind    string // "string", "integer", "number", "boolean", or "" if none is declared
	pattern *regexp.Regexp
	max     int // characters of a string
}

const (
	refKey         = "$ref"
	maxPattern     = 256
	defaultMaxText = 128
)

var segment = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func isRef(n node) bool { return n.kind == '{' && n.member(refKey) != nil }

// wellFormed checks every reference of a template.
func (s source) wellFormed(n node) error {
	if isRef(n) {
		_, err := s.ref(n)
		return err
	}
	for _, m := range n.members {
		if err := s.wellFormed(m.value); err != nil {
			return err
		}
	}
	for _, item := range n.items {
		if err := s.wellFormed(item); err != nil {
			return err
		}
	}
	return nil
}

func (s source) ref(n node) (ref, error) {
	r := ref{max: defaultMaxText}
	var path, pattern string
	err := s.object(n, "a reference", fields{
		refKey: s.text(&path),
		"type": func(n node) error {
			if n.kind != '"' || !slices.Contains([]string{"string", "integer", "number", "boolean"}, n.text) {
				return s.errorf(n.line, "string, integer, number or boolean", "unexpected type %.40q", n.text)
			}
			r.kind = n.text
			return nil
		},
		"pattern":    s.text(&pattern),
		"max_length": s.count(&r.max, 4096),
	})
	if err != nil {
		return r, err
	}
	r.path = strings.Split(path, ".")
	for _, p := range r.path {
		if !segment.MatchString(p) {
			return r, s.errorf(n.line, "for example steps.create.structuredContent.id", "the reference %.80q is not words joined by dots", path)
		}
	}
	if least := map[string]int{"inputs": 2, "steps": 3, "arguments": 2, "result": 2}[r.path[0]]; least == 0 || len(r.path) < least || len(r.path) > 16 {
		return r, s.errorf(n.line, "begin with inputs., steps.ID., or in a compensation arguments. or result.", "the reference %.80q leads nowhere", path)
	}
	if pattern == "" {
		return r, nil
	}
	if r.kind != "" && r.kind != "string" || len(pattern) > maxPattern {
		return r, s.errorf(n.line, "give a short pattern to a string", "this pattern cannot be used")
	}
	r.kind = "string"
	// The whole value must match: half a match is how a wildcard gets in. So is a
	// parenthesis that closes ours, so the pattern is one by itself.
	if _, err = regexp.Compile(pattern); err != nil {
		return r, s.errorf(n.line, "write a regular expression", "the pattern %.60q cannot be used", pattern)
	}
	if r.pattern, err = regexp.Compile(`\A(?:` + pattern + `)\z`); err != nil {
		return r, s.errorf(n.line, "write a regular expression", "the pattern %.60q cannot be used", pattern)
	}
	return r, nil
}

// references refuses those of a step that lead to itself or to later steps.
func (s source) references(st Step, earlier []Step) error {
	check := func(args json.RawMessage, undo bool) error {
		for _, r := range refsIn(args) {
			known := func(id string) bool {
				return slices.ContainsFunc(earlier, func(e Step) bool { return e.ID == id }) || undo && id == st.ID
			}
			switch {
			case r.path[0] == "steps" && !known(r.path[1]):
				return s.errorf(st.Line, "refer to steps before this one", "step %q refers to step %q, which is not before it", st.ID, r.path[1])
			case !undo && (r.path[0] == "arguments" || r.path[0] == "result"):
				return s.errorf(st.Line, "use inputs. or steps.ID.", "step %q: %s. is for compensations", st.ID, r.path[0])
			}
		}
		return nil
	}
	if err := check(st.Do.Args, false); err != nil || st.Undo == nil {
		return err
	}
	return check(st.Undo.Args, true)
}

// template reads stored arguments, which are canonical and were checked.
func template(args json.RawMessage) (node, error) { return source{"arguments"}.readJSON(args) }

func refsIn(args json.RawMessage) (all []ref) {
	n, err := template(args)
	if err != nil {
		return nil
	}
	n.each(func(r node) {
		if v, err := (source{}).ref(r); err == nil {
			all = append(all, v)
		}
	})
	return all
}

// each visits every reference.
func (n node) each(visit func(node)) {
	if isRef(n) {
		visit(n)
		return
	}
	for _, m := range n.members {
		m.value.each(visit)
	}
	for _, item := range n.items {
		item.each(visit)
	}
}

// fill returns the template with each reference replaced by what value gives.
// It stops at the first error.
func (n node) fill(value func(at string, r node) (node, error)) (node, error) {
	return n.fillAt("", value)
}

func (n node) fillAt(at string, value func(string, node) (node, error)) (_ node, err error) {
	if isRef(n) {
		return value(at, n)
	}
	out := n
	out.members, out.items = slices.Clone(n.members), slices.Clone(n.items)
	for i, m := range out.members {
		if out.members[i].value, err = m.value.fillAt(at+"/"+sallyport.PointerToken(m.name), value); err != nil {
			return out, err
		}
	}
	for i, item := range out.items {
		if out.items[i], err = item.fillAt(at+"/"+strconv.Itoa(i), value); err != nil {
			return out, err
		}
	}
	return out, nil
}

// follow finds the value at a path below a JSON value.
func follow(raw json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, p := range path {
		if next := wire.Member(raw, p); wire.IsObject(raw) && next != nil {
			raw = next
			continue
		}
		i, err := strconv.Atoi(p)
		if err != nil || i < 0 || len(raw) == 0 || raw[0] != '[' {
			return nil, false
		}
		found := false
		for item := range wire.Elements(raw) {
			if i == 0 {
				raw, found = item, true
				break
			}
			i--
		}
		if !found {
			return nil, false
		}
	}
	return raw, true
}

// declared reports whether the reference says what may come: without a pattern
// a text could be anything.
func (r ref) declared() bool {
	return r.kind == "integer" || r.kind == "number" || r.kind == "boolean" || r.pattern != nil
}

// fits is nil if the value is what the reference declares. One that declares
// nothing takes any plain value.
func (r ref) fits(v node) error {
	kind := map[byte]string{'"': "string", '0': "number", 't': "boolean"}[v.kind]
	if kind == "number" && r.kind == "integer" && !strings.ContainsAny(v.text, ".eE") {
		kind = "integer"
	}
	switch {
	case kind == "":
		return fmt.Errorf("%s is %s, and only plain values are taken from results", r, v.what())
	case r.kind != "" && r.kind != kind:
		return fmt.Errorf("%s is %s, declared as %s", r, v.what(), r.kind)
	case kind == "string" && utf8.RuneCountInString(v.text) > r.max:
		return fmt.Errorf("%s has more than %d characters", r, r.max)
	case r.pattern != nil && !r.pattern.MatchString(v.text):
		return fmt.Errorf("%s is %.80q, which is not of the declared pattern", r, v.text)
	}
	return nil
}

func (r ref) String() string { return strings.Join(r.path, ".") }

func unreadable(what string, err error) error {
	return &sallyport.Error{Code: sallyport.Internal, Step: sallyport.Execute, Message: what + " cannot be read", Err: err}
}
