package change

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// prover looks for values that the narrow schema takes and the wide one does not.
// What it finds, and what it cannot decide, are reasons.
type prover struct {
	wide, narrow any  // the documents, for references
	asks         bool // the schema is of what callers send, not of what they get
	stable       bool // equal references mean the same in both
	why          []string
	steps        int
	met          map[[2]string]bool // pairs of references that were or are compared: a schema may contain itself
}

// prove returns why wide does not take all that narrow does.
func prove(path string, wide, narrow any, asks bool) []string {
	wide, narrow = worded(wide), worded(narrow)
	p := prover{wide: wide, narrow: narrow, asks: asks, stable: stable(wide, narrow), met: map[[2]string]bool{}}
	p.takes(path, wide, narrow, 0)
	return p.why
}

// Bounds on the work for one pair of schemas.
const (
	maxSteps   = 5_000
	maxDepth   = 40
	maxReasons = 12
)

func (p *prover) no(path, format string, args ...any) {
	if len(p.why) < maxReasons {
		p.why = append(p.why, path+": "+fmt.Sprintf(format, args...))
	}
}

// takes demands that w takes whatever n does.
func (p *prover) takes(path string, w, n any, depth int) {
	if p.steps++; p.steps > maxSteps || depth > maxDepth {
		if len(p.why) == 0 {
			p.no(path, "the schemas are too large to compare")
		}
		return
	}
	if pair := [2]string{alone(w), alone(n)}; pair[0] != "" && pair[1] != "" {
		if p.met[pair] {
			return
		}
		p.met[pair] = true
	}
	w, n = resolve(p.wide, w), resolve(p.narrow, n)
	switch {
	case p.same(w, n), w == true, n == false:
		return
	case w == false:
		p.no(path, "it is taken no longer")
		return
	}
	wide, narrow := object(w), object(n)
	if n == true {
		narrow = map[string]any{}
	}
	if wide == nil || narrow == nil {
		p.no(path, "it is no schema")
		return
	}
	p.types(path, wide, narrow)
	p.values(path, wide, narrow)
	p.bounds(path, wide, narrow)
	p.properties(path, wide, narrow, depth)
	p.items(path, wide, narrow, depth)
	p.branches(path, wide, narrow, depth)
	p.elsewhere(path, wide, narrow, depth)
	p.rest(path, wide, narrow)
}

// same reports whether two schemas say the same.
func (p *prover) same(w, n any) bool {
	return reflect.DeepEqual(w, n) && (p.stable || !refers(w))
}

// types: integer is a number; no type is every type.
func (p *prover) types(path string, wide, narrow map[string]any) {
	w, n := typesOf(wide), typesOf(narrow)
	if w == nil {
		return
	}
	if n == nil {
		if e, ok := narrow["enum"].([]any); ok && !slices.ContainsFunc(e, func(v any) bool { return !isOf(v, w) }) {
			return
		}
		if v, ok := narrow["const"]; ok && isOf(v, w) {
			return
		}
		p.no(path, "only %s now", strings.Join(w, " or "))
		return
	}
	for _, t := range n {
		if !slices.Contains(w, t) && !(t == "integer" && slices.Contains(w, "number")) {
			p.no(path, "no %s any more", t)
		}
	}
}

func typesOf(s map[string]any) (out []string) {
	switch t := s["type"].(type) {
	case string:
		out = []string{t}
	case []any:
		for _, v := range t {
			if name, ok := v.(string); ok {
				out = append(out, name)
			}
		}
	}
	if s["nullable"] == true && out != nil {
		out = append(out, "null")
	}
	return out
}

func isOf(v any, types []string) bool {
	name := "null"
	switch v := v.(type) {
	case bool:
		name = "boolean"
	case string:
		name = "string"
	case []any:
		name = "array"
	case map[string]any:
		name = "object"
	case json.Number:
		if name = "number"; !strings.ContainsAny(v.String(), ".eE") && slices.Contains(types, "integer") {
			name = "integer"
		}
	}
	return slices.Contains(types, name)
}

// values are those of enum and const.
func (p *prover) values(path string, wide, narrow map[string]any) {
	w, bounded := valuesOf(wide)
	if !bounded {
		return
	}
	n, listed := valuesOf(narrow)
	if !listed {
		p.no(path, "only certain values are left")
		return
	}
	for _, v := range n {
		if !slices.ContainsFunc(w, func(o any) bool { return reflect.DeepEqual(o, v) }) {
			p.no(path, "the value %.60s is gone", text(v))
		}
	}
}

func valuesOf(s map[string]any) (values []any, ok bool) {
	if v, is := s["const"]; is {
		return []any{v}, true
	}
	values, ok = s["enum"].([]any)
	return values, ok
}

// A limit is a bound by a number; up means that a larger one takes more.
type limit struct {
	name string
	up   bool
}

var limits = []limit{
	{"maximum", true}, {"exclusiveMaximum", true}, {"maxLength", true}, {"maxItems", true}, {"maxProperties", true}, {"maxContains", true},
	{"minimum", false}, {"exclusiveMinimum", false}, {"minLength", false}, {"minItems", false}, {"minProperties", false}, {"minContains", false},
}

func (p *prover) bounds(path string, wide, narrow map[string]any) {
	for _, l := range limits {
		w, there := wide[l.name]
		if !there || reflect.DeepEqual(w, narrow[l.name]) {
			continue
		}
		a, okA := number(w)
		b, okB := number(narrow[l.name])
		if !okA || !okB || l.up && a.Cmp(b) < 0 || !l.up && a.Cmp(b) > 0 {
			p.no(path, "%s is %.40s, it was %.40s", l.name, text(w), text(narrow[l.name]))
		}
	}
}

