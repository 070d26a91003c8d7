package document

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
)

// methods of OpenAPI, in the order in which operations are listed. TRACE is left
// out: its answer repeats the credentials of the request.
var methods = []string{"get", "head", "options", "post", "put", "patch", "delete", "query"}

// An operation that is being read.
type operation struct {
	r      *reading
	where  string // METHOD /path
	method string
	path   string
	said   map[string]any
	item   map[string]any

	convert    *converter
	properties map[string]any
	required   []string
	route      *sallyport.Route
}

// paths reads every operation. One that cannot be used is left out, with the
// reason; a document without any is an error.
func (r *reading) paths() error {
	paths := object(r.root["paths"])
	var all []*operation
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if strings.HasPrefix(path, "x-") {
			continue
		}
		item, err := r.follow(paths[path])
		if err != nil {
			r.warn(path, "left out: %v", err)
			continue
		}
		for _, m := range methods {
			if said, ok := item[m].(map[string]any); ok {
				all = append(all, &operation{r: r, where: strings.ToUpper(m) + " " + path, method: strings.ToUpper(m), path: path, said: said, item: item})
			}
		}
		if item["trace"] != nil {
			r.warn("TRACE "+path, "left out: its answer repeats the credentials of the request")
		}
		if len(all) > maxOperations {
			return fmt.Errorf("it has more than %d operations", maxOperations)
		}
	}
	names := namesOf(all)
	taken := map[string]bool{}
	for i, o := range all {
		op, err := o.read(names[i])
		switch {
		case err != nil:
			r.warn(o.where, "left out: %v", err)
		case taken[op.Name]:
			r.warn(o.where, "left out: another operation is called %.80q", op.Name)
		default:
			taken[op.Name] = true
			r.out.Operations = append(r.out.Operations, op)
		}
	}
	if len(r.out.Operations) == 0 {
		if len(r.out.Warnings) > 0 {
			return fmt.Errorf("none of its operations can be used; %s", r.out.Warnings[0])
		}
		return fmt.Errorf("it has no operations")
	}
	return nil
}

// namesOf names operations: by operationId; else by method and path in plain
// words, where that names one of them only; else by method and path as they are.
func namesOf(all []*operation) []string {
	count := map[string]int{}
	names := make([]string, len(all))
	for i, o := range all {
		names[i], _ = o.said["operationId"].(string)
		count[names[i]]++
	}
	for i, o := range all {
		if names[i] == "" || count[names[i]] > 1 {
			names[i] = words(o.where)
		}
	}
	clear(count)
	for _, n := range names {
		count[n]++
	}
	for i, o := range all {
		if count[names[i]] > 1 && names[i] == words(o.where) {
			names[i] = o.where
		}
	}
	return names
}

// words is METHOD /path/{x} as method_path_x.
func words(where string) string {
	out := strings.FieldsFunc(where, func(r rune) bool {
		return r == ' ' || r == '/' || r == '{' || r == '}' || r == '.'
	})
	out[0] = strings.ToLower(out[0])
	return strings.Join(out, "_")
}

func (o *operation) read(name string) (Operation, error) {
	o.convert = &converter{r: o.r, way: toAPI, refs: map[string]bool{}}
	o.properties = map[string]any{}
	o.route = &sallyport.Route{Method: o.method}
	for _, step := range []func() error{o.target, o.parameters, o.body, o.security} {
		if err := step(); err != nil {
			return Operation{}, err
		}
	}
	input := map[string]any{"type": "object", "properties": o.properties, "additionalProperties": false}
	if len(o.required) > 0 {
		input["required"] = o.required
	}
	in, err := o.convert.complete(input)
	if err != nil {
		return Operation{}, err
	}
	def := map[string]any{"name": name, "inputSchema": in, "description": o.description(), "annotations": o.annotations()}
	if title, _ := o.said["summary"].(string); title != "" {
		def["title"] = title
	}
	if o.said["deprecated"] == true {
		def["_meta"] = map[string]any{"dev.sallyport/deprecated": true}
	}
	if out := o.output(); out != nil {
		def["outputSchema"] = out
	}
	raw, err := marshal(def)
	return Operation{Name: name, Definition: raw, Route: o.route}, err
}

