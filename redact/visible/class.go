package visible

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// class is the verdict on a rune by itself. The list is Unicode's
// Default_Ignorable_Code_Point with the controls, the separators that break
// lines behind one's back and the interlinear annotations.
func class(r rune) Kind {
	switch {
	case r < 0xa0:
		if r >= 0x80 {
			return Control
		}
		return None
	case r < 0x2000:
		switch r {
		case 0xad, 0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180e:
			return ZeroWidth
		case 0x61c:
			return Bidi
		case 0x180b, 0x180c, 0x180d, 0x180f:
			return Variation
		}
		return None
	case r < 0x2070:
		switch {
		case r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return Bidi
		case r >= 0x200b && r <= 0x200d, r == 0x2028, r == 0x2029, r >= 0x2060:
			return ZeroWidth
		}
		return None
	case r < 0xfe00:
		if r == 0x3164 || r >= 0xfdd0 && r <= 0xfdef {
			return ZeroWidth
		}
		return None
	case r <= 0xfe0f:
		return Variation
	case r < 0x10000:
		if r == 0xfeff || r == 0xffa0 || r >= 0xfff0 && r <= 0xfffb || r >= 0xfffe {
			return ZeroWidth
		}
		return None
	case r >= 0xe0100 && r <= 0xe01ef:
		return Variation
	case r >= 0xe0000 && r <= 0xe0fff:
		return Tag
	case r == 0x1d159, r >= 0x1d173 && r <= 0x1d17a, r >= 0x1bca0 && r <= 0x1bca3, r >= 0x13430 && r <= 0x1343f, r&0xfffe == 0xfffe:
		return ZeroWidth
	}
	return None
}

// inContext reports whether an otherwise hidden rune does its proper work.
func inContext(s string, i, size int, r rune) bool {
	prev, prevSize := utf8.DecodeLastRuneInString(s[:i])
	if prevSize == 0 {
		return false
	}
	next, _ := utf8.DecodeRuneInString(s[i+size:])
	switch {
	case r == 0x200d: // zero width joiner
		return pictograph(base(s[:i])) && pictograph(next) || joins(prev) && (joins(next) || !hidden(next))
	case r == 0x200c: // zero width non-joiner
		return joins(prev) && joins(next)
	case r == 0xfe0e || r == 0xfe0f:
		return pictograph(prev) || keycap(prev) || unicode.In(prev, unicode.Han)
	case r >= 0xe0100 && r <= 0xe01ef || r >= 0xfe00 && r <= 0xfe02:
		return unicode.In(prev, unicode.Han)
	case r >= 0x180b && r <= 0x180f && r != 0x180e:
		return unicode.In(prev, unicode.Mongolian) && !hidden(prev)
	case r >= 0x13430 && r <= 0x1343f: // how hieroglyphs are grouped
		return unicode.In(prev, unicode.Egyptian_Hieroglyphs)
	case r >= 0xe0020 && r <= 0xe007f:
		return inFlag(s, i)
	}
	return false
}

func hidden(r rune) bool { return r == utf8.RuneError || class(r) != None || r < ' ' }

// base is the last rune of s that is not a variation selector or a skin tone.
func base(s string) rune {
	for range 2 {
		r, size := utf8.DecodeLastRuneInString(s)
		if r != 0xfe0f && (r < 0x1f3fb || r > 0x1f3ff) {
			return r
		}
		s = s[:len(s)-size]
	}
	r, _ := utf8.DecodeLastRuneInString(s)
	return r
}

func keycap(r rune) bool { return r >= '0' && r <= '9' || r == '#' || r == '*' }

// pictograph covers the blocks in which emoji live, and the odd ones outside.
func pictograph(r rune) bool {
	switch {
	case r >= 0x1f000 && r <= 0x1faff, r >= 0x2600 && r <= 0x27bf, r >= 0x2190 && r <= 0x21ff,
		r >= 0x2300 && r <= 0x23ff, r >= 0x2460 && r <= 0x25ff, r >= 0x2900 && r <= 0x297f,
		r >= 0x2b00 && r <= 0x2bff:
		return true
	}
	switch r {
	case 0xa9, 0xae, 0x203c, 0x2049, 0x2122, 0x2139, 0x3030, 0x303d, 0x3297, 0x3299:
		return true
	}
	return false
}

// joins reports whether letters of r's script take joiners.
func joins(r rune) bool {
	return r > 0x5ff && !hidden(r) && unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mandaic,
		unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil,
		unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Tibetan, unicode.Myanmar,
		unicode.Khmer, unicode.Mongolian)
}

// The three flags that Unicode recommends for interchange. Any other run of
// tags is a hidden message.
var flags = [...]string{"gbeng", "gbsct", "gbwls"}

const (
	blackFlag = "\U0001f3f4"
	maxFlag   = 5*4 + 4 // tags of a flag and the one that ends it, in bytes
)

// inFlag reports whether the tag at i belongs to one of the known flags.
func inFlag(s string, i int) bool {
	from := max(0, i-maxFlag-len(blackFlag))
	at := strings.LastIndex(s[from:i], blackFlag)
	if at < 0 {
		return false
	}
	at += from + len(blackFlag)
	for _, f := range flags {
		end := at
		ok := true
		for j := 0; j <= len(f) && ok; j++ {
			want := rune(0xe007f)
			if j < len(f) {
				want = 0xe0000 + rune(f[j])
			}
			r, size := utf8.DecodeRuneInString(s[end:])
			ok = r == want
			end += size
		}
		if ok && i < end {
			return true
		}
	}
	return false
}
