package document

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// A schema of the document as JSON Schema 2020-12.
type schema struct {
	raw  json.RawMessage
	refs []string // pointers of what it refers to
}

const (
	maxSchemaDepth = 56 // the catalogue takes 64, and arguments are some levels down
)

// maxClosure bounds all that one tool's schema refers to, in bytes: of arguments,
// which are held against it, and of results, which a tool can do without. Large
// APIs repeat all that they know in every result.
var maxClosure = [2]int{toAPI: 256 << 10, fromAPI: 16 << 10}

// A converter makes JSON Schema of the document's schemas, in one direction.
type converter struct {
	r    *reading
	way  int    // toAPI or fromAPI
	self string // the reference that names what is converted, "" for none
	refs map[string]bool
}

const (
	toAPI   = 0
	fromAPI = 1
)

// Keywords by what their values are.
var (
	oneSchema   = set("items additionalProperties additionalItems not if then else contains propertyNames unevaluatedItems unevaluatedProperties contentSchema")
	manySchemas = set("allOf anyOf oneOf prefixItems")
	mapSchemas  = set("properties patternProperties dependentSchemas $defs definitions")
	// dropped says nothing about which values fit, or is OpenAPI's own.
	dropped = set("discriminator xml externalDocs example examples nullable $schema $id $anchor $comment $dynamicAnchor $recursiveAnchor $vocabulary")
)

func set(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

func (c *converter) convert(v any, level int) (any, error) {
	if level > maxSchemaDepth {
		return nil, fmt.Errorf("a schema is nested deeper than %d levels", maxSchemaDepth)
	}
	if b, ok := v.(bool); ok {
		return b, nil
	}
	in, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a schema is neither an object nor true or false")
	}
	out := map[string]any{}
	ref, ok := in["$ref"].(string)
	if in["$recursiveRef"] == "#" && c.self != "" {
		ref, ok = c.self, true // of JSON Schema 2019-09: the whole of what it stands in
	}
	if ok {
		name, err := c.r.define(ref)
		if err != nil {
			return nil, err
		}
		c.refs[ref] = true
		out["$ref"] = "#/$defs/" + url.PathEscape(sallyport.PointerToken(name))
		if c.r.old {
			return out, nil // what stands beside a reference does not count there
		}
	}
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if key == "$ref" || key == "$recursiveRef" && ok || dropped[key] || strings.HasPrefix(key, "x-") {
			continue
		}
		if key == "$dynamicRef" || key == "$recursiveRef" {
			return nil, fmt.Errorf("%s is not followed", key)
		}
		var err error
		if out[key], err = c.keyword(key, in[key], level+1); err != nil {
			return nil, err
		}
	}
	c.direction(in, out)
	tidy(out)
	return olden(in, out), nil
}

// tidy mends what authors often get wrong in required, and what says nothing.
func tidy(out map[string]any) {
	list, ok := out["required"].([]any)
	if !ok {
		delete(out, "required") // true, at a property
		return
	}
	seen := map[any]bool{}
	out["required"] = slices.DeleteFunc(slices.Clone(list), func(v any) bool {
		s, ok := v.(string)
		twice := seen[s]
		seen[s] = true
		return !ok || twice
	})
}

