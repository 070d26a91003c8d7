package wire

import (
	"encoding/json"
	"errors"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// cursor walks the members of one raw object, or the elements of one array.
type cursor struct {
	b          []byte
	i          int
	start, end int // of the current value
}

// open returns a cursor behind the opening bracket, or false.
func open(raw []byte, bracket byte) (cursor, bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != bracket {
		return cursor{}, false
	}
	return cursor{b: raw, i: i + 1}, true
}

// member moves to the next member and returns its quoted name.
func (c *cursor) member() (name []byte, ok bool) {
	i := skipSpace(c.b, c.i)
	if i < len(c.b) && c.b[i] == ',' {
		i = skipSpace(c.b, i+1)
	}
	if i >= len(c.b) || c.b[i] != '"' {
		return nil, false
	}
	j := skipString(c.b, i)
	name = c.b[i:j]
	if j = skipSpace(c.b, j); j >= len(c.b) || c.b[j] != ':' {
		return nil, false
	}
	c.start = skipSpace(c.b, j+1)
	c.end = skipValue(c.b, c.start)
	c.i = c.end
	return name, c.end > c.start
}

// element moves to the next element of an array.
func (c *cursor) element() bool {
	i := skipSpace(c.b, c.i)
	if i < len(c.b) && c.b[i] == ',' {
		i = skipSpace(c.b, i+1)
	}
	if i >= len(c.b) || c.b[i] == ']' {
		return false
	}
	c.start, c.end = i, skipValue(c.b, i)
	c.i = c.end
	return c.end > c.start
}

func (c *cursor) value() json.RawMessage { return json.RawMessage(c.b[c.start:c.end:c.end]) }

// unquoteName decodes a quoted member name, without copying it if it can.
func unquoteName(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c == '\\' {
			b, _ := jsontext.AppendUnquote(nil, quoted)
			return b
		}
	}
	return inner
}

// Members yields each member of a raw object: its name, decoded, and its raw
// value. Both point into raw. Anything but an object has no members.
func Members(raw json.RawMessage) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		c, ok := open(raw, '{')
		for ok {
			var name []byte
			if name, ok = c.member(); ok && !yield(unquoteName(name), c.value()) {
				return
			}
		}
	}
}

// Elements yields each element of a raw array.
func Elements(raw json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		c, ok := open(raw, '[')
		for ok && c.element() {
			if !yield(c.value()) {
				return
			}
		}
	}
}

// find places a cursor on the member called name.
func find(raw []byte, name string) (cursor, bool) {
	c, ok := open(raw, '{')
	for ok {
		var quoted []byte
		if quoted, ok = c.member(); ok && string(unquoteName(quoted)) == name {
			return c, true
		}
	}
	return cursor{}, false
}

// Member returns the raw value of one member of a raw object, or nil. Names
// are compared exactly, after decoding escapes.
func Member(raw json.RawMessage, name string) json.RawMessage {
	c, ok := find(raw, name)
	if !ok {
		return nil
	}
	return c.value()
}

// Path follows names through nested objects; it returns nil where one is missing.
func Path(raw json.RawMessage, names ...string) json.RawMessage {
	for _, n := range names {
		if raw = Member(raw, n); raw == nil {
			return nil
		}
	}
	return raw
}

// errNotObject is returned by setters for anything but an object.
var errNotObject = errors.New("not a JSON object")

// SetMember returns a copy of the object raw in which the member called name
// has the given value; a new member goes last. All else is byte for byte as
// it was.
func SetMember(raw json.RawMessage, name string, value json.RawMessage) (json.RawMessage, error) {
	if c, ok := find(raw, name); ok {
		out := make([]byte, 0, len(raw)-(c.end-c.start)+len(value))
		out = append(out, raw[:c.start]...)
		out = append(out, value...)
		return append(out, raw[c.end:]...), nil
	}
	i := skipSpace(raw, 0)
	end := len(trim(raw)) + i
	if i >= len(raw) || raw[i] != '{' || end-i < 2 || raw[end-1] != '}' {
		return nil, errNotObject
	}
	out := make([]byte, 0, len(raw)+len(name)+len(value)+4)
	out = append(out, raw[:end-1]...)
	if skipSpace(raw, i+1) != end-1 {
		out = append(out, ',')
	}
	out = append(AppendString(out, name), ':')
	out = append(out, value...)
	return append(out, raw[end-1:]...), nil
}

// RemoveMember returns a copy of the object raw without the member called
// name. All else is byte for byte as it was. A missing member is no error.
func RemoveMember(raw json.RawMessage, name string) (json.RawMessage, error) {
	c, ok := open(raw, '{')
	if !ok {
		return nil, errNotObject
	}
	first := true
	for from := c.i; ; from = c.i {
		quoted, ok := c.member()
		if !ok {
			return append(json.RawMessage(nil), raw...), nil
		}
		if string(unquoteName(quoted)) != name {
			first = false
			continue
		}
		to := c.end
		if first { // the comma after it goes too
			if j := skipSpace(raw, to); j < len(raw) && raw[j] == ',' {
				to = j + 1
			}
		}
		out := append(make([]byte, 0, len(raw)-(to-from)), raw[:from]...)
		return append(out, raw[to:]...), nil
	}
}

// SetPath is SetMember at the end of a chain of names. Objects that are
// missing, or null, on the way are made.
func SetPath(raw, value json.RawMessage, names ...string) (json.RawMessage, error) {
	if len(names) == 0 {
		return value, nil
	}
	inner := Member(raw, names[0])
	if len(names) > 1 && (inner == nil || IsNull(inner)) {
		inner = json.RawMessage("{}")
	}
	value, err := SetPath(inner, value, names[1:]...)
	if err != nil {
		return nil, err
	}
	return SetMember(raw, names[0], value)
}

// Rewrite changes members of an object, or leaves them out where keep is false. What
// is no object, and one in which nothing changes, stays as it is.
func Rewrite(object json.RawMessage, change func(name string, v json.RawMessage) (now json.RawMessage, keep bool)) json.RawMessage {
	out, same := []byte{'{'}, true
	for name, v := range Members(object) {
		now, keep := change(string(name), v)
		if same = same && keep && string(now) == string(v); !keep {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendString(out, string(name)), ':'), now...)
	}
	if same {
		return object
	}
	return append(out, '}')
}
