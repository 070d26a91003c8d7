package fit

import (
	"encoding/json"
	"slices"

	"sallyport.dev/sallyport/wire"
)

// Object reports whether the root of a schema says, in any of the ways there are,
// that objects fit it. Arguments are always one, so for them each says the same.
func Object(schema json.RawMessage) bool {
	kind := wire.Member(schema, "type")
	if kind == nil || wire.IsNull(kind) {
		return true
	}
	if s, ok := wire.String(kind); ok {
		return s == "object"
	}
	for v := range wire.Elements(kind) {
		if s, _ := wire.String(v); s == "object" {
			return true
		}
	}
	return false
}

// Plain takes those keywords out of a schema whose value is null. They mean
// nothing in any dialect, and are what programs write for a list or a map that they
// never made.
func Plain(schema json.RawMessage) json.RawMessage {
	return wire.Rewrite(schema, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch {
		case !slices.Contains(keywords, name):
			return v, true
		case slices.Contains(named, name):
			v = wire.Rewrite(v, func(_ string, v json.RawMessage) (json.RawMessage, bool) { return Plain(v), true })
		case wire.IsObject(v):
			v = Plain(v)
		}
		return v, !wire.IsNull(v)
	})
}

var (
	// keywords are those of which no dialect says that their value can be null.
	keywords = append([]string{
		"$schema", "$id", "$ref", "type", "title", "description", "format", "enum", "required", "items", "prefixItems", "additionalProperties", "propertyNames",
		"contains", "not", "if", "then", "else", "anyOf", "oneOf", "allOf", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
	}, named...)

	// named are those that hold schemas by names.
	named = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)

// input is the schema of arguments as the protocol has it: type is the text
// "object", each property is an object.
func input(schema json.RawMessage) (json.RawMessage, bool) {
	if !wire.IsObject(schema) {
		return nil, false
	}
	if s, _ := wire.String(wire.Member(schema, "type")); s != "object" && Object(schema) {
		if typed, err := wire.SetMember(schema, "type", json.RawMessage(`"object"`)); err == nil {
			schema = typed
		}
	}
	return output(schema)
}

// output is the schema of results: of an object, and since 2026-07-28 of anything.
func output(schema json.RawMessage) (json.RawMessage, bool) {
	if !wire.IsObject(schema) {
		return nil, false
	}
	return wire.Rewrite(Plain(schema), func(name string, v json.RawMessage) (json.RawMessage, bool) {
		if name == "properties" {
			v = wire.Rewrite(v, func(_ string, v json.RawMessage) (json.RawMessage, bool) { return spelled(v), true })
		}
		return v, true
	}), true
}

// spelled writes a schema that is only true or false as an object.
func spelled(schema json.RawMessage) json.RawMessage {
	switch string(schema) {
	case "true":
		return json.RawMessage(`{}`)
	case "false":
		return json.RawMessage(`{"not":{}}`)
	}
	return schema
}
