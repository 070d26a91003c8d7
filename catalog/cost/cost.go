// Package cost bounds from above what it takes to hold arguments against a JSON
// Schema, before anything is held against it: once by the schema alone, and where that
// does not tell enough, by counting what would be done with these arguments.
package cost

import (
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxVisits bounds how many subschemas one argument value may be held against:
// about 100 ms of one core.
const maxVisits = 100_000

// maxBreadth bounds the same for one place in the arguments.
const maxBreadth = 10_000

// A Cost is what a schema asks for by itself.
type Cost struct {
	// Wide: some value may be held against so many subschemas that it must be counted
	// how many values there are, see Within.
	Wide bool
}

// Measure walks a compiled schema. A schema that applies to itself in the same
// place, and one beyond the bound whatever the arguments, is refused.
func Measure(s *jsonschema.Schema) (Cost, error) {
	m := meter{inPlace: map[*jsonschema.Schema]reach{}, open: map[*jsonschema.Schema]bool{}, total: map[*jsonschema.Schema]int{}}
	m.walk(s)
	if m.err != nil {
		return Cost{}, m.err
	}
	if m.breadth > maxBreadth || !m.recursive && m.total[s] > maxVisits {
		return Cost{}, errors.New("schema_too_complex: it holds one value against too many subschemas")
	}
	return Cost{Wide: m.recursive && m.fan > 1 || m.widest > narrow}, nil
}

// reach counts what applies to the same place: all, and those that look down.
type reach struct{ all, down int }

type meter struct {
	breadth   int // of those that apply to one value: the most
	widest    int // with what else one value is compared with
	fan       int // of those that apply to one value: how many look further down
	recursive bool

	inPlace map[*jsonschema.Schema]reach
	open    map[*jsonschema.Schema]bool // being walked: meeting one again is recursion
	total   map[*jsonschema.Schema]int
	err     error
}

// walk visits s and what lies below it.
func (m *meter) walk(s *jsonschema.Schema) int {
	if s == nil || m.err != nil {
		return 0
	}
	if n, done := m.total[s]; done {
		return n
	}
	if m.open[s] {
		m.recursive = true
		return 1
	}
	m.open[s] = true
	r := m.reach(s, map[*jsonschema.Schema]bool{})
	m.breadth, m.fan, m.widest = max(m.breadth, r.all), max(m.fan, r.down), max(m.widest, r.all-1+weight(s))
	n := 1
	for _, list := range [][]*jsonschema.Schema{same(s), below(s)} {
		for _, next := range list {
			n = min(n+m.walk(next), 2*maxVisits)
		}
	}
	delete(m.open, s)
	m.total[s] = n
	return n
}

// reach counts what applies where s does; on is the way there.
func (m *meter) reach(s *jsonschema.Schema, on map[*jsonschema.Schema]bool) reach {
	if r, done := m.inPlace[s]; done {
		return r
	}
	if on[s] {
		m.err = errors.New("schema_too_complex: it applies to itself without end")
		return reach{}
	}
	on[s] = true
	defer delete(on, s)
	r := reach{all: 1}
	if len(below(s)) > 0 {
		r.down = 1
	}
	for _, next := range same(s) {
		n := m.reach(next, on)
		r.all = min(r.all+n.all, 2*maxVisits)
		r.down = min(r.down+n.down, 2*maxVisits)
	}
	m.inPlace[s] = r
	return r
}

// same lists the schemas that apply to the same value as s.
func same(s *jsonschema.Schema) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	add := func(list ...*jsonschema.Schema) {
		for _, n := range list {
			if n != nil {
				out = append(out, n)
			}
		}
	}
	add(s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else)
	if s.DynamicRef != nil {
		add(s.DynamicRef.Ref)
	}
	add(s.AllOf...)
	add(s.AnyOf...)
	add(s.OneOf...)
	for _, n := range s.DependentSchemas {
		add(n)
	}
	for _, n := range s.Dependencies {
		if sub, ok := n.(*jsonschema.Schema); ok {
			add(sub)
		}
	}
	return out
}

// below lists the schemas that apply to parts of the value.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	var out []*jsonschema.Schema
	add := func(n any) {
		switch n := n.(type) {
		case *jsonschema.Schema:
			if n != nil {
				out = append(out, n)
			}
		case []*jsonschema.Schema:
			out = append(out, n...)
		}
	}
	for _, n := range s.Properties {
		add(n)
	}
	for _, n := range s.PatternProperties {
		add(n)
	}
	for _, n := range []any{
		s.PropertyNames, s.AdditionalProperties, s.UnevaluatedProperties,
		s.Items, s.AdditionalItems, s.PrefixItems, s.Items2020, s.Contains, s.UnevaluatedItems, s.ContentSchema,
	} {
		add(n)
	}
	return out
}
