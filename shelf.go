package sallyport

import "encoding/json"

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
	// Incomplete: not every server of the profile has told what it has.
	Incomplete bool
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
