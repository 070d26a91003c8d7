// Package document reads OpenAPI 3.0 and 3.1 documents, in JSON or YAML, into
// operations: a tool's definition and the route of its calls each.
//
// It is a reader of our own. What is wanted of a document is its schemas, word
// for word; the libraries for Go make typed values of them, which drops what they
// do not know and rounds numbers. Nothing is ever fetched: what refers elsewhere
// is refused.
package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/openapi/request"
)

// A Document is what was read.
type Document struct {
	Title      string
	Version    string // of OpenAPI
	Base       string // where calls go: an absolute URL without a slash at its end
	Foreign    bool   // Base is of another origin than the document, which was fetched
	Operations []Operation
	Warnings   []string // what was left out, and why
}

// An Operation is one tool.
type Operation struct {
	Name       string
	Definition json.RawMessage // as a server would list it
	Route      *sallyport.Route
}

// reading is a document that is being read.
type reading struct {
	root  map[string]any
	old   bool // OpenAPI 3.0, whose schemas are not quite JSON Schema
	out   Document
	defs  [2]map[string]*schema // by pointer, for arguments and results
	names map[string]string     // of definitions, by pointer
}

// Read reads a document. from is where it was fetched, "" for a file; base is
// what the operator says about where calls go, "" for what the document says.
func Read(text []byte, from, base string) (*Document, error) {
	tree, err := parse(text)
	if err != nil {
		return nil, err
	}
	root, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is not an object, so no OpenAPI document")
	}
	r := &reading{root: root, names: map[string]string{}, defs: [2]map[string]*schema{{}, {}}}
	if err := r.version(); err != nil {
		return nil, err
	}
	if where, ref := remote(tree, "", 0); ref != "" {
		return nil, fmt.Errorf("%s refers to %.200q: only references within the document (#/…) are followed; bundle it into one file", where, ref)
	}
	if err := r.base(from, base); err != nil {
		return nil, err
	}
	return &r.out, r.paths()
}

func (r *reading) version() error {
	v := fmt.Sprint(r.root["openapi"])
	r.out.Version = v
	r.old = strings.HasPrefix(v, "3.0.") || v == "3.0"
	switch {
	case r.root["swagger"] != nil:
		return fmt.Errorf("it is of version 2 (swagger): convert it to OpenAPI 3")
	case r.root["openapi"] == nil:
		return fmt.Errorf("it has no member openapi, so it is no OpenAPI document")
	case !r.old && !strings.HasPrefix(v, "3.1.") && v != "3.1" && !strings.HasPrefix(v, "3.2."):
		return fmt.Errorf("its version is %.20q: 3.0, 3.1 and 3.2 are read", v)
	}
	r.out.Title, _ = object(r.root["info"])["title"].(string)
	return nil
}

// remote finds a reference that leaves the document. Examples and values are not
// looked at: nothing in them is a reference.
func remote(v any, where string, level int) (path, ref string) {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["$ref"].(string); ok && !strings.HasPrefix(s, "#") {
			return where, s
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			switch key {
			case "example", "examples", "default", "enum", "const":
				if strings.HasSuffix(where, "/properties") || strings.HasSuffix(where, "/schemas") {
					break // a property of that name
				}
				continue
			}
			if strings.HasPrefix(key, "x-") && !strings.HasSuffix(where, "/properties") {
				continue
			}
			if path, ref := remote(v[key], where+"/"+sallyport.PointerToken(key), level+1); ref != "" {
				return path, ref
			}
		}
	case []any:
		for i, e := range v {
			if path, ref := remote(e, fmt.Sprintf("%s/%d", where, i), level+1); ref != "" {
				return path, ref
			}
		}
	}
	return "", ""
}

// base settles where calls go.
func (r *reading) base(from, base string) error {
	if base != "" {
		var err error
		r.out.Base, err = origin(base)
		return err
	}
	said, err := r.server(r.root["servers"])
	if err != nil {
		return err
	}
	to, err := url.Parse(said)
	if err != nil {
		return fmt.Errorf("servers/0/url is not a URL: say where calls go with base")
	}
	if from != "" {
		at, err := url.Parse(from)
		if err != nil {
			return err
		}
		to = at.ResolveReference(to)
		r.out.Foreign = to.Scheme != at.Scheme || !strings.EqualFold(to.Host, at.Host)
	}
	if to.Host == "" {
		return fmt.Errorf("it does not say at which host its API is (servers/0/url is %.80q): say where calls go with base", said)
	}
	r.out.Base, err = origin(to.String())
	return err
}

// origin checks an absolute URL, which may have a path.
func origin(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("calls cannot go to %.200q: it must be https://HOST[:PORT][/PATH], or http://", s)
	case u.User != nil:
		return "", fmt.Errorf("the URL to which calls go holds a password: keep it in the secret store")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "", fmt.Errorf("the URL to which calls go has a query or a fragment")
	}
	if err := request.CheckPath(u.EscapedPath()); err != nil {
		return "", err
	}
	return u.Scheme + "://" + strings.ToLower(u.Host) + strings.TrimRight(u.EscapedPath(), "/"), nil
}

// server is the first of a list of servers, with its variables at their defaults.
func (r *reading) server(v any) (string, error) {
	list, _ := v.([]any)
	if len(list) == 0 {
		return "/", nil
	}
	first := object(list[0])
	said, _ := first["url"].(string)
	for name, v := range object(first["variables"]) {
		value, ok := object(v)["default"].(string)
		if !ok {
			continue
		}
		said = strings.ReplaceAll(said, "{"+name+"}", value)
	}
	if strings.ContainsAny(said, "{}") {
		return "", fmt.Errorf("the URL of its server has a variable without a default (%.80q): say where calls go with base", said)
	}
	return said, nil
}

func (r *reading) warn(where, format string, args ...any) {
	const most = 200
	switch n := len(r.out.Warnings); {
	case n < most:
		r.out.Warnings = append(r.out.Warnings, where+": "+fmt.Sprintf(format, args...))
	case n == most:
		r.out.Warnings = append(r.out.Warnings, "and more")
	}
}

// object returns v as an object, an empty one if it is none.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

const maxHops = 16

// follow resolves references within the document, at most maxHops in a row.
func (r *reading) follow(v any) (map[string]any, error) {
	for range maxHops {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("it is not an object")
		}
		ref, ok := m["$ref"].(string)
		if !ok {
			return m, nil
		}
		var err error
		if v, err = r.at(ref); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("it refers to itself")
}

// at returns what a reference names.
func (r *reading) at(ref string) (any, error) {
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil || pointer != "" && pointer[0] != '/' || !strings.HasPrefix(ref, "#") {
		return nil, fmt.Errorf("the reference %.200q is not of the form #/…", ref)
	}
	var v any = r.root
	if pointer == "" {
		return v, nil
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = sallyport.PointerName(token)
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[token]
			if !ok {
				return nil, fmt.Errorf("the reference %.200q leads nowhere", ref)
			}
			v = next
		case []any:
			var i int
			if _, err := fmt.Sscanf(token, "%d", &i); err != nil || i < 0 || i >= len(in) {
				return nil, fmt.Errorf("the reference %.200q leads nowhere", ref)
			}
			v = in[i]
		default:
			return nil, fmt.Errorf("the reference %.200q leads nowhere", ref)
		}
	}
	return v, nil
}