// target is the base and the path, whose plain parts are encoded.
func (o *operation) target() error {
	base := o.r.out.Base
	for _, at := range []map[string]any{o.item, o.said} {
		if list, ok := at["servers"].([]any); ok && len(list) > 0 {
			return fmt.Errorf("it has servers of its own: calls go to %s only", base)
		}
	}
	if !strings.HasPrefix(o.path, "/") {
		return fmt.Errorf("its path does not begin with /")
	}
	var b strings.Builder
	for rest := o.path; rest != ""; {
		before, after, ok := strings.Cut(rest, "{")
		plain, err := literal(before)
		if err != nil {
			return err
		}
		b.WriteString(plain)
		if !ok {
			break
		}
		name, more, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.ContainsAny(name, "{/") {
			return fmt.Errorf("the braces of its path do not match")
		}
		b.WriteString("{" + name + "}")
		rest = more
	}
	o.route.URL = base + b.String()
	return request.CheckPath(strings.NewReplacer("{", "", "}", "").Replace(b.String()))
}

// literal encodes a plain part of a path.
func literal(s string) (string, error) {
	if i := strings.IndexAny(s, "?#\\}"); i >= 0 {
		return "", fmt.Errorf("its path holds %q", s[i])
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && !strings.ContainsRune("\"<>^`|", rune(c)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String(), nil
}

// description is the request, and then the document's words.
func (o *operation) description() string {
	parts := []string{o.where}
	if o.said["deprecated"] == true {
		parts = append(parts, "Deprecated.")
	}
	for _, key := range []string{"summary", "description"} {
		if s, _ := o.said[key].(string); strings.TrimSpace(s) != "" && !slices.Contains(parts, strings.TrimSpace(s)) {
			parts = append(parts, strings.TrimSpace(s))
		}
	}
	return strings.Join(parts, "\n\n")
}

// annotations are what HTTP says about the method. They are hints for clients;
// what a call does is judged by its request.
func (o *operation) annotations() map[string]any {
	safe := o.method == http.MethodGet || o.method == http.MethodHead || o.method == http.MethodOptions || o.method == "QUERY"
	return map[string]any{
		"readOnlyHint": safe, "destructiveHint": !safe && o.method != http.MethodPost,
		"idempotentHint": safe || o.method == http.MethodPut || o.method == http.MethodDelete, "openWorldHint": true,
	}
}

// output is the schema of what a call returns if all is well, nil where that is
// no JSON object or too large to be told.
func (o *operation) output() any {
	responses := object(o.said["responses"])
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		if len(status) != 3 || status[0] != '2' {
			continue
		}
		response, err := o.r.follow(responses[status])
		if err != nil {
			continue
		}
		types := object(response["content"])
		if len(types) > 0 && o.route.Accept == "" {
			o.route.Accept = accept(types)
		}
		kind := jsonType(types)
		if kind == "" {
			continue
		}
		return o.result(object(types[kind])["schema"])
	}
	return nil
}

// result is the schema of a response, if it is that of an object.
func (o *operation) result(v any) any {
	at, err := o.r.follow(v)
	if err != nil || at["type"] != "object" && at["properties"] == nil || at["nullable"] == true {
		return nil
	}
	c := &converter{r: o.r, way: fromAPI, refs: map[string]bool{}}
	tree, err := c.convert(at, 0)
	if err != nil {
		return nil
	}
	all, ok := tree.(map[string]any)
	if !ok {
		return nil
	}
	if all["type"] == nil {
		all["type"] = "object"
	}
	out, err := c.complete(all)
	if err != nil {
		return nil
	}
	return out
}

// accept lists the media types of a response, JSON first.
func accept(types map[string]any) string {
	first := jsonType(types)
	var all []string
	if first != "" {
		all = append(all, first)
	}
	for _, t := range slices.Sorted(maps.Keys(types)) {
		if m, _, err := mime.ParseMediaType(t); err == nil && t != first && len(all) < 8 {
			all = append(all, m)
		}
	}
	return strings.Join(all, ", ")
}

// jsonType is the media type of a map that is JSON, "" for none.
func jsonType(types map[string]any) string {
	best := ""
	for _, t := range slices.Sorted(maps.Keys(types)) {
		m, _, err := mime.ParseMediaType(t)
		switch {
		case err != nil:
		case m == "application/json":
			return t
		case strings.HasSuffix(m, "+json") && best == "":
			best = t
		}
	}
	return best
}
