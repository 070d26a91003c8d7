package result

import (
	"bytes"
	"encoding/json"
	"slices"

	"sallyport.dev/sallyport/wire"
)

// present takes out of a result what its server writes as null because it is not there.
// No revision has a member of its own that can be null, and strict clients, and the
// checks here, would refuse the result for it.
func present(result json.RawMessage) json.RawMessage {
	if !bytes.Contains(result, []byte("null")) {
		return result
	}
	return wire.Rewrite(result, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "content", "contents", "messages":
			return parts(v), true // a list is due
		case "isError", "_meta", "resultType", "description":
			return v, !wire.IsNull(v)
		}
		return v, true
	})
}

// parts are the blocks of a result, each without what is null in it.
func parts(list json.RawMessage) json.RawMessage {
	out, same := []byte{'['}, true
	for v := range wire.Elements(list) {
		now := part(v, 0)
		if same = same && string(now) == string(v); len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, now...)
	}
	if same {
		return list
	}
	return append(out, ']')
}

// optional are the members of a block that need not be there.
var optional = []string{"annotations", "_meta", "title", "description", "mimeType", "size", "icons", "text", "blob", "audience", "priority", "lastModified"}

// part is one block, or what is within one: a message's content and its resource.
func part(v json.RawMessage, level int) json.RawMessage {
	return wire.Rewrite(v, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		if level < 3 && (name == "content" || name == "resource" || name == "annotations") {
			v = part(v, level+1)
		}
		return v, !wire.IsNull(v) || !slices.Contains(optional, name)
	})
}
