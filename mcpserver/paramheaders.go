package mcpserver

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A paramHeader says that an argument is mirrored into a header
// (x-mcp-header in the tool's input schema).
type paramHeader struct {
	path   []string // property names from the root of the arguments
	header string   // canonical
	kind   string   // "string", "integer", "boolean"
}

// paramHeaderCache knows the mirrored arguments of every tool that was listed.
// A tool that changed since is checked by its old schema until somebody lists
// again, which is what a client does when it is told of a mismatch.
type paramHeaderCache struct {
	mu    sync.RWMutex
	tools map[toolKey]toolHeaders
}

type toolKey struct{ profile, name string }

type toolHeaders struct {
	digest  string
	headers []paramHeader
}

// maxCachedTools bounds the cache against a catalogue that keeps renaming.
const maxCachedTools = 200_000

func newParamHeaderCache() *paramHeaderCache {
	return &paramHeaderCache{tools: map[toolKey]toolHeaders{}}
}

func (c *paramHeaderCache) get(profile, name string) ([]paramHeader, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.tools[toolKey{profile, name}]
	return t.headers, ok
}

// knows reports whether every tool is in the cache as it is now.
func (c *paramHeaderCache) knows(profile string, tools []sallyport.Tool) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range tools {
		if old, ok := c.tools[toolKey{profile, tools[i].Name}]; !ok || old.digest != tools[i].Digest || old.digest == "" {
			return false
		}
	}
	return true
}

func (c *paramHeaderCache) learn(profile string, tools []sallyport.Tool) {
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
		key := toolKey{profile, t.Name}
		if old, ok := c.tools[key]; ok && old.digest == t.Digest && t.Digest != "" {
			continue
		}
		c.tools[key] = toolHeaders{digest: t.Digest, headers: paramHeaders(t.InputSchema)}
	}
}

// checkParamHeaders verifies Mcp-Param-* headers against the arguments. A tool
// that nobody listed yet is looked up as the caller sees it; where that fails
// the call itself will say why.
func (x *exchange) checkParamHeaders(ctx context.Context, op sallyport.Operation) *wire.Error {
	headers, known := x.s.params.get(x.profile, op.Target)
	if !known {
		_, tools, err := x.s.gateway.List(ctx, x.credential, x.profile, 0)
		if err != nil {
			return nil
		}
		x.s.params.learn(x.profile, tools)
		headers, _ = x.s.params.get(x.profile, op.Target)
	}
	for _, p := range headers {
		if e := p.check(x.r.Header, wire.Path(op.Args, p.path...)); e != nil {
			return e
		}
	}
	return nil
}

// check compares one header with its argument, nil or null if there is none.
func (p *paramHeader) check(h http.Header, arg json.RawMessage) *wire.Error {
	where := "arguments." + strings.Join(p.path, ".")
	values := h[p.header]
	if arg == nil || wire.IsNull(arg) {
		if len(values) > 0 {
			return mismatch("%s was sent, but there is no %s", p.header, where)
		}
		return nil
	}
	if len(values) != 1 {
		return mismatch("%s must be sent once; it must equal %s", p.header, where)
	}
	v, err := wire.DecodeHeader(values[0])
	if err != nil {
		return mismatch("%s %v", p.header, err)
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
		return mismatch("%s differs from %s", p.header, where)
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
	if s == "" || len(s) > 32 || strings.Trim(s, "-+.eE0123456789") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53-1
}

// paramHeaders reads the x-mcp-header annotations of an input schema. If one
// breaks the rules, none counts: clients drop such a tool.
func paramHeaders(schema json.RawMessage) []paramHeader {
	if !strings.Contains(string(schema), "x-mcp-header") {
		return nil
	}
	var out []paramHeader
	seen := map[string]bool{}
	if !collectParamHeaders(wire.Member(schema, "properties"), nil, seen, &out) {
		return nil
	}
	return out
}

func collectParamHeaders(properties json.RawMessage, path []string, seen map[string]bool, out *[]paramHeader) bool {
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
			*out = append(*out, paramHeader{path: here, header: header, kind: kind})
		}
		if !collectParamHeaders(wire.Member(schema, "properties"), here, seen, out) {
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
