package sallyport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Fill puts the arguments that a profile gives into canonical ones. A caller that
// gives one itself is refused: it was not asked for it, and what it says would not
// count. ours are arguments that were filled before, or that the operator wrote:
// those may hold such a value, if it is the same.
func (t Tool) Fill(args json.RawMessage, ours bool) (json.RawMessage, error) {
	if len(t.Fixed) == 0 {
		return args, nil
	}
	var given, fixed map[string]json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(t.Fixed, &fixed); err != nil {
		return nil, err
	}
	for name, value := range fixed {
		is, there := given[name]
		switch {
		case like(given, name) != "" && !(there && ours):
			return nil, &Error{
				Code: Invalid, Step: Validate, Message: fmt.Sprintf("the argument %q of %s has a fixed value here", like(given, name), t.Shown()),
				Hint: "leave it out: it is put in for you",
			}
		case there && !bytes.Equal(is, value):
			return nil, &Error{
				Code: Conflict, Step: Validate, Message: fmt.Sprintf("the argument %q of %s has another fixed value by now", name, t.Shown()),
				Hint: "make a new call, and leave it out",
			}
		}
		given[name] = value
	}
	whole, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	return Canonical(whole)
}

// like returns the name among those given that a server could take for name: many
// do not look at case.
func like(given map[string]json.RawMessage, name string) string {
	if _, ok := given[name]; ok {
		return name
	}
	for other := range given {
		if strings.EqualFold(other, name) {
			return other
		}
	}
	return ""
}
