package wire

import (
	"bytes"
	"encoding/json"
)

// ParseAnswer is ParseMessage of what a server says, which is read as far as it can be.
// Half a character of UTF-16, which servers leave that cut texts, becomes U+FFFD. Of a
// result, what is nested too deep is left out, and elements of its lists that are no
// strict JSON; the message then is marked as Pruned.
func ParseAnswer(raw []byte) (Message, error) {
	m, err := ParseMessage(raw)
	if err == nil {
		return m, nil
	}
	raw = whole(raw)
	if m, again := ParseMessage(raw); again == nil {
		return m, nil
	}
	if p, again := ParseMessage(salvage(prune(raw))); again == nil && p.Result != nil {
		p.Pruned = err
		return p, nil
	}
	return m, err
}

const leftOut = `"left out: nested too deep, or not strict JSON"`

// prune returns JSON without what is nested deeper than MaxDepth: a text that says so
// stands in its place. It returns raw itself where nothing is.
func prune(raw []byte) []byte {
	if tooDeep(raw) < 0 {
		return raw
	}
	out, done, depth := make([]byte, 0, len(raw)), 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = skipString(raw, i) - 1
		case '{', '[':
			if depth++; depth > MaxDepth {
				out = append(append(out, raw[done:i]...), leftOut...)
				done = skipValue(raw, i)
				i, depth = done-1, depth-1
			}
		case '}', ']':
			depth--
		}
	}
	return append(out, raw[done:]...)
}

// salvage returns a message in which elements of lists of its result that are not valid
// by themselves are left out.
func salvage(raw []byte) []byte {
	result := Member(raw, "result")
	for name, list := range Members(result) {
		out, changed := []byte{'['}, false
		for element := range Elements(list) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			if Validate(element) != nil {
				element, changed = json.RawMessage(leftOut), true
			}
			out = append(out, element...)
		}
		if !changed {
			continue
		}
		if mended, err := SetPath(raw, append(out, ']'), "result", string(name)); err == nil {
			raw = mended
		}
	}
	return raw
}

// whole replaces escapes that are half a pair of surrogates, which stand for nothing.
func whole(raw []byte) []byte {
	out := raw
	for i := 0; i+5 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		u, ok := unit(raw[i:])
		switch {
		case !ok || u < 0xd800 || u > 0xdfff:
			i++ // what is escaped is no backslash of its own
			continue
		case u < 0xdc00 && i+6 < len(raw):
			if low, ok := unit(raw[i+6:]); ok && low >= 0xdc00 && low <= 0xdfff {
				i += 11
				continue
			}
		}
		if len(out) > 0 && &out[0] == &raw[0] {
			out = bytes.Clone(raw)
		}
		copy(out[i:], `\ufffd`)
		i += 5
	}
	return out
}

// unit reads an escape of four hexadecimal digits.
func unit(b []byte) (u int, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			u = u<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			u = u<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			u = u<<4 | int(c-'A'+10)
		default:
			return 0, false
		}
	}
	return u, true
}
