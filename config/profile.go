package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/profile"
	"sallyport.dev/sallyport/redact/lookalike"
	"sallyport.dev/sallyport/spelling"
)

// DefaultSearchAbove is how many tools of servers are listed before searching
// stands for the list.
const DefaultSearchAbove = 40

// A Profile is a named subset of the tools, and how they are shown there.
type Profile struct {
	Servers []string `yaml:"servers"` // every tool of these servers, and what they hold
	Tools   []string `yaml:"tools"`   // exposed names; a * at the end means "begins with"
	Bare    bool     `yaml:"bare"`    // names and addresses stay as its one server has them: false

	Rename   map[string]string           `yaml:"rename"`   // exposed names of tools and prompts, by the names that they are shown by: none
	Describe map[string]string           `yaml:"describe"` // what is said of tools and prompts instead, by exposed name: none
	Fix      map[string]map[string]Value `yaml:"fix"`      // arguments that callers do not give, with their values, by exposed name: none

	Search      bool `yaml:"search"`       // tools of servers are found by search_tools, where there are many: false
	SearchAbove int  `yaml:"search_above"` // how many are many: 40, all above that
}

// A Value is anything that JSON can say.
type Value json.RawMessage

// Shapes are the profiles in the vocabulary of the catalogue.
func (c *Config) Shapes() map[string]profile.Profile {
	out := make(map[string]profile.Profile, len(c.Profiles))
	for name, p := range c.Profiles {
		s := profile.Profile{
			Names: make([]string, 0, len(p.Servers)+len(p.Tools)), Rename: p.Rename, Describe: p.Describe,
			Fix: make(map[string]json.RawMessage, len(p.Fix)), Search: p.Search, Above: p.SearchAbove,
			Place: func(key string) string { return c.place("profiles." + name + "." + key) },
		}
		for _, server := range p.Servers {
			s.Names = append(s.Names, server+"__*")
		}
		s.Names = append(s.Names, p.Tools...)
		if p.Bare && len(p.Servers) == 1 {
			s.Bare = p.Servers[0]
		}
		for tool, args := range p.Fix {
			if fixed, err := object(args); err == nil { // check has seen that it is one
				s.Fix[tool] = fixed
			}
		}
		out[name] = s
	}
	return out
}

// Reshape reads the profiles of the file again. Which there are is settled at the
// start, as each has an audience of its own. A file that this user may not read any
// more says what it said.
func (c *Config) Reshape() (map[string]profile.Profile, error) {
	if c.File == "" {
		return c.Shapes(), nil
	}
	now, err := Load(c.File)
	if errors.Is(err, fs.ErrPermission) {
		return c.Shapes(), nil
	}
	if err != nil {
		return nil, err
	}
	if was, are := sortedKeys(c.Profiles), sortedKeys(now.Profiles); !slices.Equal(was, are) {
		return nil, &sallyport.Error{
			Code: sallyport.Invalid, Step: step, Message: fmt.Sprintf("%s: the profiles are %v, and were %v at the start", c.File, are, was),
			Hint: "restart the gateway: profiles are added and taken out only then",
		}
	}
	return now.Shapes(), nil
}

// place says where a key stands.
func (c *Config) place(key string) string {
	p := c.places[key]
	return fmt.Sprintf("%s:%d:%d", c.File, p.line, p.column)
}

// object is the canonical form of arguments.
func object(args map[string]Value) (json.RawMessage, error) {
	members := make(map[string]json.RawMessage, len(args))
	for name, v := range args {
		members[name] = json.RawMessage(v)
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return sallyport.Canonical(raw)
}

var (
	exposedName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)
	fixedTools  = []string{"approval_result", sallyport.SearchTools, sallyport.CallTools, sallyport.FilesTool}
)

func (d *decoder) profiles(c *Config) {
	shapes := c.Shapes()
	servers := sortedKeys(c.Servers)
	for _, name := range sortedKeys(c.Profiles) {
		key, p := "profiles."+name, c.Profiles[name]
		d.name(key, "profile", name, profileName, "use small letters, digits and hyphens, at most 32: it becomes part of a URL")
		d.each(key+".servers", p.Servers, func(key, server string) {
			if slices.Contains(servers, server) {
				return
			}
			hint := "add it under servers, or take it out here; servers kept in the database are named by tools: [NAME__*]"
			if near := spelling.Closest(server, servers); near != "" {
				hint = "did you mean " + near + "?"
			}
			d.fail(d.places[key], hint, "%s: there is no server %q", key, server)
		})
		d.each(key+".tools", p.Tools, func(key, tool string) {
			d.name(key, "tool", tool, `^([A-Za-z0-9_-]{1,48}|[A-Za-z0-9_-]{0,47}\*)$`, "write the name that agents see, or its beginning and a *")
		})
		if p.Bare && (len(p.Servers) != 1 || len(p.Tools) > 0) {
			d.fail(d.places[key+".bare"], "give it one server and no tools, or take bare out",
				"%s.bare: names can only stay as they are where all are of one server, and this profile has %d servers and %d tools", key, len(p.Servers), len(p.Tools))
		}
		d.renamed(key+".rename", p, shapes[name])
		for _, tool := range sortedKeys(p.Describe) {
			k := key + ".describe." + tool
			d.shaped(k, tool, shapes[name])
			if text := p.Describe[tool]; strings.TrimSpace(text) == "" || len(text) > 16<<10 {
				d.fail(d.places[k], "say in a few sentences what it does and when to use it", "%s: a description has 1 to 16384 bytes", k)
			}
		}
		for _, tool := range sortedKeys(p.Fix) {
			d.fixed(key+".fix."+tool, tool, p.Fix[tool], shapes[name])
		}
		d.within(key+".search_above", p.SearchAbove >= 0 && p.SearchAbove <= 100_000, "from 0 to 100000")
	}
}