func (c *converter) keyword(key string, v any, level int) (_ any, err error) {
	switch list, isList := v.([]any); {
	case oneSchema[key] && !isList:
		return c.convert(v, level)
	case manySchemas[key] && isList, oneSchema[key]:
		all := make([]any, len(list))
		for i, e := range list {
			if all[i], err = c.convert(e, level+1); err != nil {
				return nil, err
			}
		}
		return all, nil
	case mapSchemas[key]:
		all := map[string]any{}
		for name, e := range object(v) {
			if all[name], err = c.convert(e, level+1); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return v, nil
}

// direction leaves out what is only ever read, or only ever written.
func (c *converter) direction(in, out map[string]any) {
	properties, ok := out["properties"].(map[string]any)
	if !ok {
		return
	}
	word := "readOnly"
	if c.way == fromAPI {
		word = "writeOnly"
	}
	var gone []string
	for name, p := range object(in["properties"]) {
		if at, err := c.r.follow(p); err == nil && at[word] == true {
			gone = append(gone, name)
			delete(properties, name)
		}
	}
	if required, ok := out["required"].([]any); ok && len(gone) > 0 {
		required = slices.DeleteFunc(slices.Clone(required), func(v any) bool {
			s, _ := v.(string)
			return slices.Contains(gone, s)
		})
		if out["required"] = required; len(required) == 0 {
			delete(out, "required")
		}
	}
}

// olden turns what OpenAPI 3.0 says in its own way into JSON Schema. Documents that
// call themselves 3.1 say it, too.
func olden(in, out map[string]any) any {
	for key, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		switch out[key] {
		case true:
			delete(out, key)
			if v, ok := out[bound]; ok {
				out[key] = v
				delete(out, bound)
			}
		case false:
			delete(out, key)
		}
	}
	if in["nullable"] != true {
		return out
	}
	if t, ok := out["type"].(string); ok {
		out["type"] = []any{t, "null"}
		if values, ok := out["enum"].([]any); ok && !slices.Contains(values, nil) {
			out["enum"] = append(slices.Clone(values), nil)
		}
		return out
	}
	return map[string]any{"anyOf": []any{out, map[string]any{"type": "null"}}}
}

// define gives what a reference names a name among $defs.
func (r *reading) define(ref string) (string, error) {
	if name, ok := r.names[ref]; ok {
		return name, nil
	}
	if _, err := r.at(ref); err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(ref, "#/components/schemas/")
	if name, _ = url.PathUnescape(name); !ok || strings.Contains(name, "/") || strings.HasPrefix(name, "ref-") {
		sum := sha256.Sum256([]byte(ref))
		name = "ref-" + hex.EncodeToString(sum[:8])
	}
	name = sallyport.PointerName(name)
	r.names[ref] = name
	return name, nil
}

// definition converts what a reference names, once for each direction.
func (r *reading) definition(ref string, way int) (*schema, error) {
	if s, ok := r.defs[way][ref]; ok {
		return s, nil
	}
	v, err := r.at(ref)
	if err != nil {
		return nil, err
	}
	c := &converter{r: r, way: way, self: ref, refs: map[string]bool{}}
	tree, err := c.convert(v, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	raw, err := marshal(tree)
	if err != nil {
		return nil, err
	}
	s := &schema{raw, slices.Sorted(maps.Keys(c.refs))}
	r.defs[way][ref] = s
	return s, nil
}

// closure is all that the references lead to, by name.
func (r *reading) closure(refs map[string]bool, way int) (map[string]json.RawMessage, error) {
	open, out, size := slices.Sorted(maps.Keys(refs)), map[string]json.RawMessage{}, 0
	for len(open) > 0 {
		ref := open[0]
		open = open[1:]
		name, err := r.define(ref)
		if err != nil {
			return nil, err
		}
		if _, done := out[name]; done {
			continue
		}
		s, err := r.definition(ref, way)
		if err != nil {
			return nil, err
		}
		out[name] = s.raw
		if size += len(s.raw); size > maxClosure[way] {
			return nil, fmt.Errorf("what its schema refers to has more than %d bytes", maxClosure[way])
		}
		open = append(open, s.refs...)
	}
	return out, nil
}

// complete writes a schema with all that it refers to.
func (c *converter) complete(tree map[string]any) (json.RawMessage, error) {
	defs, err := c.r.closure(c.refs, c.way)
	if err != nil {
		return nil, err
	}
	if len(defs) > 0 {
		all := maps.Clone(object(tree["$defs"]))
		if all == nil {
			all = map[string]any{}
		}
		for name, raw := range defs {
			all[name] = raw
		}
		tree["$defs"] = all
	}
	return marshal(tree)
}

// marshal writes JSON with < and > as they are.
func marshal(v any) (json.RawMessage, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n")), nil
}
