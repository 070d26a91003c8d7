package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// Collision finds a profile that shows something by a name which another tool of
// the gateway itself, or of a manifest, has: taken says whose it is. Names that
// servers' tools have by themselves hold "__", which no other name may hold.
func Collision(profiles map[string]Profile, taken map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		for _, shown := range slices.Sorted(maps.Keys(p.Rename)) {
			if owner, ok := taken[shown]; ok {
				return p.fault("rename."+shown, "choose another name", "profile %s: the name %q is already used by %s", name, shown, owner)
			}
		}
	}
	return nil
}

func (p Profile) fault(key, hint, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if p.Place != nil {
		message = p.Place(key) + ": " + message
	}
	return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Resolve, Message: message, Hint: hint}
}

// Unknown tells which of the names that the profile says something of are no
// tool's, though their server has told what it has.
func (p Profile) Unknown(told map[string]bool, exists func(name string) bool) map[string]string {
	out := map[string]string{}
	say := func(name, key string) {
		server, _, of := strings.Cut(name, "__")
		if !exists(name) && (!of || told[server]) {
			out[name] = key + " has no effect: there is no tool of that name; a prompt may have it"
		}
	}
	for name := range p.Describe {
		say(name, "describe")
	}
	for shown, name := range p.Rename {
		say(name, "rename."+shown)
	}
	for name := range p.Fix {
		say(name, "fix")
	}
	return out
}
