package redact

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"sallyport.dev/sallyport/redact/encoded"
)

// A copier walks one JSON text and copies it, byte for byte except for the
// strings that work changed: numbers, white space and order stay exact.
type copier struct {
	work  *work
	dec   *jsontext.Decoder
	raw   []byte
	out   []byte // nil while nothing has changed
	last  int    // raw[:last] is in out
	names map[string]int
	check bool // only look at the shape, change nothing
}

func newCopier(raw []byte, w *work) *copier {
	return &copier{
		work: w, raw: raw,
		// Half an emoji (\ud83d) is what many servers send when they cut a text;
		// it is repaired, not refused. Duplicate names are refused.
		dec: jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true)),
	}
}

// document copies one whole JSON text.
func (c *copier) document() ([]byte, error) {
	if err := c.value(""); err != nil {
		return nil, err
	}
	return c.end()
}

// end checks that nothing follows and returns the copy.
func (c *copier) end() ([]byte, error) {
	if _, err := c.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("more data after the value")
		}
		return nil, err
	}
	if c.out == nil {
		return c.raw, nil
	}
	out := append(c.out, c.raw[c.last:]...)
	if c.names != nil && !jsontext.Value(out).IsValid() {
		return nil, errors.New("two names are the same once cleaned")
	}
	return out, nil
}

// value copies any value; key is the name it has in its object, if any.
func (c *copier) value(key string) error {
	switch c.dec.PeekKind() {
	case '"':
		return c.str(key)
	case '{':
		return c.object(c.value)
	case '[':
		return c.array(func(int) error { return c.value("") })
	default:
		_, err := c.dec.ReadValue()
		return err
	}
}

// object copies an object, each member's value by member.
func (c *copier) object(member func(key string) error) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for c.dec.PeekKind() != '}' {
		key, err := c.name()
		if err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

// array copies an array, each element by element.
func (c *copier) array(element func(i int) error) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; c.dec.PeekKind() != ']'; i++ {
		if err := element(i); err != nil {
			return err
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

// next reads a string and returns it decoded, with its place in raw.
func (c *copier) next() (s string, start, end int, repaired bool, err error) {
	v, err := c.dec.ReadValue()
	if err != nil {
		return "", 0, 0, false, err
	}
	if v.Kind() != '"' {
		return "", 0, 0, false, fmt.Errorf("a %s where a string is due", v.Kind())
	}
	end = int(c.dec.InputOffset())
	start = end - len(v)
	if bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
		return string(v[1 : len(v)-1]), start, end, false, nil
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), start, end, err != nil, nil
}

func (c *copier) name() (string, error) {
	s, start, end, repaired, err := c.next()
	if err != nil || c.check {
		return s, err
	}
	clean := c.work.clean(s)
	if clean == s && !repaired {
		return s, nil
	}
	// Two names may come out the same: number the later ones.
	if c.names == nil {
		c.names = map[string]int{}
	}
	c.names[clean]++
	if n := c.names[clean]; n > 1 {
		clean += " (" + strconv.Itoa(n) + ")"
	}
	c.replace(start, end, clean, repaired)
	return s, nil
}

func (c *copier) str(key string) error {
	s, start, end, repaired, err := c.next()
	if err != nil || c.check {
		return err
	}
	shown := s
	if links := c.work.links; links != nil && key != "url" && key != "uri" { // an address is followed as it is, or not at all
		shown = links(s)
	}
	if clean := c.work.field(key, shown); clean != s || repaired {
		c.replace(start, end, clean, repaired)
	}
	return nil
}

// minBlob is the shortest base64 that blob takes for binary data.
const minBlob = 1024

// blob copies binary data. What it holds is read if it is text, and put back as
// base64 once cleaned; what is not plainly base64 is text itself.
func (c *copier) blob() error {
	if c.dec.PeekKind() != '"' {
		return c.value("")
	}
	s, start, end, repaired, err := c.next()
	if err != nil || c.check {
		return err
	}
	if text, err := base64.StdEncoding.DecodeString(s); err == nil && len(text) > 0 && utf8.Valid(text) {
		if clean := c.work.masked(string(text)); clean != string(text) {
			c.replace(start, end, base64.StdEncoding.EncodeToString([]byte(clean)), repaired)
		}
		return nil
	}
	if len(s) >= minBlob && plainBase64(s) {
		return nil
	}
	if clean := c.work.clean(s); clean != s || repaired {
		c.replace(start, end, clean, repaired)
	}
	return nil
}

// masked is clean for bytes that are not shown as they are: secrets go, and
// nothing is made visible.
func (w *work) masked(s string) string {
	show := w.show
	w.show = false
	defer func() { w.show = show }()
	return w.clean(s)
}

func plainBase64(s string) bool {
	for i := range len(s) {
		if c := s[i]; c == '_' || c == '-' || !encoded.Base64Byte(c) && (c != '=' || i < len(s)-2) {
			return false
		}
	}
	return true
}

func (c *copier) replace(start, end int, s string, repaired bool) {
	if c.out == nil {
		c.out = make([]byte, 0, len(c.raw)+64)
	}
	c.work.tally.repaired = c.work.tally.repaired || repaired
	c.out = append(c.out, c.raw[c.last:start]...)
	c.out = quote(c.out, s)
	c.last = end
}

// quote appends s as a JSON string.
func quote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error only says that invalid UTF-8 was replaced
	return dst
}