func (p *prover) properties(path string, wide, narrow map[string]any, depth int) {
	w, n := object(wide["properties"]), object(narrow["properties"])
	for _, name := range union(w, n) {
		at := path + "/properties/" + sallyport.PointerToken(name)
		ws, inWide := w[name]
		ns, inNarrow := n[name]
		switch {
		case inWide && inNarrow:
			p.takes(at, ws, ns, depth+1)
		case inNarrow && p.asks:
			p.no(at, "the argument is gone")
		case inNarrow && closed(wide):
			p.no(at, "it is new where nothing else could come")
		case inWide && !p.asks:
			p.no(at, "it is gone")
		}
	}
	required := listed(narrow["required"])
	for _, name := range listed(wide["required"]) {
		if !slices.Contains(required, name) {
			p.no(path+"/required", map[bool]string{true: "the argument %q is required now", false: "%q may be missing now"}[p.asks], name)
		}
	}
	if more, said := wide["additionalProperties"]; said && !reflect.DeepEqual(more, narrow["additionalProperties"]) {
		other, there := narrow["additionalProperties"]
		if !there {
			other = true
		}
		p.takes(path+"/additionalProperties", more, other, depth+1)
	}
}

func closed(s map[string]any) bool {
	return s["additionalProperties"] == false || s["unevaluatedProperties"] == false
}

func (p *prover) items(path string, wide, narrow map[string]any, depth int) {
	if w, ok := wide["items"]; ok && !reflect.DeepEqual(w, narrow["items"]) {
		n, there := narrow["items"]
		if _, tuple := w.([]any); tuple || !there {
			p.no(path+"/items", "what may be in the list changed")
			return
		}
		p.takes(path+"/items", w, n, depth+1)
	}
}

// branches: every branch that there was must fit into one that there is.
func (p *prover) branches(path string, wide, narrow map[string]any, depth int) {
	for _, key := range []string{"anyOf", "oneOf"} {
		w, there := wide[key].([]any)
		if !there || p.same(wide[key], narrow[key]) {
			continue
		}
		n, was := narrow[key].([]any)
		if !was {
			n = []any{narrow}
		}
		for i, branch := range n {
			if p.steps > maxSteps {
				p.no(path, "the schemas are too large to compare")
				return
			}
			if key == "oneOf" && len(n) != len(w) || !slices.ContainsFunc(w, func(b any) bool { return p.fits(b, branch, depth) }) {
				p.no(fmt.Sprintf("%s/%s", path, key), "branch %d is not taken as before", i)
			}
		}
	}
}

// elsewhere: a reference beside other keywords counts with them.
func (p *prover) elsewhere(path string, wide, narrow map[string]any, depth int) {
	switch w, n := ref(wide), ref(narrow); {
	case w == "", w == n && p.stable:
	case n == "":
		p.no(path+"/$ref", "it was not there")
	default:
		p.takes(path+"/$ref", map[string]any{"$ref": w}, map[string]any{"$ref": n}, depth+1)
	}
}

// alone is the reference of a schema that is nothing else.
func alone(s any) string {
	if len(object(s)) == 1 {
		return ref(s)
	}
	return ""
}

func ref(s any) string {
	to, _ := object(s)["$ref"].(string)
	return to
}

// fits is takes without reasons.
func (p *prover) fits(w, n any, depth int) bool {
	q := prover{wide: p.wide, narrow: p.narrow, asks: p.asks, stable: p.stable, steps: p.steps, met: maps.Clone(p.met)}
	q.takes("", w, n, depth+1)
	p.steps = q.steps
	return len(q.why) == 0
}

// understood are the keywords that the other functions compare, and those that
// say nothing of a value.
var understood = map[string]bool{
	"type": true, "nullable": true, "enum": true, "const": true, "properties": true, "required": true, "additionalProperties": true, "items": true,
	"anyOf": true, "oneOf": true, "$ref": true, "$defs": true, "definitions": true, "$schema": true, "$id": true, "id": true, "$anchor": true,
	"description": true, "title": true, "$comment": true, "examples": true, "readOnly": true, "writeOnly": true, "deprecated": true,
}

// rest: a keyword that is not understood must be the same, or be gone. Who leaves
// an argument out has its default, so that counts both ways.
func (p *prover) rest(path string, wide, narrow map[string]any) {
	for _, name := range union(wide, narrow) {
		if understood[name] || slices.ContainsFunc(limits, func(l limit) bool { return l.name == name }) {
			continue
		}
		w, there := wide[name]
		switch {
		case name == "default" && p.asks && !reflect.DeepEqual(w, narrow[name]):
			p.no(path, "the default changed, so calls that leave it out mean something else")
		case name == "default", p.same(w, narrow[name]):
		case there:
			p.no(path+"/"+name, "it changed, or was not there")
		}
	}
}

// resolve follows local references. One that cannot be followed stays as it is.
func resolve(doc, s any) any {
	for range 8 {
		m := object(s)
		to, ok := m["$ref"].(string)
		if !ok || len(m) > 1 {
			return s
		}
		at, found := doc, to == "#"
		if rest, local := strings.CutPrefix(to, "#/"); local {
			found = true
			for token := range strings.SplitSeq(rest, "/") {
				next, has := object(at)[sallyport.PointerName(token)]
				at, found = next, found && has
			}
		}
		if !found {
			return s
		}
		s = at
	}
	return s
}

// refers reports whether a schema has references in it: equal texts may then
// mean different things.
func refers(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["$ref"].(string); ok {
			return true
		}
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), refers)
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}
