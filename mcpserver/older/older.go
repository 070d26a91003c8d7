// Package older words tools and their results for clients with sessions, whose
// revisions know structured content that is an object, and no other: their programs
// refuse a whole list, or a result, for anything else.
package older

import (
	"bytes"
	"encoding/json"

	"sallyport.dev/sallyport/wire"
)

// Tool leaves out an output schema of anything but an object.
func Tool(definition json.RawMessage) json.RawMessage {
	if !bytes.Contains(definition, []byte(`"outputSchema"`)) {
		return definition
	}
	schema := wire.Member(definition, "outputSchema")
	if kind, _ := wire.String(wire.Member(schema, "type")); schema == nil || kind == "object" {
		return definition
	}
	if left, err := wire.RemoveMember(definition, "outputSchema"); err == nil {
		return left
	}
	return definition
}

// Result makes an object of structured content that is none: its member result is what
// was there. If nothing but that says what came out, a text does, too.
func Result(content json.RawMessage) json.RawMessage {
	if !bytes.Contains(content, []byte(`"structuredContent"`)) {
		return content
	}
	v := wire.Member(content, "structuredContent")
	if v == nil || wire.IsObject(v) {
		return content
	}
	if wire.IsNull(v) {
		if left, err := wire.RemoveMember(content, "structuredContent"); err == nil {
			return left
		}
		return content
	}
	out, err := wire.SetMember(content, "structuredContent", append(append([]byte(`{"result":`), v...), '}'))
	if blocks := wire.Member(content, "content"); err == nil && empty(blocks) {
		out, err = wire.SetMember(out, "content", append(wire.AppendString([]byte(`[{"type":"text","text":`), string(v)), "}]"...))
	}
	if err != nil { // it was found: it is an object
		return content
	}
	return out
}

func empty(list json.RawMessage) bool {
	for range wire.Elements(list) {
		return false
	}
	return true
}
