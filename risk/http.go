package risk

import (
	"encoding/json"
	"net/url"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/web"
)

// route judges the request that a call of an HTTP API becomes: what is sent, not
// what the document says about it. The arguments of one that may change something
// are searched besides, as those of a tool of which nothing is declared.
func (e *sitting) route(l *finding.List, tool sallyport.Tool, args json.RawMessage) {
	built, err := request.Build(tool.Route, args)
	if err != nil {
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "no request can be made of the arguments: %s", err)
		return
	}
	r := web.Request{Method: built.Method, URL: built.URL, Body: string(built.Body), Known: true, Headers: map[string]string{}}
	for _, h := range built.Header {
		r.Headers[h[0]] = h[1]
	}
	verdict := e.request(r)
	l.Merge(verdict)
	if verdict.Mutating() {
		e.scan(l, tool, args)
	}
}

func (e *sitting) http(text string) sallyport.Risk {
	text = strings.TrimSpace(text)
	if len(text) > maxScanned {
		return finding.One(sallyport.Critical, "the request is too long to judge")
	}
	var r web.Request
	var err string
	if strings.HasPrefix(text, "{") {
		r, err = requestOfJSON(text)
	} else {
		r, err = requestOfText(text)
	}
	if err == "" && r.URL == "" {
		err = "the request has no URL, so where it goes is unknown"
	}
	if err != "" {
		return finding.One(sallyport.Critical, "%s", err)
	}
	return e.request(r)
}

// request judges a request, and the statements in it: databases that speak HTTP
// take them in the body or the query.
func (e *sitting) request(r web.Request) sallyport.Risk {
	var l finding.List
	l.Merge(web.Judge(r))
	s := &scan{engine: e, found: &l, budget: maxJudged}
	s.sqlish, s.shellish = true, false
	if len(r.Body) > maxScanned {
		return l.Risk()
	}
	if doc, err := decode([]byte(r.Body)); err == nil && r.Body != "" {
		s.statements(doc, 0)
	} else {
		s.statements(r.Body, 0)
	}
	if u, err := url.Parse(r.URL); err == nil {
		query := u.Query()
		for _, name := range sortedKeys(query) {
			if !spoken[strings.ToLower(name)] && (name != "q" || strings.EqualFold(r.Method, "GET")) {
				continue // words to search for may read like a statement
			}
			for _, v := range query[name] {
				s.statements(v, 0)
			}
		}
	}
	return l.Risk()
}

// spoken are the names under which databases take statements in an address.
var spoken = map[string]bool{"query": true, "sql": true, "statement": true, "stmt": true, "command": true}

// statements judges the strings of a value that are SQL from end to end.
func (s *scan) statements(v any, depth int) {
	switch v := v.(type) {
	case string:
		if sql, _ := suspicious([]byte(v)); sql && strings.ContainsAny(v, " \t\r\n\f\v/") {
			s.sql(v)
		}
	case []any:
		for _, e := range v {
			s.statements(e, depth+1)
		}
	case map[string]any:
		for _, k := range sortedKeys(v) {
			s.statements(v[k], depth+1)
		}
	}
}

func requestOfJSON(text string) (r web.Request, bad string) {
	canonical, err := sallyport.Canonical(json.RawMessage(text))
	if err != nil {
		return r, "the request is not valid JSON: " + err.Error()
	}
	var fields struct {
		Method  string            `json:"method"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
		Body    any               `json:"body"`
	}
	if err := json.Unmarshal(canonical, &fields); err != nil {
		return r, "the request's method, url or headers are not of the type they should be"
	}
	r = web.Request{Method: fields.Method, URL: fields.URL, Headers: fields.Headers}
	switch body := fields.Body.(type) {
	case nil:
	case string:
		r.Body = body
	default:
		r.Body = asJSON(body)
	}
	return r, ""
}

// requestOfText reads METHOD URL, headers, an empty line and a body.
func requestOfText(text string) (r web.Request, bad string) {
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	words := strings.Fields(lines[0])
	if len(words) < 2 || len(words) > 3 || len(words) == 3 && !strings.HasPrefix(words[2], "HTTP/") {
		return r, `the request is not "METHOD URL" nor JSON, so what it does is unknown`
	}
	r = web.Request{Method: words[0], URL: words[1], Headers: map[string]string{}, Body: body}
	for _, line := range lines[1:] {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			r.Headers[name] = strings.TrimSpace(value)
		}
	}
	return r, ""
}
