// Package answer writes the results of calls for clients: the bytes that came, and what
// the gateway has to say beside them.
package answer

import (
	"bytes"
	"encoding/json"
	"errors"

	"sallyport.dev/sallyport/wire"
)

// Marks are what the gateway puts into results.
type Marks struct {
	Modern bool   // for the stateless revision
	Info   []byte // raw Implementation object
}

var errNotAResult = errors.New("the result's content is not a JSON object")

// Append writes the whole response to a request: the content as it is, with the
// call's id in its _meta, and in the stateless revision with what every result
// must have.
func (m Marks) Append(id json.RawMessage, content []byte, callID string) ([]byte, error) {
	content = bytes.TrimSpace(content)
	if len(content) < 2 || content[0] != '{' || content[len(content)-1] != '}' {
		return nil, errNotAResult
	}
	if meta := wire.Member(content, "_meta"); meta != nil {
		var err error
		if content, err = m.Meta(content, meta, callID); err != nil {
			return nil, err
		}
		callID = ""
	}
	b := append(make([]byte, 0, len(content)+320), `{"jsonrpc":"2.0","id":`...)
	b = append(append(b, id...), `,"result":`...)
	b = append(b, content[:len(content)-1]...)
	comma := len(bytes.TrimSpace(content[1:len(content)-1])) > 0
	member := func(raw string) {
		if comma {
			b = append(b, ',')
		}
		comma = true
		b = append(b, raw...)
	}
	if callID != "" {
		member(`"_meta":{"` + wire.MetaCallID + `":`)
		b = wire.AppendString(b, callID)
		if m.Modern {
			b = append(append(b, `,"`+wire.MetaServerInfo+`":`...), m.Info...)
		}
		b = append(b, '}')
	}
	if m.Modern && wire.Member(content, "resultType") == nil {
		member(`"resultType":"complete"`)
	}
	return append(b, "}}"...), nil
}

// Replay says in _meta that an earlier call did the work: one with the same
// key, or the identical one that twin names.
func Replay(content []byte, twin string) []byte {
	meta := wire.Member(content, "_meta")
	if !wire.IsObject(meta) {
		meta = json.RawMessage("{}")
	}
	meta, err := wire.SetMember(meta, wire.MetaReplay, json.RawMessage("true"))
	if err == nil && twin != "" {
		meta, err = wire.SetMember(meta, wire.MetaTwin, wire.Quote(twin))
	}
	if err != nil {
		return content // not an object: Append says so
	}
	marked, err := wire.SetMember(content, "_meta", meta)
	if err != nil {
		return content
	}
	return marked
}

// Meta puts our own members into a _meta that the content has already.
func (m Marks) Meta(content, meta json.RawMessage, callID string) (json.RawMessage, error) {
	if !wire.IsObject(meta) {
		meta = json.RawMessage("{}")
	}
	meta, err := wire.SetMember(meta, wire.MetaCallID, wire.Quote(callID))
	if err == nil && m.Modern {
		meta, err = wire.SetMember(meta, wire.MetaServerInfo, m.Info)
	}
	if err != nil {
		return nil, err
	}
	return wire.SetMember(content, "_meta", meta)
}
