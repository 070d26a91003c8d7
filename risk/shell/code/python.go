package code

import (
	"regexp"
	"strings"
)

// A pyScan goes through one program.
type pyScan struct {
	tokens []lookToken
	alias  map[string]string // what a name was imported as: module, or module.member
	skip   map[int]bool      // tokens of imports
	used   map[string]bool   // modules
	look   Look
}

func pyLooks(text string) (Look, bool) {
	s := pyScan{alias: map[string]string{}, skip: map[int]bool{}, used: map[string]bool{}}
	if len(text) > 1<<14 || !s.cut(text, 0) || !s.imports() {
		return Look{}, false
	}
	for module := range s.used {
		s.look.Imports = s.look.Imports || !pyInner[module]
	}
	for i := range s.tokens {
		if !s.skip[i] && !s.allowed(i) {
			return Look{}, false
		}
	}
	return s.look, !s.look.Environment || !s.used["platform"] // which runs uname, found by what the environment says
}

func (s *pyScan) at(i int) string {
	if i < 0 || i >= len(s.tokens) || s.tokens[i].kind == 's' {
		return ""
	}
	return s.tokens[i].text
}

func (s *pyScan) is(i int, kind byte) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind == kind
}

// imports reads every import, and where one name stands for another.
func (s *pyScan) imports() bool {
	for i := 0; i < len(s.tokens); i++ {
		if !s.is(i, 'n') || s.at(i-1) == "." {
			continue
		}
		from := i
		switch s.at(i) {
		case "import":
			for {
				module, next := s.dotted(i + 1)
				if i = next; !s.bind(module, "", &i) {
					return false
				}
				if s.at(i) != "," {
					break
				}
			}
		case "from":
			module, next := s.dotted(i + 1)
			if s.at(next) != "import" {
				if s.at(i-1) == "yield" {
					continue
				}
				return false
			}
			i = next
			bracket := s.at(i+1) == "("
			if bracket {
				i++
			}
			for {
				member := s.at(i + 1)
				if i += 2; !s.bind(module, member, &i) {
					return false
				}
				if s.at(i) != "," {
					break
				}
			}
			if bracket {
				if s.at(i) != ")" {
					return false
				}
				i++
			}
		default:
			continue
		}
		for k := from; k < i; k++ {
			s.skip[k] = true
		}
		i--
	}
	return true
}

// dotted reads a.b.c.
func (s *pyScan) dotted(i int) (name string, next int) {
	name = s.at(i)
	for i++; s.at(i) == "." && s.is(i+1, 'n'); i += 2 {
		name += "." + s.at(i+1)
	}
	return name, i
}

// bind notes what is imported, perhaps as another name.
func (s *pyScan) bind(module, member string, i *int) bool {
	what, as := module, module
	if member != "" {
		if !pyModules[module][member] && pyModules[module+"."+member] == nil {
			return false
		}
		what, as = module+"."+member, member
	}
	if s.at(*i) == "as" {
		as = s.at(*i + 1)
		*i += 2
	}
	top, _, dotted := strings.Cut(as, ".")
	known := s.alias[as]
	switch {
	case pyModules[what] == nil && member == "", what == "sys.path", what == "os.environ", what == "os.getenv":
		return false
	case known != "" && known != what, s.alias[top] != "" && s.alias[top] != top && dotted:
		return false // one name for two things: which of them it is depends on what runs
	case dotted && pyModules[as] != nil: // import os.path: os is there, and what of it is known
		s.alias[top] = top
	default:
		s.alias[as] = what
	}
	s.used[module] = true
	if pyModules[what] != nil {
		s.used[what] = true
	}
	return as != "open" && !pyForbids[as]
}

// qualified is the module or the member of one that ends at token i.
func (s *pyScan) qualified(i int) string {
	if s.at(i-1) != "." {
		return s.alias[s.at(i)]
	}
	if before := s.qualified(i - 2); s.is(i-2, 'n') && (pyModules[before] != nil || before != "" && pyPrefix(before)) {
		return before + "." + s.at(i)
	}
	return ""
}

