package risk

import (
	"encoding/json"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/web"
)

// A shape is what a tool's input schema says about its arguments by formats,
// enumerations and defaults. It only ever raises a verdict: the schema is the
// server's own word.
type shape struct {
	properties map[string]*shape
	items      *shape
	fallback   any      // what the server takes where the argument is absent
	format     string   // "uri", "email", …
	media      string   // contentMediaType
	enum       []string // the texts that are allowed
	defaults   bool     // here or below, there is a fallback
}

const (
	maxShapes = 4096 // remembered
	maxSchema = 256 << 10
	maxNested = 16
)

// shapes remembers the shapes of tools. The zero value is ready.
type shapes struct {
	mu    sync.Mutex // guards known
	known map[string]*shape
}

// of returns the shape of a tool's arguments, never nil.
func (c *shapes) of(tool sallyport.Tool) *shape {
	if len(tool.InputSchema) == 0 || len(tool.InputSchema) > maxSchema {
		return &shape{}
	}
	key := string(tool.InputSchema)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.known[key]; s != nil {
		return s
	}
	s := &shape{}
	if doc, err := decode(tool.InputSchema); err == nil {
		s = readShape(doc, doc, 0)
	}
	if c.known == nil || len(c.known) >= maxShapes {
		c.known = map[string]*shape{}
	}
	c.known[key] = s
	return s
}

func readShape(root, node any, depth int) *shape {
	s := &shape{}
	m, ok := node.(map[string]any)
	if !ok || depth > maxNested {
		return s
	}
	if ref, ok := m["$ref"].(string); ok && strings.HasPrefix(ref, "#/") {
		if target, ok := at(root, ref[1:]); ok {
			s = readShape(root, target, depth+1)
		}
	}
	if format, ok := m["format"].(string); ok {
		s.format = format
	}
	if media, ok := m["contentMediaType"].(string); ok {
		s.media = media
	}
	s.enum = append(s.enum, leaves(nil, m["enum"], 0)...)
	if v, ok := m["default"]; ok {
		s.fallback, s.defaults = v, true
	}
	if items, ok := m["items"]; ok {
		s.items = readShape(root, items, depth+1)
		s.defaults = s.defaults || s.items.defaults
	}
	s.add(root, m, depth)
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		if list, ok := m[key].([]any); ok {
			for _, branch := range list {
				s.join(readShape(root, branch, depth+1))
			}
		}
	}
	return s
}

func (s *shape) add(root any, m map[string]any, depth int) {
	properties, _ := m["properties"].(map[string]any)
	for _, name := range sortedKeys(properties) {
		p := readShape(root, properties[name], depth+1)
		if s.properties == nil {
			s.properties = map[string]*shape{}
		}
		s.properties[name] = p
		s.defaults = s.defaults || p.defaults
	}
}

// join takes in what a branch of the schema says besides.
func (s *shape) join(o *shape) {
	if s.format == "" {
		s.format = o.format
	}
	if s.media == "" {
		s.media = o.media
	}
	s.enum = append(s.enum, o.enum...)
	if s.fallback == nil {
		s.fallback = o.fallback
	}
	for name, p := range o.properties {
		if s.properties == nil {
			s.properties = map[string]*shape{}
		}
		if s.properties[name] == nil {
			s.properties[name] = p
		} else {
			s.properties[name].join(p)
		}
	}
	s.defaults = s.defaults || o.defaults
}

// fill returns the arguments with the defaults of those that are absent.
func (s *shape) fill(doc any) any {
	m, ok := doc.(map[string]any)
	if !ok || !s.defaults {
		return doc
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	for name, p := range s.properties {
		v, ok := m[name]
		switch {
		case ok:
			out[name] = p.fill(v)
		case p.fallback != nil:
			out[name] = p.fallback
		}
	}
	return out
}

// told judges the arguments whose schema says what they are.
func (s *shape) told(sc *scan, v any) {
	switch v := v.(type) {
	case string:
		s.value(sc, v)
	case []any:
		for _, e := range v {
			if s.items != nil {
				s.items.told(sc, e)
			}
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if p := s.properties[name]; p != nil {
				p.told(sc, v[name])
			}
		}
	}
}

func (s *shape) value(sc *scan, text string) {
	switch s.format {
	case "uri", "url", "iri", "uri-reference", "iri-reference":
		inline := len(text) > 5 && strings.EqualFold(text[:5], "data:") // it leads nowhere
		if r := web.Judge(web.Request{Method: "GET", URL: text, Guessed: true}); r.Level >= sallyport.Critical && !inline {
			sc.found.Merge(r)
		}
	}
	media := strings.ToLower(s.media)
	switch {
	case strings.Contains(media, "sql"):
		sc.sql(text)
	case strings.Contains(media, "shellscript") || strings.HasSuffix(media, "x-sh"):
		if r := sc.engine.shell(text); r.Level >= sallyport.Critical {
			sc.found.Merge(r)
		}
	case strings.Contains(media, "graphql"):
		sc.seen.keep(&sc.seen.graphql, text)
	}
	if len(s.enum) > 1 {
		s.choice(sc, text)
	}
}

// choice judges one of a few words that the server offers: GET or DELETE, read
// or remove.
func (s *shape) choice(sc *scan, text string) {
	methods := 0
	for _, e := range s.enum {
		if web.IsMethod(e) {
			methods++
		}
	}
	if methods == len(s.enum) {
		if r := web.Judge(web.Request{Method: text}); r.Level >= sallyport.Critical {
			sc.found.Merge(r)
		}
		return
	}
	if r := cloud.Action(text); r.Irreversible {
		sc.found.Merge(finding.One(sallyport.Critical, "the server offers a choice of verbs, and %q takes something away", text))
		sc.found.Effect(sallyport.EffectDelete)
	}
}

// asJSON writes a decoded value.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
