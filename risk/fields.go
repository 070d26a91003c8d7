package risk

import (
	"encoding/json"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/web"
)

// at follows a JSON Pointer (RFC 6901).
func at(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	if pointer[0] != '/' {
		pointer = "/" + pointer
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch node := v.(type) {
		case map[string]any:
			next, ok := node[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// twinOf finds a member whose name differs from that of a pointer in case alone,
// at any level of it. Many JSON decoders cannot tell the two apart.
func twinOf(v any, pointer string) string {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		if object, ok := v.(map[string]any); ok {
			for _, name := range sortedKeys(object) {
				if name != part && strings.EqualFold(name, part) {
					return name
				}
			}
		}
		next, ok := at(v, "/"+strings.ReplaceAll(strings.ReplaceAll(part, "~", "~0"), "/", "~1"))
		if !ok {
			return ""
		}
		v = next
	}
	return ""
}

// fields judges what the manifest points at. It reports whether anything there
// says what the call does; a path or a recipient alone does not.
func (e *Engine) fields(l *finding.List, fields []sallyport.RiskField, doc any) bool {
	judged := false
	var request web.Request
	method := false
	for _, f := range fields {
		if twin := twinOf(doc, f.Path); twin != "" {
			l.Add(sallyport.Critical, "has an argument %q: a server that ignores case may take it for the one at %s", twin, f.Path)
		}
		v, ok := at(doc, f.Path)
		if !ok || v == nil {
			continue
		}
		switch f.Kind {
		case "sql":
			judged = true
			e.each(l, f, v, func(text string) sallyport.Risk { return e.SQL(f.Dialect, text) })
		case "shell":
			judged = true
			if list, ok := v.([]any); ok {
				v = argv(list)
			}
			e.each(l, f, v, e.Shell)
		case "http_method":
			judged, method = true, true
			request.Method = text(l, f, v)
		case "url":
			request.URL = text(l, f, v)
		case "path":
			path := text(l, f, v)
			l.Object(path)
			if finding.SecretPath(path) {
				l.Add(sallyport.Medium, "touches %s, which holds secrets", path)
			}
		case "amount":
			l.Add(sallyport.High, "moves an amount: %s", scalar(l, f, v))
		case "recipient":
			l.Object(scalar(l, f, v))
			l.Add(sallyport.High, "sends something to %s", scalar(l, f, v))
		default:
			judged = true
			l.Add(sallyport.Critical, "the manifest declares %s as %q, which the analyser does not know", f.Path, f.Kind)
		}
	}
	switch {
	case method:
		l.Merge(web.Judge(request))
	case request.URL != "":
		if r := web.Judge(web.Request{Method: "GET", URL: request.URL}); r.Level > sallyport.Low {
			l.Merge(r)
		} else {
			for _, o := range r.Objects {
				l.Object(o)
			}
		}
	}
	return judged
}

const maxUnwrap = 4 // JSON within strings within JSON

// each judges a string, each string of a list, and each string of JSON that is
// itself written in a string.
func (e *Engine) each(l *finding.List, f sallyport.RiskField, v any, judge func(string) sallyport.Risk) {
	e.unwrap(l, f, v, judge, 0)
}

func (e *Engine) unwrap(l *finding.List, f sallyport.RiskField, v any, judge func(string) sallyport.Risk, depth int) {
	switch v := v.(type) {
	case string:
		if inner, ok := nested(v); ok && depth < maxUnwrap {
			if texts := leaves(nil, inner, 0); len(texts) > 0 {
				for _, s := range texts {
					e.unwrap(l, f, s, judge, depth+1)
				}
				e.alsoAsWritten(l, f, v, inner, judge)
				return
			}
		}
		l.Merge(judge(v))
	case []any:
		for _, item := range v {
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
func (e *Engine) alsoAsWritten(l *finding.List, f sallyport.RiskField, text string, inner any, judge func(string) sallyport.Risk) {
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