// pyPrefix tells the front of a dotted module, such as xml of xml.etree.ElementTree.
func pyPrefix(name string) bool {
	return name == "xml" || name == "xml.etree" || name == "importlib" || name == "urllib"
}

func (s *pyScan) allowed(i int) bool {
	t := s.tokens[i]
	switch t.kind {
	case 's':
		if len(t.text) < 256 && strings.ContainsAny(t.text, "./") {
			s.look.Reads = append(s.look.Reads, t.text)
		}
		for module := range pyFetch {
			if s.used[module] && (strings.Contains(t.text, "://") || pyCoded.MatchString(t.text)) {
				return false
			}
		}
		return true
	case 'n':
	default:
		return true
	}
	q := s.qualified(i)
	switch {
	case s.at(i-1) == "." && s.is(i-2, 'n') && s.qualified(i-2) != "":
		before := s.qualified(i - 2)
		switch {
		case pyModules[q] != nil || pyPrefix(q):
			return s.at(i+1) == "."
		case pyModules[before] == nil && !pyPrefix(before):
			return s.member(i) // of what a module gave
		}
		return pyModules[before][t.text] && s.given(q, i)
	case s.at(i-1) == "." && !(s.at(i-2) == "." && s.at(i-3) == "."):
		return s.member(i)
	case pyModules[q] != nil || pyPrefix(t.text) && s.alias[t.text] != "":
		return s.at(i+1) == "." // a module itself is handed to nobody
	case q != "":
		return s.given(q, i)
	case t.text == "open":
		return s.opens(i, 1)
	}
	return !pyForbids[t.text] && (!strings.HasPrefix(t.text, "__") || t.text == "__name__")
}

// given judges what a module gives.
func (s *pyScan) given(q string, i int) bool {
	switch {
	case pyOpens[q]:
		return s.opens(i, 1)
	case q == "sys.path":
		return len(s.used) == 1 // else it says where modules come from
	case q == "os.environ", q == "os.getenv":
		s.look.Environment = true
	case q == "inspect.signature": // its other arguments run what annotations say
		a := s.arguments(i + 1)
		return len(a) == 1 && s.at(a[0]) != "*"
	case q == "pandas.set_option":
		a := s.arguments(i + 1)
		return len(a) == 2 && s.is(a[0], 's') && strings.HasPrefix(s.tokens[a[0]].text, "display.") && s.at(a[0]+1) == ","
	case strings.HasPrefix(q, "pandas.read_"), q == "numpy.loadtxt", q == "numpy.genfromtxt": // they take addresses, too
		a := s.arguments(i + 1)
		return len(a) > 0 && s.at(a[0]+1) != "=" && (s.is(a[0], 's') && (s.at(a[0]+1) == "," || s.at(a[0]+1) == ")") || s.qualified(a[0]+2) == "sys.stdin" || s.qualified(a[0]+2) == "io.StringIO")
	}
	return true
}

func (s *pyScan) member(i int) bool {
	name := s.at(i)
	if !pyMembers[name] {
		return false
	}
	switch name {
	case "write", "writelines": // nothing that is open can be written but the output; a document has a write of its own
		return !s.used["xml.etree.ElementTree"]
	case "query":
		return s.at(i+1) != "("
	case "rename":
		return !s.used["pathlib"]
	case "read_text", "read_bytes":
		s.look.Unseen = s.look.Unseen || s.at(i-2) != ")" || !s.is(i-3, 's')
	case "open":
		s.look.Unseen = true
		return s.opens(i, 0)
	case "replace": // of a path it moves a file, by its class even with two arguments
		return !s.used["pathlib"] || s.is(i-2, 's')
	case "format":
		return s.is(i-2, 's') && !pyReaches.MatchString(s.tokens[i-2].text)
	case "to_string", "to_markdown":
		a := s.arguments(i + 1)
		return len(a) == 0 || len(a) == 1 && s.at(a[0]) == "index" && s.at(a[0]+1) == "="
	case "apply", "pipe":
		return s.at(i+1) == "(" && s.at(i+2) == "lambda"
	case "agg":
		return s.at(i+1) == "(" && s.names(i+1)
	case "update", "add", "remove", "insert", "clear", "pop", "discard", "append", "extend":
		return s.at(i-2) != "path" && s.at(i-2) != "environ"
	}
	return true
}

