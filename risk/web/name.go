package web

import (
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"sallyport.dev/sallyport/redact/lookalike"
)

// OddName says what is odd in the name of a host, in words that follow the name;
// "" if nothing is. The name may be in Unicode or in the form of the DNS.
func OddName(host string) string {
	shown, err := idna.Display.ToUnicode(host)
	if err != nil && !ascii(host) {
		return "is a name that is not allowed"
	}
	for label := range strings.SplitSeq(shown, ".") {
		if why := Mixed(label); why != "" {
			return why
		}
		if like, ok := looksLatin(label); ok {
			return "is written in letters that look like " + like
		}
	}
	return ""
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Mixed says so where one word mixes Latin letters with look-alikes of another
// script.
func Mixed(text string) string {
	for word := range strings.FieldsSeq(text) {
		latin, foreign := false, false
		for _, r := range word {
			switch {
			case unicode.Is(unicode.Latin, r):
				latin = true
				if r == 'ı' || r == 'ɑ' || r == 'ɡ' {
					foreign = true
				}
			case unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee):
				foreign = true
			}
		}
		if latin && foreign {
			return "mixes letters of different scripts that look alike"
		}
	}
	return ""
}

// looksLatin tells what a word looks like if every letter of it is a look-alike.
func looksLatin(word string) (string, bool) {
	var b strings.Builder
	swapped := 0
	for _, r := range word {
		like, ok := lookalike.Latin(r)
		switch {
		case ok:
			b.WriteRune(like)
			swapped++
		case r < 0x80:
			b.WriteRune(r)
		default:
			return "", false
		}
	}
	return b.String(), swapped > 0
}
