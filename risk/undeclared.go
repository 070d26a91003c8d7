package risk

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// undeclared judges what stands beside the declared arguments, as if nothing
// were declared: what is found there raises the verdict, and what could be an
// order to a server makes the call high. Numbers, truth values and single words
// are parameters: a limit, a format, a column.
func (e *sitting) undeclared(l *finding.List, tool sallyport.Tool, args json.RawMessage) {
	doc, err := decode(args)
	if err != nil {
		return // fields says so
	}
	shape := e.shapes.of(tool)
	doc = shape.fill(doc)
	declared := map[string]bool{}
	for _, f := range tool.Manifest.Fields {
		for _, v := range all(doc, f.Path) {
			declared[v.path] = true
		}
	}
	rest := without(doc, "", declared)
	if name := telling(rest, ""); name != "" {
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.High, "nothing is declared about the argument at %s, so it is taken to change things", name)
	}
	text, err := json.Marshal(rest)
	if err != nil {
		l.Add(sallyport.Critical, "the undeclared arguments cannot be judged")
		return
	}
	e.search(l, shape, rest, text)
}

// without leaves out the values at the pointers of a set.
func without(v any, at string, leave map[string]bool) any {
	if leave[at] {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			if rest := without(member, at+"/"+pointerPart.Replace(name), leave); rest != nil {
				out[name] = rest
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = without(element, at+"/"+strconv.Itoa(i), leave)
		}
		return out
	}
	return v
}

// pointerPart writes a name as a part of a JSON Pointer (RFC 6901).
var pointerPart = strings.NewReplacer("~", "~0", "/", "~1")

// plainValue is a word that could not be an order by itself.
var plainValue = regexp.MustCompile(`^[\pL\pN_.:,*/@%+=-]{0,64}$`)

// telling finds a text that could be an order to a server, or a named value
// within an object, such as a variable of an environment.
func telling(v any, at string) string {
	switch v := v.(type) {
	case string:
		if !plainValue.MatchString(v) {
			return at
		}
	case []any:
		for i, element := range v {
			if name := telling(element, at+"/"+strconv.Itoa(i)); name != "" {
				return name
			}
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			inner := at + "/" + pointerPart.Replace(name)
			if _, object := v[name].(map[string]any); object && len(leaves(nil, v[name], 0)) > 0 {
				return inner
			}
			if found := telling(v[name], inner); found != "" {
				return found
			}
		}
	}
	return ""
}