// pyReaches is what str.format reaches into what it is given by.
var pyReaches = regexp.MustCompile(`\{[^}:!]*[.\[]`)

// pyCoded are signs that a text writes as numbers or names, such as the colon of
// an address.
var pyCoded = regexp.MustCompile(`\\[xuUN0-7]`)

var pyMode = regexp.MustCompile(`^[rbtU|:*a-z0-9]*$`)

// opens judges a call that opens a file: to read it, by a mode that is seen. own
// is how many arguments stand before the mode.
func (s *pyScan) opens(i, own int) bool {
	if s.at(i+1) != "(" {
		return false
	}
	for n, a := range s.arguments(i + 1) {
		keyword := s.is(a, 'n') && s.at(a+1) == "="
		switch {
		case s.at(a) == "*":
			return false
		case n < own && !keyword:
			if s.is(a, 's') && (s.at(a+1) == "," || s.at(a+1) == ")") && !strings.ContainsAny(s.tokens[a].text, `\{`) {
				s.look.Reads = append(s.look.Reads, s.tokens[a].text)
			} else {
				s.look.Unseen = true
			}
		case keyword && (s.at(a) == "encoding" || s.at(a) == "newline" || s.at(a) == "errors" || s.at(a) == "buffering"):
		case keyword && s.at(a) != "mode":
			return false
		default:
			if keyword {
				a += 2
			}
			if !s.is(a, 's') || s.at(a+1) != "," && s.at(a+1) != ")" || !strings.HasPrefix(s.tokens[a].text, "r") || !pyMode.MatchString(s.tokens[a].text) {
				if n > 0 || own > 0 || keyword || !s.is(a, 's') || !strings.ContainsAny(s.tokens[a].text, "./") || s.at(a+1) != "," && s.at(a+1) != ")" {
					return false
				} // else it is a member of an archive
			}
		}
	}
	return true
}

// arguments are where the arguments of a call begin whose bracket is token open.
func (s *pyScan) arguments(open int) (starts []int) {
	if s.at(open) != "(" {
		return nil
	}
	depth, fresh := 0, true
	for i := open; i < len(s.tokens); i++ {
		switch t := s.at(i); {
		case t == "(" || t == "[" || t == "{":
			if fresh && depth == 1 {
				starts, fresh = append(starts, i), false
			}
			depth++
		case t == ")" || t == "]" || t == "}":
			if depth--; depth == 0 {
				return starts
			}
		case t == "," && depth == 1:
			fresh = true
		case fresh && depth == 1:
			starts, fresh = append(starts, i), false
		}
	}
	return starts
}

// pyMethods are methods of tables that write, or run what they are given.
var pyMethods = regexp.MustCompile(`^(to_|read_|eval$|query$|pipe$|apply|transform$|agg|map$|plot|hist$|boxplot$|info$|style$|_)|\\|\{`)

// names tells that a call is given texts alone, each the name of what is
// calculated: pandas calls methods by name.
func (s *pyScan) names(open int) bool {
	depth := 0
	for i := open; i < len(s.tokens); i++ {
		switch t := s.at(i); {
		case t == "(" || t == "[" || t == "{":
			depth++
		case t == ")" || t == "]" || t == "}":
			if depth--; depth == 0 {
				return true
			}
		case s.is(i, 's'):
			if v := s.tokens[i].text; pyMethods.MatchString(v) || s.is(i+1, 's') {
				return false
			}
		case t == "," || t == ":" || t == "=":
		case s.is(i, 'n') && s.at(i+1) == "=":
		default:
			return false
		}
	}
	return false
}
