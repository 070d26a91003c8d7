package redact

import (
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// A shapeError says how a CallToolResult is malformed, in words for an agent.
type shapeError struct{ text string }

func (e *shapeError) Error() string { return e.text }

func malformed(format string, args ...any) error {
	return &shapeError{fmt.Sprintf(format, args...)}
}

// A reading is what was learned of a CallToolResult on the way.
type reading struct {
	isError    bool
	structured json.RawMessage // as received; nil if absent or null
}

// result copies a CallToolResult and checks its shape.
func (c *copier) result() (out []byte, r reading, err error) {
	if k := c.dec.PeekKind(); k != '{' && k != 0 {
		return nil, r, malformed("its result is %s, not an object", kindName(k))
	}
	content := false
	err = c.object(func(key string) error {
		switch key {
		case "content":
			content = true
			return c.content()
		case "isError":
			k := c.dec.PeekKind()
			if k != 't' && k != 'f' {
				return malformed("isError is %s, not true or false", kindName(k))
			}
			r.isError = k == 't'
		case "structuredContent":
			return c.structured(&r)
		}
		return c.value(key)
	})
	if err != nil {
		return nil, r, err
	}
	if !content {
		return nil, r, malformed("its result has no content")
	}
	out, err = c.end()
	return out, r, err
}

func (c *copier) structured(r *reading) error {
	null := c.dec.PeekKind() == 'n'
	before := int(c.dec.InputOffset())
	if err := c.value(""); err != nil {
		return err
	}
	if !null {
		r.structured = trimColon(c.raw[before:c.dec.InputOffset()])
	}
	return nil
}

// trimColon drops the colon and white space between a name and its value.
func trimColon(b []byte) []byte {
	for len(b) > 0 && (b[0] == ':' || b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

func (c *copier) content() error {
	if k := c.dec.PeekKind(); k != '[' {
		return malformed("content is %s, not an array", kindName(k))
	}
	return c.array(c.block)
}

// block copies one content block. Unknown types pass; they are cleaned like
// any other JSON.
func (c *copier) block(i int) error {
	if k := c.dec.PeekKind(); k != '{' {
		return malformed("content[%d] is %s, not an object", i, kindName(k))
	}
	typed := false
	err := c.object(func(key string) error {
		switch k := c.dec.PeekKind(); {
		case key == "type":
			if k != '"' {
				return malformed("content[%d].type is %s, not a string", i, kindName(k))
			}
			typed = true
		case key == "text" && k != '"':
			return malformed("content[%d].text is %s, not a string", i, kindName(k))
		case key == "data":
			return c.blob()
		case key == "resource" && k == '{':
			return c.object(func(key string) error {
				if key == "blob" {
					return c.blob()
				}
				return c.value(key)
			})
		}
		return c.value(key)
	})
	if err == nil && !typed {
		err = malformed("content[%d] has no type", i)
	}
	return err
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	case '{':
		return "an object"
	}
	return "not valid JSON"
}
