// Package foreign reads what other programs call a configuration of MCP servers:
// mcp.json of Claude Desktop, Claude Code and Cursor (mcpServers), that of VS
// Code (servers, inputs), and server.json of the MCP registry. What it makes of
// each is a server of Sallyport's own configuration, or the reason why not: one
// bad entry never loses the others. It starts nothing, and reaches nothing.
package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport"
)

// A Server is one entry of a foreign configuration.
type Server struct {
	Name     string   `json:"name"`              // as it may be called here
	Was      string   `json:"was,omitempty"`     // what the file called it, if that cannot be kept
	Config   *Config  `json:"config,omitempty"`  // nil if it cannot be used
	Problem  string   `json:"problem,omitempty"` // why not
	Hint     string   `json:"hint,omitempty"`
	Notes    []string `json:"notes,omitempty"` // what was left out or changed
	Asks     []string `json:"asks,omitempty"`  // names of secrets whose value the file does not hold
	Disabled bool     `json:"disabled,omitempty"`

	// Secrets are values that the file holds, by the name under which they go
	// into the secret store. They are never written anywhere else.
	Secrets map[string]string `json:"-"`
}

// A Config is an entry of `servers` in sallyport.yaml.
type Config struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`

	Isolation string   `json:"isolation,omitempty"`
	Egress    []string `json:"egress,omitempty"`
	Roots     []Root   `json:"roots,omitempty"`
}

// A Root is a folder of the host that a server sees.
type Root struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only"`
}

// Lookup finds a variable of the environment of whoever imports.
type Lookup func(name string) (string, bool)

// Bounds on what is read.
const (
	MaxBytes   = 4 << 20 // of one file or answer
	maxServers = 500
	maxText    = 32 << 10 // of one string
)

// Read reads a file of any of the kinds. what names the kind. The error says
// that it is none of them.
func Read(src []byte, env Lookup) (servers []Server, what string, err error) {
	root, err := object(src)
	if err != nil {
		return nil, "", err
	}
	switch {
	case has(root, "mcpServers"):
		servers, err = entries(root, "mcpServers", reader{env: env})
		return servers, "mcp.json", err
	case has(root, "mcp") && has(sub(root, "mcp"), "servers"): // settings.json of VS Code
		root = sub(root, "mcp")
		fallthrough
	case has(root, "servers") && !isList(root["servers"]):
		servers, err = entries(root, "servers", reader{env: env, inputs: inputsOf(root["inputs"])})
		return servers, "VS Code's mcp.json", err
	case has(root, "packages") || has(root, "remotes") || has(root, "server") && has(sub(root, "server"), "name"):
		s := published(src)
		return []Server{s}, "server.json", nil
	case has(root, "servers"):
		list, _, err := Page(src)
		return list, "a registry's list", err
	}
	return nil, "", &sallyport.Error{
		Code: sallyport.Invalid, Message: "it holds no MCP servers: none of the keys mcpServers, servers, packages and remotes is there",
		Hint: "give the mcp.json of Claude, Cursor or VS Code, or the server.json of a registry",
	}
}

// object reads JSON as people write it into settings: comments and trailing
// commas are taken, duplicate names are not.
func object(src []byte) (map[string]json.RawMessage, error) {
	bad := func(format string, args ...any) error {
		return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf(format, args...), Hint: "it must be a JSON object"}
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	switch {
	case len(src) > MaxBytes:
		return nil, bad("it has more than %d MiB", MaxBytes>>20)
	case !utf8.Valid(src):
		return nil, bad("it is not UTF-8 text")
	}
	list, err := members(standard(src))
	if err != nil {
		return nil, bad("it is not a JSON object: %.200s", err)
	}
	root := map[string]json.RawMessage{}
	for _, m := range list {
		if has(root, m.name) {
			return nil, bad("%.40q is there twice", m.name)
		}
		root[m.name] = m.raw
	}
	return root, nil
}

// A member of an object, as it is written.
type member struct {
	name string
	raw  json.RawMessage
}

// members are those of an object in their order, twins too.
func members(raw []byte) (out []member, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	start, err := d.Token()
	if err == nil && start != json.Delim('{') {
		err = errors.New("it does not begin with {")
	}
	for err == nil && d.More() {
		var name json.Token
		if name, err = d.Token(); err != nil {
			break
		}
		m := member{name: fmt.Sprint(name)} // in an object a name is a text
		if err = d.Decode(&m.raw); err == nil {
			out = append(out, m)
		}
	}
	if err == nil {
		_, err = d.Token()
	}
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something stands behind it")
	}
	return out, err
}

func has(m map[string]json.RawMessage, key string) bool { _, ok := m[key]; return ok }

func sub(m map[string]json.RawMessage, key string) (out map[string]json.RawMessage) {
	if json.Unmarshal(m[key], &out) != nil {
		return nil
	}
	return out
}

func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }

// entries reads every server of an object of them, in its order.
func entries(root map[string]json.RawMessage, key string, r reader) ([]Server, error) {
	all, err := members(root[key])
	if err != nil {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: key + " is no object", Hint: "it must hold the servers by name"}
	}
	if len(all) > maxServers {
		return nil, &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf("%s holds %d servers, more than %d", key, len(all), maxServers), Hint: "import them in parts"}
	}
	taken := map[string]string{}
	var out []Server
	for _, m := range all {
		name := m.name
		s := Server{Name: Named(name), Secrets: map[string]string{}}
		if s.Name != name {
			s.Was = name
		}
		switch first, twice := taken[s.Name]; {
		case s.Name == "":
			s.Name, s.Problem, s.Hint = name, "its name has no letter or digit", "rename it in the file"
		case twice && first == name:
			s.Problem, s.Hint = "it is there twice in the file; the first one counts", "take one of them out"
		case twice:
			s.Problem, s.Hint = fmt.Sprintf("its name would be %s here, as that of %q", s.Name, first), "rename one of them in the file"
		default:
			taken[s.Name] = name
			r.server(&s, m.raw)
		}
		out = append(out, s)
	}
	return out, nil
}

// Named is a name as servers have it here: at most 24 letters, digits, hyphens
// and single underscores. Of a registry's name it is what follows the slash.
func Named(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 && i < len(name)-1 {
		name = name[i+1:]
	}
	var b strings.Builder
	for _, r := range name {
		switch {
		case r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-") && !strings.HasSuffix(b.String(), "_"):
			if r == '_' {
				b.WriteByte('_')
			} else {
				b.WriteByte('-')
			}
		}
	}
	s := b.String()
	return strings.TrimRight(s[:min(len(s), 24)], "-_")
}
