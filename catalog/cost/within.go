package cost

import (
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// narrow is how many subschemas every value of the arguments may be held against,
// however many there are: what is left is the size of the arguments.
const narrow = 4

// Within reports whether decoded arguments can be validated in bounds. It counts
// without comparing anything, and no further than the bound.
func Within(s *jsonschema.Schema, args any) error {
	c := counter{left: max(maxVisits, narrow*values(args))}
	if !c.visit(s, args, false) {
		return errors.New("schema_too_complex: so many arguments would be held against too many subschemas")
	}
	return nil
}

// values counts all values in arguments.
func values(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			n += values(x)
		}
	case []any:
		for _, x := range v {
			n += values(x)
		}
	}
	return n
}

// weight is what it takes to hold one value against a schema itself: 1, and more where
// it has many patterns of names, or values to choose from.
func weight(s *jsonschema.Schema) int {
	n := 1 + len(s.PatternProperties)
	if s.Enum != nil {
		n += len(s.Enum.Values) / 64
	}
	return n
}

type counter struct{ left int }

// visit counts what is done with a value. tracked: it is kept which members of the value
// were looked at, for unevaluatedProperties further up. It reports whether there is room.
func (c *counter) visit(s *jsonschema.Schema, v any, tracked bool) bool {
	if s == nil {
		return true
	}
	tracked = tracked || s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil
	c.left -= weight(s) + size(v)/32 // all members are looked at, even where nothing is said of them
	if tracked {
		c.left -= size(v) / 8
	}
	if c.left < 0 {
		return false
	}
	for _, next := range same(s) {
		if !c.visit(next, v, tracked) {
			return false
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return c.members(s, v)
	case []any:
		return c.elements(s, v)
	}
	return true
}

func size(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return len(v)
	case []any:
		return len(v)
	}
	return 0
}

func (c *counter) members(s *jsonschema.Schema, object map[string]any) bool {
	rest, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for name, v := range object {
		own, known := s.Properties[name]
		if !c.visit(own, v, false) || s.PropertyNames != nil && !c.visit(s.PropertyNames, name, false) {
			return false
		}
		for _, pattern := range s.PatternProperties { // which of them fit is not found out here
			if !c.visit(pattern, v, false) {
				return false
			}
		}
		if !known && (!c.visit(rest, v, false) || !c.visit(s.UnevaluatedProperties, v, false)) {
			return false
		}
	}
	return true
}

func (c *counter) elements(s *jsonschema.Schema, list []any) bool {
	each, _ := s.Items.(*jsonschema.Schema)
	places, _ := s.Items.([]*jsonschema.Schema)
	rest, _ := s.AdditionalItems.(*jsonschema.Schema)
	places = append(places[:len(places):len(places)], s.PrefixItems...)
	for i, v := range list {
		if i < len(places) && !c.visit(places[i], v, false) {
			return false
		}
		for _, next := range [...]*jsonschema.Schema{each, s.Items2020, s.Contains, rest, s.UnevaluatedItems} {
			if !c.visit(next, v, false) {
				return false
			}
		}
	}
	return true
}
