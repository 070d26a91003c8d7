// Package code tells the plain code of Python, Node.js, Perl and Ruby that only
// calculates, reads and prints from any other.
package code

// A Look is what a program in a language does that only calculates, reads and
// prints.
type Look struct {
	Reads       []string // files
	Imports     bool     // modules that a file of the same name in the folder would replace
	Environment bool     // is shown, or part of it
	Unseen      bool     // files are read whose names are made at run time
}

// Looks tells whether a program only calculates, reads files that
// it names, and prints. It knows the plain words of few languages, and doubts:
// whatever the words that it knows are combined to, they can do no more.
func Looks(c Call) (Look, bool) {
	switch c.Language {
	case "python":
		return pyLooks(c.Program)
	case "node":
		return jsLooks(c.Program)
	case "perl":
		return perlLooks(c)
	case "ruby":
		return rubyLooks(c)
	}
	return Look{}, false
}

// A lookToken is a piece of a program: n a name, s a text, 0 a number, r a regular
// expression, 0 anything else.
type lookToken struct {
	kind byte
	text string
}
