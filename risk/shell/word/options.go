package word

import (
	"cmp"
	"strings"
)

// Options are those of a program that are known. Each is written with a mark
// that says what follows it and what it does:
//
//	-n           no value            -k=          a value, here or in the next word
//	--color[=    perhaps a value, in the same word only
//	-o>          a value, the name of a file that is written over
//	-f*          makes the program lose something
//	-n^          makes it keep what exists
//	-l%          makes it only print
//	-w~          makes it change something
//	...          any option: they are text to the program
//	safe         no option does harm, so that words may be made at run time
type Options map[string]Kind

// A Kind is what an option does.
type Kind struct {
	Value   bool // has a value, which may be the next word
	Perhaps bool // may have a value in the same word
	Over    bool // the value is a file that is written over
	Loses   bool
	Keeps   bool
	Prints  bool
	Changes bool
}

// ParseOptions reads a list of options as written above.
func ParseOptions(list string) Options {
	o := Options{}
	for _, s := range strings.Fields(list) {
		var k Kind
		name := s
		for {
			cut := true
			switch {
			case strings.HasSuffix(name, "[="):
				k.Perhaps, name = true, name[:len(name)-2]
			case len(name) < 2:
				cut = false
			case strings.HasSuffix(name, "="):
				k.Value, name = true, name[:len(name)-1]
			case strings.HasSuffix(name, ">"):
				k.Value, k.Over, name = true, true, name[:len(name)-1]
			case strings.HasSuffix(name, "*"):
				k.Loses, name = true, name[:len(name)-1]
			case strings.HasSuffix(name, "^"):
				k.Keeps, name = true, name[:len(name)-1]
			case strings.HasSuffix(name, "%"):
				k.Prints, name = true, name[:len(name)-1]
			case strings.HasSuffix(name, "~"):
				k.Changes, name = true, name[:len(name)-1]
			default:
				cut = false
			}
			if !cut {
				break
			}
		}
		o[name] = k
	}
	return o
}

// A Given is one option that a command has.
type Given struct {
	Name  string
	Kind  Kind
	Value Word
}

// A Reading is a command's words, read by the options of its program.
type Reading struct {
	Given []Given
	Rest  []Word
	Bad   string // the first option that is not known, or ""
	Doubt string // the first option that may be the value of the one before it, or ""
}

// Read reads words as GNU programs do, options anywhere; after the first that
// is not known it stops. With first it also stops at the first word that is no
// option, as wrappers do.
func (o Options) Read(words []Word, first bool) Reading {
	var r Reading
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case o.all():
			r.Rest = append(r.Rest, w)
		case w.Loose && o.Safe():
			r.Rest = append(r.Rest, w)
		case w.Loose:
			r.Bad = "one that is made at run time"
			return r
		case w.Known && w.Text == "--":
			r.Rest = append(r.Rest, words[i+1:]...)
			return r
		case !w.Option():
			r.Rest = append(r.Rest, w)
			if first {
				r.Rest = append(r.Rest, words[i+1:]...)
				return r
			}
		default:
			n, from := 0, len(r.Given)
			if strings.HasPrefix(w.Text, "--") || o.whole(w.Text) {
				n = o.long(&r, words[i:])
			} else {
				n = o.short(&r, words[i:])
			}
			if r.Bad != "" {
				return r
			}
			if i > 0 && o.Takes(words[i-1]) {
				r.doubt(w.Text, from)
			}
			i += n
		}
	}
	return r
}

// doubt takes back what lets a command pass of options that may be but a value.
func (r *Reading) doubt(text string, from int) {
	r.Doubt = cmp.Or(r.Doubt, text)
	for i := range r.Given[from:] {
		k := &r.Given[from+i].Kind
		k.Prints, k.Keeps = false, false
	}
}

// Takes tells an option that has its value in the next word, whatever that looks like.
func (o Options) Takes(w Word) bool {
	if !w.Option() || w.Loose {
		return false
	}
	if strings.HasPrefix(w.Text, "--") || o.whole(w.Text) {
		return o[w.Text].Value
	}
	for j := 1; j < len(w.Text); j++ {
		if k := o["-"+w.Text[j:j+1]]; k.Value || k.Perhaps {
			return k.Value && j == len(w.Text)-1
		}
	}
	return false
}

func (o Options) all() bool { _, ok := o["..."]; return ok }

// Safe tells that whatever option is given does no harm.
func (o Options) Safe() bool { _, ok := o["safe"]; return ok || o.all() }

// whole tells -name, as find has it, from -n -a -m -e.
func (o Options) whole(text string) bool {
	name, _, _ := strings.Cut(text, "=")
	_, ok := o[name]
	return ok && len(name) > 2
}

// long reads --name, --name=value or --name value, and says how many words more
// it took.
func (o Options) long(r *Reading, words []Word) int {
	name, value, valued := strings.Cut(words[0].Text, "=")
	k, ok := o[name]
	switch {
	case !ok || valued && !k.Value && !k.Perhaps:
		r.Bad = name
		return 0
	case valued:
		w := words[0]
		w.Text = value
		r.Given = append(r.Given, Given{name, k, w})
		return 0
	case k.Value && len(words) > 1 && valueOf(name, words[1]):
		r.Given = append(r.Given, Given{name, k, words[1]})
		return 1
	}
	r.Given = append(r.Given, Given{Name: name, Kind: k})
	return 0
}

// short reads -abc, and says how many words more it took.
func (o Options) short(r *Reading, words []Word) int {
	letters := words[0].Text[1:]
	for j := 0; j < len(letters); j++ {
		name := "-" + letters[j:j+1]
		k, ok := o[name]
		if !ok && letters[j] >= '0' && letters[j] <= '9' {
			_, ok = o["-#"]
		}
		rest := words[0]
		rest.Text = letters[j+1:]
		switch {
		case !ok:
			r.Bad = name
			return 0
		case k.Value && rest.Text == "" && rest.Known && len(words) > 1 && valueOf(name, words[1]):
			r.Given = append(r.Given, Given{name, k, words[1]})
			return 1
		case k.Value, k.Perhaps && rest.Text != "":
			r.Given = append(r.Given, Given{name, k, rest})
			return 0
		}
		r.Given = append(r.Given, Given{Name: name, Kind: k})
	}
	return 0
}

// valueOf tells whether the next word is an option's value. What looks like an
// option is read as one: a list that serves several programs may say of an
// option that it takes a value where it does not, and that must hide nothing.
// Patterns may look like anything.
func valueOf(name string, next Word) bool {
	return !next.Option() || name == "-e" || !next.Loose && next.Text[1] >= '0' && next.Text[1] <= '9'
}
