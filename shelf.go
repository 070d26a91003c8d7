package sallyport

import (
	"encoding/json"
	"slices"
)

// A Shelf is one of the lists of things to read, as MCP has them.
type Shelf string

// The shelves.
const (
	Resources Shelf = "resources"
	Templates Shelf = "templates" // of addresses of resources
	Prompts   Shelf = "prompts"
)

// Shelves are all of them.
var Shelves = []Shelf{Resources, Templates, Prompts}

// Shown is the name, or the address, that the tool has in the list of a profile.
func (t Tool) Shown() string {
	if t.Alias != "" {
		return t.Alias
	}
	return t.Name
}

// A Sight is what a principal may see of one list.
type Sight struct {
	Who  Principal
	List []Tool // sorted by Name; the caller must not modify it
	// Found are the tools that are not listed, as there are too many: they are found
	// by searching, and called as if they were listed.
	Found []Tool
	// Incomplete: not every server of the profile has told what it has.
	Incomplete bool
}

// Has reports whether a tool, by its name or as it is shown, is in sight.
func (s *Sight) Has(name string) bool {
	is := func(t Tool) bool { return t.Name == name || t.Shown() == name }
	return slices.ContainsFunc(s.List, is) || slices.ContainsFunc(s.Found, is)
}

// The names of the tools that stand for a list which is too long to be read.
const (
	SearchTools = "search_tools"
	CallTools   = "call_tool"
)

// Fold leaves the tools of servers to the tool that searches, where there are too
// many to be listed; else it takes that tool out.
func (s *Sight) Fold() {
	i := slices.IndexFunc(s.List, func(t Tool) bool { return t.Name == SearchTools && t.Shelf == "" })
	if i < 0 {
		return
	}
	limit := s.List[i].Stands
	var own, found []Tool
	for _, t := range s.List {
		if t.Origin.Server != "" {
			found = append(found, t)
		} else {
			own = append(own, t)
		}
	}
	if len(found) > limit {
		s.List, s.Found = own, found
		return
	}
	s.List = slices.DeleteFunc(s.List, func(t Tool) bool { return t.Name == SearchTools || t.Name == CallTools })
}

// ReadArgs are the arguments of an operation of kind ReadResource: the address,
// as its server knows it. Policies see them.
func ReadArgs(address string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"uri": address})
	if err != nil { // a map of strings
		return nil
	}
	return b
}
