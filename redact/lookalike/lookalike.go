// Package lookalike tells which names a reader, a person or a model, could take
// for one another: letters of other scripts, case, separators, one letter more
// or less. It knows names, not who owns them.
package lookalike

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// latin are letters of other scripts that pass for Latin ones, in Cyrillic,
// Greek, Armenian and Cherokee, small letters only. (Unicode TR39, the lines of
// confusables.txt with a Latin letter on the right)
var latin = map[rune]rune{
	'а': 'a', 'с': 'c', 'е': 'e', 'о': 'o', 'р': 'p', 'х': 'x', 'у': 'y', 'і': 'i', 'ј': 'j', 'ѕ': 's', 'ԁ': 'd', 'һ': 'h', 'ӏ': 'l', 'ԛ': 'q', 'ԝ': 'w',
	'ь': 'b', 'п': 'n', 'г': 'r', 'т': 't', 'к': 'k', 'м': 'm', 'в': 'b', 'н': 'h', 'ѵ': 'v', 'ү': 'y', 'ё': 'e', 'ї': 'i',
	'α': 'a', 'ο': 'o', 'ν': 'v', 'ρ': 'p', 'τ': 't', 'υ': 'u', 'ι': 'i', 'κ': 'k', 'χ': 'x', 'ω': 'w', 'ε': 'e', 'η': 'n', 'γ': 'y', 'σ': 'o',
	'օ': 'o', 'ս': 'u', 'հ': 'h', 'զ': 'q', 'ց': 'g', 'ո': 'n', 'յ': 'j',
	'ı': 'i', 'ɑ': 'a', 'ɡ': 'g', 'ⅼ': 'l', 'ｌ': 'l', 'ɩ': 'i', 'ʏ': 'y', 'ᴏ': 'o', 'ꜱ': 's', 'ᴄ': 'c', 'ᴠ': 'v', 'ᴡ': 'w', 'ᴢ': 'z',
}

// capitals are those that look like another letter than their small ones do.
var capitals = map[rune]rune{'Η': 'h', 'Ν': 'n', 'Υ': 'y', 'Β': 'b', 'Ζ': 'z', 'Μ': 'm', 'Ս': 'u', 'Տ': 's', 'Լ': 'l'}

// Latin returns the Latin letter that r passes for, a small one.
func Latin(r rune) (rune, bool) {
	if like, ok := capitals[r]; ok {
		return like, true
	}
	like, ok := latin[unicode.ToLower(r)]
	return like, ok
}

// Skeleton is what is left of a name for who reads in haste: no case, no
// separators, no accents, one letter for those that look alike. Names with one
// skeleton can be taken for one another.
func Skeleton(name string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(name) {
		if like, ok := Latin(r); ok {
			r = like
		}
		if like, ok := strokes[unicode.ToLower(r)]; ok {
			r = like
		}
		switch r = unicode.ToLower(r); {
		case r == 'i' || r == '1' || r == '|' || r == '!':
			r = 'l'
		case r == '0':
			r = 'o'
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			continue
		}
		b.WriteRune(r)
	}
	return strings.NewReplacer("rn", "m", "vv", "w").Replace(b.String())
}

// strokes are letters with a stroke or a hook, which no normal form takes off.
var strokes = map[rune]rune{
	'ø': 'o', 'ł': 'l', 'đ': 'd', 'ħ': 'h', 'ŧ': 't', 'ƀ': 'b', 'ɇ': 'e', 'ɨ': 'i', 'ɉ': 'j', 'ɍ': 'r', 'ɏ': 'y', 'ƒ': 'f', 'ɓ': 'b', 'ɗ': 'd', 'ɠ': 'g',
	'ƙ': 'k', 'ɱ': 'm', 'ɲ': 'n', 'ƥ': 'p', 'ƭ': 't', 'ʋ': 'v', 'ȥ': 'z',
}

// Read is a text as a reader takes it who notices no letter of another script.
func Read(text string) string {
	if ascii(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if like, ok := Latin(r); ok {
			return like
		}
		return r
	}, norm.NFKC.String(text))
}

// Disguised says so where a name is written so that it reads as another: "" if
// it is what it looks like. The words follow the name.
func Disguised(name string) string {
	if ascii(name) {
		return ""
	}
	if !norm.NFC.IsNormalString(name) {
		return "is written with loose accents, so that two names can look the same"
	}
	if plain := norm.NFKC.String(name); plain != name && ascii(plain) {
		return "is written in letters that look like " + plain
	}
	read, swapped, whole := "", false, true
	hasLatin, hasOther := false, false
	for _, r := range name {
		if unicode.Is(unicode.M, r) {
			return "has accents that belong to no letter of their own"
		}
		if like, ok := Latin(r); ok {
			read, swapped = read+string(like), true
		} else if r < 0x80 {
			read += string(r)
		} else {
			whole = false
		}
		hasLatin = hasLatin || unicode.Is(unicode.Latin, r)
		hasOther = hasOther || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee)
	}
	switch {
	case swapped && whole:
		return "is written in letters that look like " + read
	case hasLatin && hasOther:
		return "mixes letters of different scripts that look alike"
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

// minNear is the length from which one letter more or less goes unnoticed.
const minNear = 6

// Near reports whether two skeletons differ in one letter, missing, added,
// replaced or changed places with its neighbour. A plural and a number are
// differences that names are meant to have.
func Near(a, b string) bool {
	x, y := []rune(a), []rune(b)
	if len(x) > len(y) {
		x, y = y, x
	}
	if len(x) < minNear || len(y)-len(x) > 1 || a == b {
		return false
	}
	i := 0
	for i < len(x) && x[i] == y[i] {
		i++
	}
	if len(x) < len(y) {
		plural := i == len(x) && y[i] == 's'
		return !plural && !unicode.IsDigit(y[i]) && string(x[i:]) == string(y[i+1:])
	}
	if unicode.IsDigit(x[i]) && unicode.IsDigit(y[i]) {
		return false
	}
	if string(x[i+1:]) == string(y[i+1:]) {
		return true
	}
	return i+1 < len(x) && x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:])
}

// Neighbours are the keys under which every skeleton Near this one can be found:
// the skeleton itself, and it without one of its letters.
func Neighbours(skeleton string) []string {
	letters := []rune(skeleton)
	out := []string{skeleton}
	if len(letters) < minNear {
		return out
	}
	for i := range letters {
		out = append(out, string(letters[:i])+string(letters[i+1:]))
	}
	return out
}

// A Name belongs to somebody, and can be read alone or with its owner's.
type Name struct{ Owner, Short, Whole string }

// Pairs tells for each name which names of other owners, at most max, it can be
// taken for.
func Pairs(names []Name, max int) [][]int {
	short, whole := make([]string, len(names)), make([]string, len(names))
	near, same := map[string][]int{}, map[string][]int{}
	for i, n := range names {
		short[i], whole[i] = Skeleton(n.Short), Skeleton(n.Whole)
		same[whole[i]] = append(same[whole[i]], i)
		for _, key := range Neighbours(short[i]) {
			near[key] = append(near[key], i)
		}
	}
	out := make([][]int, len(names))
	for i, n := range names {
		add := func(others []int, close bool) {
			for _, j := range others {
				if len(out[i]) == max {
					return
				}
				fits := close || short[i] != "" && short[i] == short[j] || Near(short[i], short[j])
				if fits && names[j].Owner != n.Owner && !slices.Contains(out[i], j) {
					out[i] = append(out[i], j)
				}
			}
		}
		for _, key := range Neighbours(short[i]) {
			add(near[key], false)
		}
		add(same[whole[i]], true)
	}
	return out
}
