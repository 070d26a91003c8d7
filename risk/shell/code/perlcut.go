package code

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// term tells that a value ends before what follows, so that a sign is an operator.
func (s *perlScan) term() bool {
	n := len(s.tokens) - 1
	if n < 0 {
		return false
	}
	switch t := s.tokens[n]; t.kind {
	case 'v', 's', '0', 'r':
		return true
	case 'n':
		return !perlOperators[t.text] && !perlCalls[t.text]
	default:
		return t.text == ")" || t.text == "]" || t.text == "}" && s.element(n)
	}
}

// element tells that the } at token n ends what is taken from a table, and no block.
func (s *perlScan) element(n int) bool {
	for depth := 0; n >= 0; n-- {
		switch s.at(n) {
		case "}":
			depth++
		case "{":
			if depth--; depth == 0 {
				return s.is(n-1, 'v') || s.is(n-1, 'd') || s.at(n-1) == "]" || s.at(n-1) == ">" && s.at(n-2) == "-" || s.at(n-1) == "}" && s.element(n-1)
			}
		}
	}
	return false
}

// handle tells that what stands before place i may be where print writes, so that
// a sign that no space follows begins a text.
func (s *perlScan) handle(i int) bool {
	n := len(s.tokens) - 1
	return s.is(n, 'v') && s.is(n-1, 'n') && i > 0 && strings.IndexByte(" \t\n", s.text[i-1]) >= 0 && i+1 < len(s.text) && s.text[i+1] != ' '
}

func (s *perlScan) add(kind byte, text string) { s.tokens = append(s.tokens, lookToken{kind, text}) }

func (s *perlScan) cut() bool {
	for i := 0; i < len(s.text); {
		c := s.text[i]
		next := i + 1
		ok := true
		switch {
		case strings.IndexByte(" \t\n", c) >= 0:
		case c == '#':
			for next < len(s.text) && s.text[next] != '\n' {
				next++
			}
		case c == '$' || c == '@':
			next, ok = s.variable(i)
		case c == '%' && !s.term():
			next, ok = s.variable(i)
		case c == '\'':
			next, ok = s.quoted(i, 's', false)
		case c == '"':
			next, ok = s.quoted(i, 's', true)
		case (c == '/' || c == '<') && s.handle(i), c == '/' && s.at(len(s.tokens)-1) == "}":
			return false
		case c == '/' && !s.term():
			if n := len(s.tokens) - 1; s.is(n, 'n') && !perlOperators[s.at(n)] {
				return false // a call without arguments, which it may divide
			}
			next, ok = s.quoted(i, 'r', true)
			for next < len(s.text) && s.text[next] >= 'a' && s.text[next] <= 'z' {
				next++
			}
		case word.InName(c) && (c < '0' || c > '9'):
			next, ok = s.name(i)
		case c >= '0' && c <= '9':
			for next < len(s.text) && (word.InName(s.text[next]) || s.text[next] == '.' && next+1 < len(s.text) && s.text[next+1] != '.') {
				next++
			}
			s.add('0', "0")
		case c == '<' && !s.term():
			next, ok = s.input(i)
		case c == '&' && !strings.HasPrefix(s.text[i:], "&&"), c == '*' && !s.term(), c == '`':
			return false
		case c == '&':
			next++
			s.add(0, "&&")
		case c == '\\' && next < len(s.text) && strings.IndexByte("$@%", s.text[next]) < 0:
			return false
		case strings.IndexByte("()[]{}<>=!+-*,.:;|^~?%/\\", c) >= 0:
			s.add(0, string(c))
		default:
			return false
		}
		if !ok {
			return false
		}
		i = next
	}
	return true
}

// variable reads $x, @x, %x, $1, $_ and the like.
func (s *perlScan) variable(i int) (int, bool) {
	sigil := s.text[i : i+1]
	j := i + 1
	if strings.HasPrefix(s.text[j:], "#") && sigil == "$" {
		j++
	}
	if j >= len(s.text) {
		return 0, false
	}
	switch c := s.text[j]; {
	case c == '$' && j+1 < len(s.text) && word.InName(s.text[j+1]), c == '{' && j+1 < len(s.text) && s.text[j+1] == '$':
		s.add('d', sigil)
		return j, true
	case word.InName(c):
		from := j
		for j < len(s.text) && word.InName(s.text[j]) {
			j++
		}
		if j < len(s.text) && (s.text[j] == '\'' || strings.HasPrefix(s.text[j:], "::")) {
			return 0, false
		}
		s.add('v', sigil+s.text[from:j])
		return j, true
	case sigil == "$" && j == i+1 && strings.IndexByte(perlSpecials, c) >= 0:
		s.add('v', s.text[i:j+1])
		return j + 1, true
	}
	return 0, false
}

// quoted reads a text between two marks.
func (s *perlScan) quoted(i int, kind byte, replaces bool) (int, bool) {
	end := perlEnd(s.text, i)
	if end < 0 {
		return 0, false
	}
	inner := s.text[i+1 : end]
	s.add(kind, inner)
	s.look.Environment = s.look.Environment || replaces && strings.Contains(inner, "ENV")
	return end + 1, !replaces || perlFlat(inner)
}

// perlEnd is where a text ends that begins with the mark at i.
func perlEnd(text string, i int) int {
	opens, closes, depth := text[i], text[i], 0
	if c, ok := perlDelimiters[opens]; ok {
		closes = c
	}
	for j := i + 1; j < len(text); j++ {
		switch c := text[j]; {
		case c == '\\':
			j++
		case c == closes && depth == 0:
			return j
		case c == closes:
			depth--
		case c == opens:
			depth++
		}
	}
	return -1
}

// input reads <> and <STDIN>.
func (s *perlScan) input(i int) (int, bool) {
	for _, form := range []string{"<STDIN>", "<>"} {
		if strings.HasPrefix(s.text[i:], form) {
			s.argv = s.argv || form == "<>"
			s.add('v', form)
			return i + len(form), true
		}
	}
	return 0, false
}

var perlQuotes = word.Set(`q qq qw qr m s tr y`)

func (s *perlScan) name(i int) (int, bool) {
	j := i
	for j < len(s.text) && (word.InName(s.text[j]) || strings.HasPrefix(s.text[j:], "::") || j > i && s.text[j] == ':' && s.text[j-1] == ':') {
		j++
	}
	name := s.text[i:j]
	if j < len(s.text) && s.text[j] == '\'' {
		return 0, false
	}
	if !perlQuotes[name] || s.at(len(s.tokens)-1) == "{" && strings.HasPrefix(s.text[j:], "}") {
		s.add('n', name)
		return j, true
	}
	if j >= len(s.text) || strings.IndexByte("/{([!|~^", s.text[j]) < 0 {
		return 0, false
	}
	end := perlEnd(s.text, j)
	if end < 0 {
		return 0, false
	}
	first, second := s.text[j+1:end], ""
	next := end + 1
	if name == "s" || name == "tr" || name == "y" {
		from := end
		if _, bracket := perlDelimiters[s.text[j]]; bracket {
			if from = end + 1; from >= len(s.text) || perlDelimiters[s.text[from]] == 0 {
				return 0, false
			}
		}
		if end = perlEnd(s.text, from); end < 0 {
			return 0, false
		}
		second, next = s.text[from+1:end], end+1
	}
	flags := next
	for next < len(s.text) && s.text[next] >= 'a' && s.text[next] <= 'z' {
		next++
	}
	s.add('r', first)
	return next, s.substitutes(name, first, second, s.text[flags:next])
}
