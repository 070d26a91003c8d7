// Package known finds secrets that are known by their value: as they are, in the
// encodings that programs write values in, over ends of lines, and where the
// texts of one document cut them.
package known

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A Secret is a value that must not be told.
type Secret struct{ Name, Value string }

// Min is the length in bytes of a secret that is searched for; a shorter one
// would be found everywhere.
const Min = 8

// A Hit is what was found, and how it is to be called.
type Hit struct {
	Start, End int
	Name       string
}

// A form is a known secret as it is written in one encoding, without ends of
// lines: whoever wraps it does not hide it.
type form struct {
	text, name string
	base64     bool
}

// formsOf are the encodings in which a known secret is masked wherever it
// stands. What else a program can do to a value has no end; see the threat model.
func formsOf(k Secret) (all []form) {
	name := "stored secret " + k.Name
	add := func(how, text string) {
		text = strings.NewReplacer("\r", "", "\n", "").Replace(text)
		if len(text) >= Min && !slices.ContainsFunc(all, func(f form) bool { return f.text == text }) {
			all = append(all, form{text, how + name, how == "base64 of "})
		}
	}
	v := k.Value
	add("", v)
	for offset := range 3 { // of the value in what was encoded with it
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := e.EncodeToString([]byte(strings.Repeat("\x00", offset) + v))
			first := (offset*8 + 5) / 6 // what its neighbours have no part in
			last := (offset + len(v)) * 8 / 6
			add("base64 of ", text[first:last])
		}
	}
	lower := hex.EncodeToString([]byte(v))
	add("hex of ", lower)
	add("hex of ", strings.ToUpper(lower))
	for _, f := range []struct{ how, format string }{
		{"escaped ", `\x%02x`}, {"escaped ", `\x%02X`}, {"escaped ", `\u%04x`}, {"escaped ", `\u%04X`}, {"escaped ", `\%03o`}, {"hex of ", "%02x "}, {"hex of ", "%02X:"}, {"hex of ", "%02x:"},
		{"percent-encoded ", "%%%02x"}, {"percent-encoded ", "%%%02X"},
		{"HTML of ", "&#%d;"}, {"HTML of ", "&#x%x;"}, {"HTML of ", "&#x%X;"}, {"HTML of ", "&#X%X;"}, {"HTML of ", "&#%03d;"}, {"HTML of ", "&#x%04x;"},
	} {
		add(f.how, strings.TrimRight(each(v, f.format), " :"))
	}
	add("percent-encoded ", url.QueryEscape(v))
	add("percent-encoded ", url.PathEscape(v))
	add("HTML of ", html.EscapeString(v))
	add("rot13 of ", strings.Map(rot13, v))
	add("reversed ", reversed(v))
	add("upper case of ", strings.ToUpper(v))
	body := quoted(v)
	add("escaped ", body)
	add("escaped ", strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(body))
	add("escaped ", quoted(body))
	return all
}

// quoted is v as it stands in a JSON text.
func quoted(v string) string {
	b, err := jsontext.AppendQuote(nil, v)
	if err != nil {
		return v // not UTF-8: JSON cannot hold it
	}
	return string(b[1 : len(b)-1])
}

func each(v, format string) string {
	var b strings.Builder
	for i := range len(v) {
		fmt.Fprintf(&b, format, v[i])
	}
	return b.String()
}

func rot13(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return 'a' + (r-'a'+13)%26
	case r >= 'A' && r <= 'Z':
		return 'A' + (r-'A'+13)%26
	}
	return r
}

func reversed(s string) string {
	b := make([]byte, 0, len(s))
	for len(s) > 0 {
		_, n := utf8.DecodeLastRuneInString(s)
		b = append(b, s[len(s)-n:]...)
		s = s[:len(s)-n]
	}
	return string(b)
}

const headSize = 4 // bytes by which forms are found

// An Index finds many forms in one pass over a text.
type Index struct {
	heads [1 << 10]uint64 // a bit for each hash of a head
	forms map[uint32][]form
}

func bit(head uint32) uint32 { return head * 0x9e3779b1 >> 16 }

func newIndex(known []Secret) *Index {
	x := &Index{forms: map[uint32][]form{}}
	for _, k := range known {
		if len(k.Value) < Min {
			continue
		}
		for _, f := range formsOf(k) {
			h := binary.BigEndian.Uint32([]byte(f.text[:headSize]))
			x.forms[h] = append(x.forms[h], f)
			x.heads[bit(h)/64] |= 1 << (bit(h) % 64)
		}
	}
	return x
}

// Find finds the forms in s, whose ends of lines are not looked at. A nil index
// finds nothing.
func (x *Index) Find(s string) (hits []Hit) {
	if x == nil || len(x.forms) == 0 {
		return nil
	}
	var head uint32
	var starts [headSize]int // of the last bytes that are no end of a line
	for i, n := 0, 0; i < len(s); i++ {
		if s[i] == '\n' || s[i] == '\r' {
			continue
		}
		head = head<<8 | uint32(s[i])
		starts[n%headSize] = i
		if n++; n < headSize || x.heads[bit(head)/64]&(1<<(bit(head)%64)) == 0 {
			continue
		}
		for _, f := range x.forms[head] {
			if end := match(s, i+1, f.text[headSize:]); end > 0 {
				hits = append(hits, f.hit(s, starts[n%headSize], end))
			}
		}
	}
	return hits
}

// match returns the end of text at s[i:], over ends of lines, or 0.
func match(s string, i int, text string) int {
	for j := 0; j < len(text); i++ {
		switch {
		case i >= len(s):
			return 0
		case s[i] == text[j]:
			j++
		case s[i] != '\n' && s[i] != '\r':
			return 0
		}
	}
	return i
}

// hit takes in the characters that a base64 form shares with its neighbours.
func (f form) hit(s string, start, end int) Hit {
	if f.base64 {
		for range 2 {
			if start > 0 && base64Char(s[start-1]) {
				start--
			}
			if end < len(s) && (base64Char(s[end]) || s[end] == '=') {
				end++
			}
		}
	}
	return Hit{start, end, f.name}
}

func base64Char(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}

// A Cache keeps the index of the secrets that there were last.
type Cache struct {
	mu    sync.Mutex
	known []Secret
	index *Index
}

// Of returns the index of some secrets.
func (c *Cache) Of(known []Secret) *Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.index == nil || !slices.Equal(c.known, known) {
		c.known, c.index = slices.Clone(known), newIndex(known)
	}
	return c.index
}
