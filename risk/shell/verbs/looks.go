package verbs

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"sallyport.dev/sallyport/risk/shell/word"
)

//go:embed looks.txt
var looksText string

// A look is one entry of looks.txt.
type look struct {
	net     bool
	verbs   map[string]bool
	options word.Options
	refused map[string]bool
	needed  []string // one of them must be there; a $ before it says at the end
}

var looks = sync.OnceValue(func() map[string][]look { return parseLooks(looksText) })

func parseLooks(text string) map[string][]look {
	out := map[string][]look{}
	text = strings.ReplaceAll(text, "\n\t", " ")
	for line := range strings.SplitSeq(text, "\n") {
		parts := append(strings.Split(line, "|"), "", "", "", "")
		names := strings.Fields(parts[0])
		if len(names) < 2 || names[0] != "here" && names[0] != "net" {
			continue
		}
		for _, name := range names[1:] {
			out[name] = append(out[name], look{names[0] == "net", word.Set(parts[1]), word.ParseOptions(parts[2]), word.Set(parts[3]), strings.Fields(parts[4])})
		}
	}
	return out
}

// Looks tells a use of a program that only shows something, and whether it asks
// another machine. Of whatever it does not know it reports false.
func Looks(name string, args []word.Word) (net, ok bool) {
	if name == "gh" && len(args) > 1 && args[0].Is("api") && ghAsks(args[1:]) {
		return true, true
	}
	for _, l := range looks()[name] {
		if l.fits(args) {
			return l.net, true
		}
	}
	return false, false
}

func (l look) fits(args []word.Word) bool {
	if slices.ContainsFunc(args, l.refuses) || len(l.needed) > 0 && !slices.ContainsFunc(l.needed, func(n string) bool { return l.has(args, n) }) {
		return false
	}
	if len(args) > 0 && strings.HasPrefix(args[0].Text, "-") && args[0].Literal() {
		if r := l.options.Read(args[1:], false); r.Bad == "" && l.begins(args[0].Text, len(r.Rest)) {
			return true
		}
	}
	r := l.options.Read(args, false)
	switch {
	case r.Bad != "":
		return false
	case l.verbs["*"], len(r.Rest) == 0 && l.verbs["."]:
		return true
	}
	var words []string
	for i, w := range r.Rest[:min(len(r.Rest), longestLook)] {
		if !w.Literal() || strings.HasPrefix(w.Text, "-") { // behind --, an option is no verb
			return false
		}
		words = append(words, w.Text)
		behind := len(r.Rest) - i - 1
		if l.begins(strings.Join(words, "-"), behind) || l.begins(strings.Join(words, "/"), behind) {
			return true
		}
	}
	return false
}

// refuses tells a word that no use of the entry may have: one that may be an
// option, one that the entry names, and an address where nothing is asked elsewhere.
func (l look) refuses(a word.Word) bool {
	if a.Loose || l.refused[a.Text] || !l.net && strings.Contains(a.Text, "://") {
		return true
	}
	for text := range l.refused {
		if part, ok := strings.CutPrefix(text, "~"); ok && (!a.Known || strings.Contains(a.Text, part)) {
			return true
		}
	}
	return false
}

const longestLook = 3 // words of a verb

// begins tells a verb that so many words may stand behind. A verb of the command
// that ends like one of the table is none.
func (l look) begins(verb string, behind int) bool {
	if strings.HasSuffix(verb, ".") || strings.HasSuffix(verb, ":") {
		return false
	}
	return l.verbs[verb] || behind == 0 && l.verbs[verb+"."] || behind <= 1 && l.verbs[verb+":"]
}

// has finds a word that an entry needs, and that is no option's value.
func (l look) has(args []word.Word, needed string) bool {
	if last, ok := strings.CutPrefix(needed, "$"); ok {
		return len(args) > 0 && args[len(args)-1].Is(last)
	}
	for i, a := range args {
		if a.Is(needed) && (i == 0 || !l.options.Takes(args[i-1])) {
			return true
		}
	}
	return false
}
