// Package profile shapes what one endpoint shows: which tools and prompts, by
// which names, with which words, and which of their arguments are given here and
// not by callers.
//
// A shape is what is shown. The name that policies, tickets, quotas and the
// record know is Tool.Name, and no shape changes that.
package profile

import (
	"encoding/json"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

// A Profile is what the callers of one endpoint may see, before policies.
type Profile struct {
	Names    []string                   // exposed names, or beginnings of names with a * at the end
	Bare     string                     // the one server whose names and addresses stay as they are, "" for none
	Rename   map[string]string          // exposed names, by the names that they are shown by
	Describe map[string]string          // other descriptions, by exposed name
	Fix      map[string]json.RawMessage // arguments with a value of their own, a canonical object by exposed name
	Search   bool                       // tools of servers are found by searching, where there are more than Above
	Above    int

	// Place says where the operator wrote a key, such as "rename.send": FILE:LINE.
	Place func(key string) string
}

// All is the default profile: everything, as it is.
func All() Profile { return Profile{Names: []string{"*"}} }

// Shows reports whether a tool or prompt is part of the profile.
func (p Profile) Shows(name string) bool {
	if name == sallyport.SearchTools || name == sallyport.CallTools {
		return p.Search
	}
	return slices.ContainsFunc(p.Names, func(pattern string) bool { return sallyport.Matches(pattern, name) })
}

// Whole reports whether everything of a server is in the profile.
func (p Profile) Whole(server string) bool {
	return slices.ContainsFunc(p.Names, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return open && strings.HasPrefix(server+"__", prefix)
	})
}

// Touches reports whether anything of a server can be in the profile.
func (p Profile) Touches(server string) bool {
	return slices.ContainsFunc(p.Names, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return strings.HasPrefix(prefix, server+"__") || open && strings.HasPrefix(server+"__", prefix)
	})
}

// Changes reports whether a tool or prompt is shown otherwise than it is.
func (p Profile) Changes(name string) bool {
	if _, ok := p.Describe[name]; ok {
		return true
	}
	_, ok := p.Fix[name]
	return ok || p.shown(name) != "" || name == sallyport.SearchTools
}

// shown is the name that an exposed name is shown by, "" if it is none.
func (p Profile) shown(name string) string {
	for shown, of := range p.Rename {
		if of == name {
			return shown
		}
	}
	return ""
}

// Shape returns a tool or prompt as the profile shows it. What it is judged by, its
// schema too, stays what it was.
func (p Profile) Shape(t sallyport.Tool) sallyport.Tool {
	if shown := p.shown(t.Name); shown != "" {
		t = Renamed(t, shown)
	}
	if text, ok := p.Describe[t.Name]; ok {
		if raw, err := wire.SetMember(t.Definition, "description", wire.Quote(text)); err == nil {
			t.Definition = raw
		}
	}
	if fixed, ok := p.Fix[t.Name]; ok {
		t.Fixed = fixed
		for name := range wire.Members(fixed) {
			t = without(t, string(name))
		}
	}
	if t.Name == sallyport.SearchTools {
		t.Stands = p.Above
	}
	return t
}

// Renamed is a tool or prompt as it is listed by another name.
func Renamed(t sallyport.Tool, shown string) sallyport.Tool {
	if raw, err := wire.SetMember(t.Definition, "name", wire.Quote(shown)); err == nil {
		t.Definition, t.Alias = raw, shown
	}
	return t
}

// without takes an argument out of what is listed.
func without(t sallyport.Tool, argument string) sallyport.Tool {
	if t.Shelf == sallyport.Prompts {
		t.Definition = drop(t.Definition, "arguments", func(v json.RawMessage) bool {
			name, _ := wire.String(wire.Member(v, "name"))
			return name == argument
		})
		return t
	}
	schema := wire.Member(t.Definition, "inputSchema")
	if properties := wire.Member(schema, "properties"); wire.Member(properties, argument) != nil {
		if left, err := wire.RemoveMember(properties, argument); err == nil {
			if raw, err := wire.SetMember(schema, "properties", left); err == nil {
				schema = raw
			}
		}
	}
	schema = drop(schema, "required", func(v json.RawMessage) bool {
		name, _ := wire.String(v)
		return name == argument
	})
	if raw, err := wire.SetMember(t.Definition, "inputSchema", schema); err == nil {
		t.Definition = raw
	}
	return t
}

// drop takes elements out of a list that is a member of an object. A list that
// becomes empty goes.
func drop(object json.RawMessage, member string, gone func(json.RawMessage) bool) json.RawMessage {
	list := wire.Member(object, member)
	left, found := []byte{'['}, false
	for v := range wire.Elements(list) {
		if gone(v) {
			found = true
			continue
		}
		if len(left) > 1 {
			left = append(left, ',')
		}
		left = append(left, v...)
	}
	if !found {
		return object
	}
	out, err := wire.SetMember(object, member, append(left, ']'))
	if len(left) == 1 {
		out, err = wire.RemoveMember(object, member)
	}
	if err != nil {
		return object
	}
	return out
}
