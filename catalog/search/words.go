package search

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// words are the different words of a question, in order, without those that say
// nothing.
func words(text string) []string {
	var out []string
	for _, w := range split(text) {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// alike are words that people use for the same. One that stands for another counts
// for less.
var alike = func() map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(`create make add new
delete remove erase destroy drop forget
find search look lookup query
get read show view fetch open display
list show all
update change edit modify set
send post write
mail email message
folder directory dir
repo repository project
pr pull request
mr merge request
issue bug ticket
user person people developer member account contact
image picture photo
screenshot capture snapshot
save store write keep remember
memory knowledge entity fact
relation relate connect link
address location place
weather forecast
database db table sql
run execute evaluate call invoke
start launch begin
stop end kill cancel
copy duplicate clone fork
move rename
download fetch get
upload put push
height high elevation altitude
route direction drive navigate
compress zip gzip archive
money pay payment charge
buy purchase order
calendar event meeting appointment
page site website url
shop store
`) {
		words := split(line)
		for _, w := range words {
			for _, other := range words {
				if other != w && !slices.Contains(out[w], other) {
					out[w] = append(out[w], other)
				}
			}
		}
	}
	return out
}()

// split takes a text apart: at what is no letter or digit, and where a capital
// follows a small letter. Accents and endings go. Of scripts that do not separate
// words each sign is one.
func split(text string) []string {
	var out []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			if w := word.String(); !empty[w] {
				out = append(out, stem(w))
			}
			word.Reset()
		}
	}
	before := ' '
	for _, r := range norm.NFKD.String(text) {
		switch {
		case unicode.Is(unicode.M, r):
			continue
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			end()
			out = append(out, string(r))
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if unicode.IsUpper(r) && unicode.IsLower(before) {
				end()
			}
			word.WriteRune(unicode.ToLower(r))
		default:
			end()
		}
		before = r
	}
	end()
	return out
}

// empty are words that say nothing about a tool.
var empty = set(`a an and any are as at be by can do does for from have how i if in into is it its me my
	of on or our please should so some that the their them then there these this those to us want was we what when where which who will with would you your need use using used`)

func set(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

// stem takes the usual endings of English off, so that files finds file, and
// creating create. What it leaves need not be a word.
func stem(w string) string {
	if len(w) > 4 && strings.HasSuffix(w, "ies") {
		w = w[:len(w)-3] + "y"
	} else if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is") {
		w = w[:len(w)-1]
	}
	for _, ending := range []string{"ing", "ed"} {
		if cut, ok := strings.CutSuffix(w, ending); ok && len(cut) > 2 && strings.ContainsAny(cut, "aeiouy") {
			if n := len(cut); cut[n-1] == cut[n-2] && !strings.ContainsRune("ls", rune(cut[n-1])) {
				cut = cut[:n-1]
			}
			w = cut
			break
		}
	}
	if len(w) > 3 {
		w = strings.TrimSuffix(w, "e")
	}
	return w
}
