// Package word is what is known of the words of a command, and how programs
// read options from them.
package word

import "strings"

// A Word is one word of a command after the shell's expansions, as far as they
// can be told.
type Word struct {
	Text  string // what is known of it; unknown parts are left out
	Known bool   // Text is all of it
	Glob  bool   // it holds a pattern that the shell replaces by file names
	Loose bool   // it could become an option, or several words
	Fresh bool   // it names what the script itself has just made, such as $(mktemp)
}

// Literal says that the word is exactly its text.
func (w Word) Literal() bool { return w.Known && !w.Glob }

// Is says that the word is exactly one of texts.
func (w Word) Is(texts ...string) bool {
	if !w.Literal() {
		return false
	}
	for _, t := range texts {
		if w.Text == t {
			return true
		}
	}
	return false
}

// Option tells whether the word is, or could be, an option.
func (w Word) Option() bool { return w.Loose || len(w.Text) > 1 && w.Text[0] == '-' }

// Set makes a set of words.
func Set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// OnlyHelp tells a command that is only asked what it is.
func OnlyHelp(words []Word) bool {
	return len(words) == 1 && words[0].Is("--version", "--help", "version")
}

// Has tells whether an option stands among words: itself, with a value, or
// among other letters. What is made at run time may be any option.
func Has(words []Word, options ...string) bool {
	for _, w := range words {
		for _, o := range options {
			if w.Loose || w.Text == o || strings.HasPrefix(o, "--") && strings.HasPrefix(w.Text, o+"=") {
				return true
			}
			if len(o) == 2 && o[0] == '-' && o != "--" && len(w.Text) > 2 && w.Text[0] == '-' && w.Text[1] != '-' && strings.Contains(w.Text, o[1:]) {
				return true
			}
		}
	}
	return false
}

// InName tells whether a character can stand in a name of a program's.
func InName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
