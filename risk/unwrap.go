package risk

import (
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

const maxUnwrap = 4 // JSON within strings within JSON

// each judges a string, each string of a list, and each string of JSON that is
// itself written in a string.
func (e *sitting) each(l *finding.List, f sallyport.RiskField, v any, judge func(string) sallyport.Risk) {
	e.unwrap(l, f, v, judge, 0)
}

func (e *sitting) unwrap(l *finding.List, f sallyport.RiskField, v any, judge func(string) sallyport.Risk, depth int) {
	switch v := v.(type) {
	case string:
		if inner, ok := nested(v); ok && depth < maxUnwrap {
			if texts := leaves(nil, inner, 0); len(texts) > 0 {
				for _, s := range texts {
					if e.late() != "" {
						return
					}
					e.unwrap(l, f, s, judge, depth+1)
				}
				e.alsoAsWritten(l, f, v, inner, judge)
				return
			}
		}
		l.Merge(judge(v))
	case []any:
		for _, item := range v {
			if e.late() != "" {
				return // Assess says so
			}
			if _, ok := item.(string); !ok {
				wrongType(l, f, item)
				continue
			}
			e.unwrap(l, f, item, judge, depth)
		}
		if len(v) == 0 {
			l.Add(sallyport.Low, "the list at %s is empty", f.Path)
		}
	default:
		wrongType(l, f, v)
	}
}

// alsoAsWritten judges JSON within a string for a tool that does not decode it.
// To SQL it is a syntax error either way; a shell runs {"$(rm -rf /)":"ls"} as a
// command. Names of members count where they could be statements.
func (e *sitting) alsoAsWritten(l *finding.List, f sallyport.RiskField, text string, inner any, judge func(string) sallyport.Risk) {
	if f.Kind == "shell" && strings.ContainsAny(text, "$`;&|<>()\n") {
		l.Merge(judge(text))
	}
	for _, name := range memberNames(nil, inner, 0) {
		if strings.ContainsAny(name, " \t\r\n\f\v/") {
			l.Merge(judge(name))
		}
	}
}

// memberNames collects the names of all members of a JSON value.
func memberNames(out []string, v any, depth int) []string {
	if depth > sallyport.MaxDepth {
		return out
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = memberNames(out, e, depth+1)
		}
	case map[string]any:
		for _, k := range sortedKeys(v) {
			out = memberNames(append(out, k), v[k], depth+1)
		}
	}
	return out
}

// nested decodes a string that holds a JSON object, list or string.
func nested(s string) (any, bool) {
	t := strings.TrimSpace(s)
	if len(t) < 2 || t[0] != '{' && t[0] != '[' && t[0] != '"' || !json.Valid([]byte(t)) {
		return nil, false
	}
	v, err := decode([]byte(t))
	return v, err == nil
}

// leaves collects the strings of a JSON value, in order, keys of objects left out.
func leaves(out []string, v any, depth int) []string {
	if depth > sallyport.MaxDepth {
		return out
	}
	switch v := v.(type) {
	case string:
		out = append(out, v)
	case []any:
		for _, e := range v {
			out = leaves(out, e, depth+1)
		}
	case map[string]any:
		for _, k := range sortedKeys(v) {
			out = leaves(out, v[k], depth+1)
		}
	}
	return out
}

// argv writes a list of words as one shell command.
func argv(list []any) any {
	words := make([]string, 0, len(list))
	for _, w := range list {
		s, ok := w.(string)
		if !ok {
			return list
		}
		words = append(words, "'"+strings.ReplaceAll(s, "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}

func text(l *finding.List, f sallyport.RiskField, v any) string {
	s, ok := v.(string)
	if !ok {
		wrongType(l, f, v)
	}
	return s
}

func scalar(l *finding.List, f sallyport.RiskField, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case []any:
		return strings.Join(leaves(nil, v, 0), ", ")
	}
	wrongType(l, f, v)
	return ""
}

func wrongType(l *finding.List, f sallyport.RiskField, v any) {
	kind := "an object"
	switch v.(type) {
	case string:
		kind = "text"
	case json.Number:
		kind = "a number"
	case bool:
		kind = "true or false"
	case []any:
		kind = "a list"
	}
	l.Add(sallyport.Critical, "the argument at %s is %s, where %s is declared: what it does is unknown", f.Path, kind, f.Kind)
}
