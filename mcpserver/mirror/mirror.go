// Package mirror knows which arguments of a tool a client must mirror into headers
// (x-mcp-header in its input schema), and whether it did.
package mirror

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A Header says that an argument is mirrored into a header.
type Header struct {
	path   []string // property names from the root of the arguments
	header string   // canonical
	kind   string   // "string", "integer", "boolean"
}

// A Cache knows the mirrored arguments of every tool that was listed.
// A tool that changed since is checked by its old schema until somebody lists
// again, which is what a client does when it is told of a mismatch.
type Cache struct {
	mu    sync.RWMutex
	tools map[toolKey]toolHeaders
}

type toolKey struct{ profile, name string }

type toolHeaders struct {
	digest  string
	headers []Header
}

// maxCachedTools bounds the cache against a catalogue that keeps renaming.
const maxCachedTools = 200_000

// New returns an empty cache.
func New() *Cache {
	return &Cache{tools: map[toolKey]toolHeaders{}}
}

// Get returns what a tool wants mirrored; ok is false for one that nobody listed yet.
func (c *Cache) Get(profile, name string) ([]Header, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.tools[toolKey{profile, name}]
	return t.headers, ok
}

// knows reports whether every tool is in the cache as it is now.
func (c *Cache) knows(profile string, tools []sallyport.Tool) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range tools {
		if old, ok := c.tools[toolKey{profile, tools[i].Shown()}]; !ok || old.digest != tools[i].Digest || old.digest == "" {
			return false
		}
	}
	return true
}

// Learn takes in tools as they were listed.
func (c *Cache) Learn(profile string, tools []sallyport.Tool) {
	if c.knows(profile, tools) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tools) > maxCachedTools {
		clear(c.tools)
	}
	for i := range tools {
		t := &tools[i]
		key := toolKey{profile, t.Shown()}
		if old, ok := c.tools[key]; ok && old.digest == t.Digest && t.Digest != "" {
			continue
		}
		h := toolHeaders{digest: t.Digest, headers: headersOf(wire.Member(t.Definition, "inputSchema"))}
		c.tools[key], c.tools[toolKey{profile, t.Name}] = h, h // by either it can be called
	}
}

// Check compares one header with its argument in args. The error says how they differ.
func (p *Header) Check(h http.Header, args json.RawMessage) error {
	arg := wire.Path(args, p.path...)
	where := "arguments." + strings.Join(p.path, ".")
	values := h[p.header]
	if arg == nil || wire.IsNull(arg) {
		if len(values) > 0 {
			return fmt.Errorf("%s was sent, but there is no %s", p.header, where)
		}
		return nil
	}
	if len(values) != 1 {
		return fmt.Errorf("%s must be sent once; it must equal %s", p.header, where)
	}
	v, err := wire.DecodeHeader(values[0])
	if err != nil {
		return fmt.Errorf("%s %w", p.header, err)
	}
	same := false
	switch p.kind {
	case "string":
		s, ok := wire.String(arg)
		same = ok && s == v
	case "boolean":
		same = (v == "true" || v == "false") && v == string(arg)
	case "integer":
		same = sameInteger(v, string(arg))
	}
	if !same {
		return fmt.Errorf("%s differs from %s", p.header, where)
	}
	return nil
}

// sameInteger compares as numbers: 42 and 42.0 are the same. Beyond 2^53 no
// two readers agree, so nothing is the same there.
func sameInteger(a, b string) bool {
	x, ok1 := safeInteger(a)
	y, ok2 := safeInteger(b)
	return ok1 && ok2 && x == y
}

func safeInteger(s string) (float64, bool) {
	if s == "" || len(s) > 32 || s[0] != '-' && (s[0] < '0' || s[0] > '9') || wire.Validate([]byte(s)) != nil { // no number of JSON
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53-1
}

// headersOf reads the x-mcp-header annotations of an input schema. If one
// breaks the rules, none counts: clients drop such a tool.
func headersOf(schema json.RawMessage) []Header {
	if !strings.Contains(string(schema), "x-mcp-header") {
		return nil
	}
	var out []Header
	seen := map[string]bool{}
	if !collect(wire.Member(schema, "properties"), nil, seen, &out) {
		return nil
	}
	return out
}

func collect(properties json.RawMessage, path []string, seen map[string]bool, out *[]Header) bool {
	if len(path) > 32 {
		return false
	}
	for name, schema := range wire.Members(properties) {
		here := append(path[:len(path):len(path)], string(name))
		if raw := wire.Member(schema, "x-mcp-header"); raw != nil {
			suffix, ok := wire.String(raw)
			kind, _ := wire.String(wire.Member(schema, "type"))
			header := http.CanonicalHeaderKey(wire.HeaderParamPrefix + suffix)
			if !ok || !isToken(suffix) || seen[header] || kind != "string" && kind != "integer" && kind != "boolean" {
				return false
			}
			seen[header] = true
			*out = append(*out, Header{path: here, header: header, kind: kind})
		}
		if !collect(wire.Member(schema, "properties"), here, seen, out) {
			return false
		}
	}
	return true
}

// isToken: 1*tchar of RFC 9110.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