// renamed checks the names that a profile gives: each can be nobody else's, and
// none can be taken for another.
func (d *decoder) renamed(key string, p Profile, shape profile.Profile) {
	if p.Bare && len(p.Rename) > 0 {
		d.fail(d.places[key], "take bare or rename out", "%s: names either stay as they are (bare) or are given", key)
	}
	of := map[string]string{}
	for i, shown := range sortedKeys(p.Rename) {
		k, tool := key+"."+shown, p.Rename[shown]
		if !exposedName.MatchString(shown) || strings.Contains(shown, "__") {
			d.fail(d.places[k], "use at most 48 letters, digits, hyphens and single underscores: two of them stand between a server and its tool", "%q cannot be the name that a tool is shown by", shown)
		}
		if slices.Contains(fixedTools, shown) {
			d.fail(d.places[k], "choose another name", "%s: %s is one of the gateway's own tools", k, shown)
		}
		d.shaped(k, tool, shape)
		if other, twice := of[tool]; twice {
			d.fail(d.places[k], "keep one of them", "%s: %s is shown as %s already", k, tool, other)
		}
		of[tool] = shown
		d.alike(k, "name", shown, sortedKeys(p.Rename)[:i])
	}
}

// alike refuses a name that a reader takes for one that is there already.
func (d *decoder) alike(key, what, name string, among []string) {
	if other := lookalike.Taken(name, among); other != "" {
		d.fail(d.places[key], "choose one that nobody takes for the other", "%s: the %s %q can be taken for %q", key, what, name, other)
	}
}

// shaped checks the name of a tool that a profile says something of.
func (d *decoder) shaped(key, tool string, shape profile.Profile) {
	switch {
	case !exposedName.MatchString(tool):
		d.fail(d.places[key], "write the name that /mcp lists it by, as in SERVER__TOOL", "%s: %q cannot be the name of a tool or prompt", key, tool)
	case slices.Contains(fixedTools, tool):
		d.fail(d.places[key], "remove it", "%s: %s is one of the gateway's own tools and stays as it is", key, tool)
	case !shape.Shows(tool):
		d.fail(d.places[key], "add it under tools, or its server under servers", "%s: %s is not in this profile", key, tool)
	}
}

func (d *decoder) fixed(key, tool string, args map[string]Value, shape profile.Profile) {
	d.shaped(key, tool, shape)
	if len(args) == 0 {
		d.fail(d.places[key], "write ARGUMENT: VALUE below it", "%s fixes no argument", key)
	}
	seen := map[string]string{}
	for _, name := range sortedKeys(args) {
		low := strings.ToLower(name)
		if other, twice := seen[low]; twice {
			d.fail(d.places[key+"."+name], "keep one of them", "%s: %s and %s differ in case alone", key, other, name)
		}
		seen[low] = name
	}
	if _, err := object(args); err != nil {
		d.fail(d.places[key], "write the values as JSON has them", "%s: %v", key, err)
	}
}

// anything decodes a value of any shape, as JSON.
func (d *decoder) anything(n ast.Node, v reflect.Value, path string) {
	if raw, ok := d.json(nil, n, path, 0); ok {
		v.SetBytes(raw)
	}
}

// maxValueDepth bounds how deep a Value is nested.
const maxValueDepth = 16

func (d *decoder) json(dst []byte, n ast.Node, path string, level int) ([]byte, bool) {
	if level > maxValueDepth {
		d.fail(at(n.GetToken()), "flatten it", "%s is nested deeper than %d levels", path, maxValueDepth)
		return nil, false
	}
	switch s := n.(type) {
	case *ast.StringNode:
		return appendJSON(dst, s.Value), true
	case *ast.LiteralNode:
		return appendJSON(dst, s.Value.Value), true
	case *ast.BoolNode:
		return appendJSON(dst, s.Value), true
	case *ast.NullNode:
		return append(dst, "null"...), true
	case *ast.IntegerNode, *ast.FloatNode:
		literal := n.GetToken().Value
		if !json.Valid([]byte(literal)) {
			d.fail(at(n.GetToken()), "write it as JSON does, or in quotes if it is text", "%s: %.40q is no number in JSON", path, literal)
			return nil, false
		}
		return append(dst, literal...), true
	case *ast.SequenceNode:
		dst = append(dst, '[')
		for i, item := range s.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			var ok bool
			if dst, ok = d.json(dst, item, path+"["+strconv.Itoa(i)+"]", level+1); !ok {
				return nil, false
			}
		}
		return append(dst, ']'), true
	case *ast.MappingNode, *ast.MappingValueNode:
		dst = append(dst, '{')
		for i, p := range d.pairs(n, path, "") {
			if i > 0 {
				dst = append(dst, ',')
			}
			key, _ := keyOf(p)
			var ok bool
			if dst, ok = d.json(append(appendJSON(dst, key), ':'), p.Value, join(path, key), level+1); !ok {
				return nil, false
			}
		}
		return append(dst, '}'), true
	}
	d.fail(at(n.GetToken()), "write a text, a number, true, false, null, a list or a block of keys", "%s: this is no value", path)
	return nil, false
}

func appendJSON(dst []byte, v any) []byte {
	b, _ := json.Marshal(v) // a string or a bool
	return append(dst, b...)
}
