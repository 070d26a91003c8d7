package document

import (
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
)

// A parameter of an operation.
type parameter struct {
	name, in string
	said     map[string]any
}

// parameters makes arguments of the parameters. Those of the path item count
// unless the operation says otherwise.
func (o *operation) parameters() error {
	all, err := o.collect()
	if err != nil {
		return err
	}
	count := map[string]int{}
	if o.said["requestBody"] != nil {
		count["body"]++
	}
	for _, p := range all {
		count[argument(p.name)]++
	}
	for _, p := range all {
		name := argument(p.name)
		if count[name] > 1 || name == "" {
			name = strings.TrimSuffix(p.in+"."+name, ".")
		}
		for o.properties[name] != nil {
			name += "_"
		}
		if err := o.parameter(p, name); err != nil {
			return fmt.Errorf("parameter %.80q in %s: %w", p.name, p.in, err)
		}
	}
	return nil
}

// argument is a name in the letters that every model takes.
func argument(name string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, name)
	if out = strings.TrimRight(out, "_"); len(out) > 56 {
		out = out[:56]
	}
	return out
}

func (o *operation) collect() ([]parameter, error) {
	found := map[string]parameter{}
	for _, at := range []map[string]any{o.item, o.said} {
		list, _ := at["parameters"].([]any)
		for i, v := range list {
			said, err := o.r.follow(v)
			if err != nil {
				return nil, fmt.Errorf("parameters/%d: %w", i, err)
			}
			p := parameter{said: said}
			p.name, _ = said["name"].(string)
			p.in, _ = said["in"].(string)
			if p.name == "" {
				return nil, fmt.Errorf("parameters/%d has no name", i)
			}
			found[p.in+" "+p.name] = p
		}
	}
	for rest := o.path; ; { // what the path names and nobody describes is text
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			break
		}
		name, more, _ := strings.Cut(after, "}")
		if key := "path " + name; found[key].name == "" {
			found[key] = parameter{name, "path", map[string]any{}}
		}
		rest = more
	}
	out := make([]parameter, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		p := found[key]
		keep, err := o.keeps(p)
		if err != nil {
			return nil, err
		}
		if keep {
			out = append(out, p)
		}
	}
	return out, nil
}

// keeps tells whether a parameter becomes an argument. One that is not a call's
// to set is left out, and the operation with it if it cannot do without.
func (o *operation) keeps(p parameter) (bool, error) {
	why := ""
	switch p.in {
	case "path":
		return strings.Contains(o.path, "{"+p.name+"}"), nil
	case "query":
		if request.Overrides(p.name) {
			why = "it chooses another method than the request shows"
		}
	case "header":
		switch strings.ToLower(p.name) {
		case "accept", "content-type", "authorization", "idempotency-key":
			return false, nil // OpenAPI says so; the last one is the gateway's
		}
		if request.Reserved(p.name) || !headerName(p.name) {
			why = "that header is not a call's to set"
		}
	case "cookie":
		if !headerName(p.name) {
			why = "that is no name of a cookie"
		}
	default:
		return false, fmt.Errorf("parameter %.80q is in %.20q: path, query, header and cookie are known", p.name, p.in)
	}
	if why == "" && o.credential(p) {
		return false, nil
	}
	if why == "" {
		return true, nil
	}
	if p.said["required"] == true {
		return false, fmt.Errorf("it needs parameter %.80q in %s, and %s", p.name, p.in, why)
	}
	o.r.warn(o.where, "parameter %.80q in %s is left out: %s", p.name, p.in, why)
	return false, nil
}

