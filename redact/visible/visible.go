// Package visible makes what hides in text visible: terminal escapes, control
// characters, bidirectional controls, zero-width characters, tag characters
// and the abuse of variation selectors. It is a leaf that links nothing heavy,
// so the command line, logs and approval prompts can use it.
//
// Clean text comes back unchanged, byte for byte. Emoji families, flags and
// the joiners of Arabic, Persian and Indic scripts are clean.
package visible

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Kind says why a character must not be shown as it is.
type Kind uint8

// The kinds of hidden character.
const (
	None      Kind = iota
	Control        // C0 except tab and newline, DEL, C1: terminal escapes begin with these
	Bidi           // reorders the text around it
	ZeroWidth      // takes no room: joiners, fillers, soft hyphens, byte order marks
	Tag            // U+E0000 block: a hidden copy of ASCII
	Variation      // a selector that selects nothing, or one of many in a row
	Broken         // a byte that is not UTF-8
	kinds
)

// Counts tells how many characters of each Kind were made visible.
type Counts [kinds]int

var names = [kinds]string{
	"", "terminal control", "bidi control", "zero-width character", "tag character", "variation selector", "invalid UTF-8",
}

// String names the kind for a person.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return names[k]
}

// Any reports whether anything was counted.
func (c Counts) Any() bool { return c != Counts{} }

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	for i, n := range o {
		c[i] += n
	}
}

// String returns s fit for a terminal, a log line or a prompt: newline and tab
// stay, every other hidden character is shown: ESC as ␛, U+200B as \u{200b},
// a byte that is not UTF-8 as \x{ff}.
func String(s string) string {
	out, _ := show(s, false)
	return out
}

// Text is String for data rather than for a terminal: a carriage return that
// stands before a newline is a line ending and stays.
func Text(s string) (string, Counts) { return show(s, true) }

// JSON returns a JSON text with every hidden character in it written as a \u
// escape: the same value, fit for a terminal.
func JSON(s string) string {
	i := index(s, false)
	if i < 0 {
		return s
	}
	var b strings.Builder
	last := 0
	for i < len(s) {
		r, size, kind := At(s, i)
		if kind != None {
			b.WriteString(s[last:i])
			last = i + size
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
		i = plain(s, i+size)
	}
	b.WriteString(s[last:])
	return b.String()
}

// Index returns the place of the first character that Text would show, or -1.
func Index(s string) int { return index(s, true) }

func index(s string, crlf bool) int {
	for i := plain(s, 0); i < len(s); {
		_, size, kind := At(s, i)
		if kind != None && !(crlf && LineEnd(s, i)) {
			return i
		}
		i = plain(s, i+size)
	}
	return -1
}

func show(s string, crlf bool) (string, Counts) {
	i := index(s, crlf)
	if i < 0 {
		return s, Counts{}
	}
	return rewrite(s, i, crlf)
}

// rewrite does the work of show for a text whose first hidden character is at
// byte i.
func rewrite(s string, i int, crlf bool) (string, Counts) {
	var (
		n    Counts
		b    strings.Builder
		last int
	)
	b.Grow(len(s) + 16)
	for i < len(s) {
		r, size, kind := At(s, i)
		if kind != None && !(crlf && LineEnd(s, i)) {
			n[kind]++
			b.WriteString(s[last:i])
			escape(&b, s[i], r, kind)
			last = i + size
		}
		i = plain(s, i+size)
	}
	b.WriteString(s[last:])
	return b.String(), n
}

// LineEnd reports whether the byte at i is the first of a CR LF pair.
func LineEnd(s string, i int) bool {
	return s[i] == '\r' && i+1 < len(s) && s[i+1] == '\n'
}

// plain returns the index of the first byte from i on that may need a look.
func plain(s string, i int) int {
	for ; i < len(s); i++ {
		if c := s[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return i
		}
	}
	return i
}

func escape(b *strings.Builder, c byte, r rune, kind Kind) {
	switch {
	case kind == Broken:
		fmt.Fprintf(b, `\x{%02x}`, c)
	case r < ' ':
		b.WriteRune('\u2400' + r)
	case r == 0x7f:
		b.WriteRune('\u2421')
	default:
		fmt.Fprintf(b, `\u{%x}`, r)
	}
}

// At decodes the rune at byte i of s and says whether it hides something. The
// verdict looks at what stands around it, so that a joiner inside an emoji or
// a Persian word is None.
func At(s string, i int) (rune, int, Kind) {
	c := s[i]
	if c < utf8.RuneSelf {
		if c == 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return rune(c), 1, Control
		}
		return rune(c), 1, None
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size == 1 {
		return r, 1, Broken
	}
	kind := class(r)
	if kind != None && kind != Control && kind != Bidi && inContext(s, i, size, r) {
		kind = None
	}
	return r, size, kind
}
