package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth bounds the nesting of one message. It leaves room for the deepest
// arguments that the path accepts inside an envelope.
const MaxDepth = 144

// Validate reports what is wrong with raw as one strict JSON value, or nil.
func Validate(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")) {
		return errors.New("the text begins with a byte order mark; send plain UTF-8")
	}
	if at := tooDeep(raw); at >= 0 {
		return fmt.Errorf("nested deeper than %d levels (at byte %d)", MaxDepth, at)
	}
	if jsontext.Value(raw).IsValid() {
		return nil
	}
	return explain(raw)
}

// explain finds the reason again, with a decoder that can name it.
func explain(raw []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := d.ReadValue(); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("empty: there is no JSON value")
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("truncated JSON")
		}
		return err
	}
	return fmt.Errorf("data after the JSON value (at byte %d)", d.InputOffset())
}

// tooDeep returns the offset of the first bracket beyond MaxDepth, or -1.
func tooDeep(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1
		case '{', '[':
			if depth++; depth > MaxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the offset after the string that starts at b[i] == '"'.
func skipString(b []byte, i int) int {
	i++
	for from := i; ; {
		n := bytes.IndexByte(b[from:], '"')
		if n < 0 {
			return len(b)
		}
		end, slashes := from+n, 0
		for end-slashes > i && b[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		from = end + 1
	}
}

// skipValue returns the offset after the value that starts at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
	default:
		for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
			i++
		}
		return i
	}
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = skipString(b, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// String decodes a raw JSON string; ok is false for any other value.
func String(raw json.RawMessage) (s string, ok bool) {
	raw = trim(raw)
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	return string(b), err == nil
}

// IsObject reports whether raw is a JSON object.
func IsObject(raw json.RawMessage) bool {
	i := skipSpace(raw, 0)
	return i < len(raw) && raw[i] == '{'
}

// IsNull reports whether raw is null.
func IsNull(raw json.RawMessage) bool { return string(trim(raw)) == "null" }

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		out, _ = jsontext.AppendQuote(dst, string(bytes.ToValidUTF8([]byte(s), []byte("\ufffd"))))
	}
	return out
}

// Quote returns s as a raw JSON string.
func Quote(s string) json.RawMessage { return AppendString(make([]byte, 0, len(s)+2), s) }

func trim(raw []byte) []byte {
	start := skipSpace(raw, 0)
	end := len(raw)
	for end > start && (raw[end-1] == ' ' || raw[end-1] == '\n' || raw[end-1] == '\r' || raw[end-1] == '\t') {
		end--
	}
	return raw[start:end]
}
