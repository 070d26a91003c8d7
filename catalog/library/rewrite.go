package library

import (
	"bytes"
	"encoding/json"

	"sallyport.dev/sallyport/wire"
)

// rewrite maps the addresses of links and embedded resources in the content of
// a result. All else stays as it is, byte for byte.
func rewrite(result json.RawMessage, server string) json.RawMessage {
	content := wire.Member(result, "content")
	if len(content) == 0 || content[0] != '[' || !bytes.Contains(content, []byte("uri")) {
		return result
	}
	out, changed := []byte{'['}, false
	for block := range wire.Elements(content) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		mapped, ok := address(block, server)
		changed = changed || ok
		out = append(out, mapped...)
	}
	if !changed {
		return result
	}
	whole, err := wire.SetMember(result, "content", append(out, ']'))
	if err != nil { // its content was found: it is an object
		return result
	}
	return whole
}

// address maps the address in one block of content; changed is false where it
// has none.
func address(block json.RawMessage, server string) (mapped json.RawMessage, changed bool) {
	path := []string{"uri"}
	switch kind, _ := wire.String(wire.Member(block, "type")); kind {
	case "resource_link":
	case "resource":
		path = []string{"resource", "uri"}
	default:
		return block, false
	}
	uri, ok := wire.String(wire.Path(block, path...))
	if !ok || uri == "" {
		return block, false
	}
	mapped, err := wire.SetPath(block, wire.Quote(Expose(server, uri)), path...)
	return mapped, err == nil
}