// headerName tells whether a name can be that of a header. (RFC 9110, 5.6.2)
func headerName(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

// credential tells whether a parameter is that of a security scheme, which the
// gateway fills in.
func (o *operation) credential(p parameter) bool {
	for _, v := range object(object(o.r.root["components"])["securitySchemes"]) {
		s, err := o.r.follow(v)
		if err == nil && s["type"] == "apiKey" && s["in"] == p.in && (s["name"] == p.name || p.in == "header" && strings.EqualFold(fmt.Sprint(s["name"]), p.name)) {
			return true
		}
	}
	return false
}

func (o *operation) parameter(p parameter, name string) error {
	v, route := p.said["schema"], sallyport.RouteParam{Argument: name, Name: p.name, In: p.in}
	route.Style, _ = p.said["style"].(string)
	if route.Style == "" {
		route.Style = map[string]string{"path": "simple", "header": "simple", "query": "form", "cookie": "form"}[p.in]
	}
	styles := map[string][]string{
		"path": {"simple", "label", "matrix"}, "header": {"simple"}, "cookie": {"form"},
		"query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
	}[p.in]
	if !slices.Contains(styles, route.Style) {
		return fmt.Errorf("style %.40q does not fit there", route.Style)
	}
	explode, said := p.said["explode"].(bool)
	route.Explode = explode || !said && route.Style == "form"
	for kind, content := range object(p.said["content"]) {
		if m, _, err := mime.ParseMediaType(kind); err != nil || m != "application/json" {
			return fmt.Errorf("content of type %.80q is not written there", kind)
		}
		v, route.Style = object(content)["schema"], "json"
	}
	if v == nil {
		v = map[string]any{"type": "string"}
	}
	tree, err := o.convert.convert(v, 2)
	if err != nil {
		return err
	}
	o.properties[name] = described(tree, p.said, route.Style != "json" && p.name != name, p)
	if p.in == "path" || p.said["required"] == true {
		o.required = append(o.required, name)
	}
	o.route.Params = append(o.route.Params, route)
	return nil
}

// described adds the parameter's own description, and its name where the
// argument has another.
func described(tree any, said map[string]any, renamed bool, p parameter) any {
	m, ok := tree.(map[string]any)
	text, _ := said["description"].(string)
	if renamed {
		text = strings.TrimSpace(text + " (" + p.name + " in " + p.in + ")")
	}
	if !ok || text == "" {
		return tree
	}
	m["description"] = text
	return m
}

// body makes one argument of the request's body.
func (o *operation) body() error {
	if o.said["requestBody"] == nil {
		return nil
	}
	said, err := o.r.follow(o.said["requestBody"])
	if err != nil {
		return fmt.Errorf("requestBody: %w", err)
	}
	types := object(said["content"])
	kind, form := choose(types)
	if kind == "" {
		return fmt.Errorf("its body is of no media type that can be written")
	}
	body := &sallyport.RouteBody{Argument: "body", Form: form}
	body.Type, _, _ = mime.ParseMediaType(kind)
	for o.properties[body.Argument] != nil {
		body.Argument += "_"
	}
	content := object(types[kind])
	v := content["schema"]
	switch form {
	case "text":
		v = map[string]any{"type": "string"}
	case "base64":
		v = map[string]any{"type": "string", "contentEncoding": "base64"}
	default:
		if v == nil {
			v = map[string]any{}
		}
	}
	if form == "urlencoded" || form == "multipart" {
		if v, err = o.r.follow(v); err != nil {
			return fmt.Errorf("requestBody: %w", err)
		}
	}
	tree, err := o.convert.convert(v, 2)
	if err != nil {
		return fmt.Errorf("requestBody: %w", err)
	}
	if form == "urlencoded" || form == "multipart" {
		o.fields(body, object(v), content, object(object(tree)["properties"]))
	}
	if m, ok := tree.(map[string]any); ok {
		if text, _ := said["description"].(string); text != "" && m["description"] == nil {
			m["description"] = text
		}
	}
	o.properties[body.Argument] = tree
	if said["required"] == true {
		o.required = append(o.required, body.Argument)
	}
	o.route.Body = body
	return nil
}

// choose takes the media type that is told most exactly.
func choose(types map[string]any) (kind, form string) {
	if t := jsonType(types); t != "" {
		return t, "json"
	}
	best := 0
	for _, t := range slices.Sorted(maps.Keys(types)) {
		m, _, err := mime.ParseMediaType(t)
		rank, how := 0, ""
		switch {
		case err != nil:
		case m == "application/x-www-form-urlencoded":
			rank, how = 4, "urlencoded"
		case m == "multipart/form-data":
			rank, how = 3, "multipart"
		case strings.HasPrefix(m, "text/"), strings.HasSuffix(m, "/xml"), strings.HasSuffix(m, "+xml"), strings.HasSuffix(m, "yaml"):
			rank, how = 2, "text"
		case !strings.Contains(m, "*") && !strings.HasPrefix(m, "multipart/"):
			rank, how = 1, "base64"
		}
		if rank > best {
			best, kind, form = rank, t, how
		}
	}
	if best == 0 && types["*/*"] != nil {
		return "application/octet-stream", "base64"
	}
	return kind, form
}

// fields notes which properties of a form travel in a way of their own.
func (o *operation) fields(body *sallyport.RouteBody, said, content, shown map[string]any) {
	body.Fields = map[string]sallyport.RouteField{}
	for name, p := range object(said["properties"]) {
		at, err := o.r.follow(p)
		if err != nil {
			continue
		}
		if items, err := o.r.follow(at["items"]); err == nil {
			at = items
		}
		encoding := object(object(content["encoding"])[name])
		var f sallyport.RouteField
		f.Base64 = body.Form == "multipart" && (at["format"] == "binary" || at["contentEncoding"] == "base64" || at["contentMediaType"] != nil && at["type"] == nil)
		if t, _ := encoding["contentType"].(string); t != "" && body.Form == "multipart" {
			if m, _, err := mime.ParseMediaType(t); err == nil && !strings.ContainsAny(t, ",*") {
				f.Type = m
			}
		}
		switch {
		case encoding["style"] == "deepObject":
			f.Style = "deepObject"
		case encoding["explode"] == false:
			f.Style = "joined"
		}
		if f != (sallyport.RouteField{}) {
			body.Fields[name] = f
		}
		if m := object(shown[name]); f.Base64 && m != nil {
			text, _ := m["description"].(string)
			m["description"] = strings.TrimSpace(text + " (a file, as base64)")
		}
	}
}
