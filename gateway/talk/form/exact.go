package form

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Exact refuses an object with a member that is one of names but for its case: some
// readers take the one for the other, so what is judged would not be what is shown.
// Anything but an object has no members.
func Exact(object json.RawMessage, names ...string) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	for name := range members {
		for _, known := range names {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("has a member %.40q: names are case-sensitive, write %q", name, known)
			}
		}
	}
	return nil
}

// words of a field's schema, and of what is in it.
var schemaNames = []string{
	"type", "title", "description", "format", "default", "enum", "enumNames", "oneOf", "anyOf", "const", "items",
	"minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems",
}

// exactly is Exact of a field's schema, as deep as one goes: its items, and their choices.
func exactly(schema json.RawMessage) error { return exactlyTo(3, schema) }

func exactlyTo(depth int, schema json.RawMessage) error {
	if err := Exact(schema, schemaNames...); err != nil || depth == 0 {
		return err
	}
	var members map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(schema, &members) != nil {
		_ = json.Unmarshal(schema, &items) // what is no list either is a plain value
	}
	for _, v := range members {
		items = append(items, v)
	}
	for _, v := range items {
		if err := exactlyTo(depth-1, v); err != nil {
			return err
		}
	}
	return nil
}
