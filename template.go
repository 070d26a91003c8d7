package sallyport

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// FillArgs puts a call's arguments into those of a template: an object
// {"$arg": "/pointer"} stands for what the call has there, byte for byte. No
// template is an empty object. The result is canonical.
func FillArgs(template, call json.RawMessage) (json.RawMessage, error) {
	if len(template) == 0 {
		template = json.RawMessage("{}")
	}
	filled, err := fill(template, call)
	if err != nil {
		return nil, err
	}
	return Canonical(filled)
}

func fill(template, call json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	var items []json.RawMessage
	switch {
	case json.Unmarshal(template, &members) == nil && members != nil:
		if ref, ok := members["$arg"]; ok && len(members) == 1 {
			var pointer string
			if err := json.Unmarshal(ref, &pointer); err != nil {
				return nil, fmt.Errorf("$arg must be a JSON Pointer, not %.40s", ref)
			}
			v, ok := At(call, pointer)
			if !ok {
				return nil, fmt.Errorf("the call has no argument %s", pointer)
			}
			return v, nil
		}
		for _, k := range slices.Sorted(maps.Keys(members)) { // the same words for the same fault
			f, err := fill(members[k], call)
			if err != nil {
				return nil, err
			}
			members[k] = f
		}
		return json.Marshal(members)
	case json.Unmarshal(template, &items) == nil && items != nil:
		for i, v := range items {
			f, err := fill(v, call)
			if err != nil {
				return nil, err
			}
			items[i] = f
		}
		return json.Marshal(items)
	}
	return template, nil
}
