package risk

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// A located is a value and where it is.
type located struct {
	path  string
	value any
}

// all follows a JSON Pointer (RFC 6901) in which a part * stands for every
// element of a list. Null is as good as absent.
func all(doc any, pointer string) []located {
	if !strings.Contains(pointer, "*") {
		if v, ok := at(doc, pointer); ok && v != nil {
			return []located{{pointer, v}}
		}
		return nil
	}
	found := []located{{"", doc}}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		var next []located
		for _, at := range found {
			if list, ok := at.value.([]any); ok && part == "*" {
				for i, v := range list {
					next = append(next, located{at.path + "/" + strconv.Itoa(i), v})
				}
			} else if v, ok := step(at.value, part); ok {
				next = append(next, located{at.path + "/" + part, v})
			}
		}
		found = next
	}
	out := found[:0]
	for _, f := range found {
		if f.value != nil {
			out = append(out, f)
		}
	}
	return out
}

// at follows a JSON Pointer (RFC 6901).
func at(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		next, ok := step(v, part)
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}

func step(v any, part string) (any, bool) {
	part = sallyport.PointerName(part)
	switch node := v.(type) {
	case map[string]any:
		next, ok := node[part]
		return next, ok
	case []any:
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || i >= len(node) {
			return nil, false
		}
		return node[i], true
	}
	return nil, false
}

// twinOf finds a member whose name differs from that of a pointer in case alone,
// at any level of it. Many JSON decoders cannot tell the two apart.
func twinOf(v any, pointer string) string {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if list, ok := v.([]any); ok && part == "*" {
			rest := pointer[strings.Index(pointer, "/*")+2:]
			for _, e := range list {
				if twin := twinOf(e, rest); twin != "" {
					return twin
				}
			}
			return ""
		}
		if object, ok := v.(map[string]any); ok {
			name := sallyport.PointerName(part)
			for _, other := range sortedKeys(object) {
				if other != name && strings.EqualFold(other, name) {
					return other
				}
			}
		}
		next, ok := step(v, part)
		if !ok {
			return ""
		}
		v = next
	}
	return ""
}

// headers reads an object of texts, a list of "Name: value" or of pairs, or a
// text of lines.
func headers(l *finding.List, f sallyport.RiskField, v any) map[string]string {
	out := map[string]string{}
	line := func(s string) {
		name, value, _ := strings.Cut(s, ":")
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			out[name] = strings.Join(leaves(nil, v[name], 0), ", ")
		}
	case string:
		for s := range strings.SplitSeq(v, "\n") {
			line(s)
		}
	case []any:
		for _, item := range v {
			switch item := item.(type) {
			case string:
				line(item)
			default:
				if pair := leaves(nil, item, 0); len(pair) == 2 { // both ways round: names do not matter
					out[pair[0]], out[pair[1]] = pair[1], pair[0]
				}
			}
		}
	default:
		wrongType(l, f, v)
	}
	return out
}

// textsOf reads a text or a list of texts; of objects, every text in them.
func textsOf(l *finding.List, f sallyport.RiskField, v any) []string {
	switch v := v.(type) {
	case string:
		if inner, ok := nested(v); ok {
			if list := leaves(nil, inner, 0); len(list) > 0 {
				return list
			}
		}
		return []string{v}
	case []any, map[string]any:
		return leaves(nil, v, 0)
	}
	wrongType(l, f, v)
	return nil
}

// names are what attachments are called: short texts; contents are left out.
func names(v any) (out []string) {
	for _, s := range leaves(nil, v, 0) {
		if len(s) <= 512 && !strings.ContainsAny(s, "\n") {
			out = append(out, s)
		} else {
			out = append(out, fmt.Sprintf("%d bytes", len(s)))
		}
	}
	return out
}

// plainJSON turns exact numbers into the ones that other decoders make.
func plainJSON(v any) any {
	var out any
	if json.Unmarshal([]byte(asJSON(v)), &out) != nil {
		return v
	}
	return out
}
