// Package tar reads what tar is told, in each of its three styles of options.
package tar

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/word"
)

// A Told is what tar is told.
type Told struct {
	Archive word.Word
	Named   bool      // an archive is named
	Folder  word.Word // where it unpacks
	Keeps   bool      // leaves what exists
	Prints  bool      // unpacks to its output
	Deletes []string  // options that delete
	Unknown string    // the first thing that is not known, or ""

	modes string // of t x c r u d, all that are given
}

// Does tells whether any of several modes is given, each a letter.
func (t Told) Does(modes string) bool { return strings.ContainsAny(t.modes, modes) }

// Letters of short options: those that take a value, in old style one after
// the other, and those that take none.
const (
	valued = "fCTXbNHV"
	flags  = "txcrudvzjJaZpkhOWwSmoPlBnsUR"
)

// short is the letter of each long option that is told apart.
var short = map[string]byte{
	"--list": 't', "--extract": 'x', "--get": 'x', "--create": 'c', "--append": 'r', "--update": 'u', "--diff": 'd', "--compare": 'd',
	"--file": 'f', "--directory": 'C',
}

// Read reads the words after tar's name.
func Read(words []word.Word) Told {
	var t Told
	for i := 0; i < len(words) && t.Unknown == ""; i++ {
		w := words[i]
		switch {
		case w.Loose:
			t.Unknown = "a word that is made at run time"
		case strings.HasPrefix(w.Text, "--"):
			i += t.long(words[i:])
		case strings.HasPrefix(w.Text, "-") && len(w.Text) > 1:
			i += t.short(w.Text[1:], words[i:], false)
		case i == 0:
			i += t.short(w.Text, words, true)
		}
	}
	return t
}

// long reads an option with a long name, and says how many words more it took.
func (t *Told) long(words []word.Word) int {
	name, _, _ := strings.Cut(words[0].Text, "=")
	if name == "--delete" || name == "--remove-files" {
		t.Deletes = append(t.Deletes, name)
		return 0
	}
	tar, _ := known.Find("tar:long")
	r := tar.Options.Read(words[:1], false)
	took := 0
	if k := tar.Options[name]; k.Value && !strings.Contains(words[0].Text, "=") && len(words) > 1 {
		r, took = tar.Options.Read(words[:2], false), 1
	}
	if r.Bad != "" {
		t.Unknown = "option " + r.Bad
		return 0
	}
	for _, g := range r.Given {
		t.Keeps, t.Prints = t.Keeps || g.Kind.Keeps, t.Prints || g.Kind.Prints
		t.option(short[g.Name], g.Value)
	}
	return took
}

// short reads letters; each that takes a value finds it in the rest of them or
// in the next word. It says how many words it took.
func (t *Told) short(letters string, words []word.Word, old bool) int {
	took := 0
	for j := 0; j < len(letters); j++ {
		c := letters[j]
		switch {
		case strings.IndexByte(valued, c) >= 0:
			value := word.Word{}
			if !old && j+1 < len(letters) {
				value = words[0]
				value.Text = letters[j+1:]
				t.option(c, value)
				return took
			}
			if took++; took < len(words) {
				value = words[took]
			}
			t.option(c, value)
		case strings.IndexByte(flags, c) >= 0:
			t.Keeps, t.Prints = t.Keeps || c == 'k', t.Prints || c == 'O'
			t.option(c, word.Word{})
		default:
			t.Unknown = "option -" + letters[j:j+1]
			return took
		}
	}
	return took
}

func (t *Told) option(c byte, value word.Word) {
	switch c {
	case 't', 'x', 'c', 'r', 'u', 'd':
		t.modes += string(c)
	case 'f':
		t.Archive, t.Named = value, true
	case 'C':
		t.Folder = value
	}
}
