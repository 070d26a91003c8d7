package code

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// A jsScan goes through one program of JavaScript.
type jsScan struct {
	text   string
	tokens []lookToken
	alias  map[string]string // what a name stands for: module, or module.member
	bound  map[string]bool   // names that the program gives to values of its own
	skip   map[int]bool      // tokens that are read already
	look   Look
}

func (s *jsScan) at(i int) string {
	if i < 0 || i >= len(s.tokens) || s.tokens[i].kind == 's' || s.tokens[i].kind == 'r' {
		return ""
	}
	return s.tokens[i].text
}

func (s *jsScan) is(i int, kind byte) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind == kind
}

// cut makes tokens from i on, up to the bracket that closes the code within a
// text. It reports false for what it cannot read for sure.
func (s *jsScan) cut(i int, within bool) (end int, ok bool) {
	depth := 0
	for i < len(s.text) {
		c, rest := s.text[i], s.text[i:]
		switch {
		case strings.HasPrefix(rest, "<!--"), strings.HasPrefix(rest, "-->"):
			return 0, false // comments, to some
		case strings.HasPrefix(rest, "//"):
			line, _, _ := strings.Cut(rest, "\n")
			if strings.ContainsFunc(line, func(r rune) bool { return r > 0x7e }) {
				return 0, false // lines may end in other ways
			}
			i += len(line)
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest, "*/")
			if n < 2 {
				return 0, false
			}
			i += n + 2
		case c == '\'' || c == '"':
			n := quotedEnd(s.text, i)
			if n < 0 {
				return 0, false
			}
			s.tokens = append(s.tokens, lookToken{'s', s.text[i+1 : n]})
			i = n + 1
		case c == '`':
			if i, ok = s.template(i); !ok {
				return 0, false
			}
		case c == '/':
			switch n, known := s.expression(i); {
			case !known:
				return 0, false
			case n < 0: // divides
				s.tokens = append(s.tokens, lookToken{0, "/"})
				i++
			default:
				s.tokens = append(s.tokens, lookToken{'r', s.text[i : n+1]})
				for i = n + 1; i < len(s.text) && word.InName(s.text[i]); i++ {
				}
			}
		case (word.InName(c) || c == '$') && (c < '0' || c > '9'):
			from := i
			for i < len(s.text) && (word.InName(s.text[i]) || s.text[i] == '$') {
				i++
			}
			s.tokens = append(s.tokens, lookToken{'n', s.text[from:i]})
		case c >= '0' && c <= '9':
			for i < len(s.text) && (word.InName(s.text[i]) || s.text[i] == '.' && i+1 < len(s.text) && s.text[i+1] >= '0' && s.text[i+1] <= '9') {
				i++
			}
			s.tokens = append(s.tokens, lookToken{'0', "0"})
		case strings.IndexByte(" \t\n", c) >= 0:
			i++
		case c == '}' && within && depth == 0:
			return i, true
		case strings.IndexByte("()[]{}<>=!+-*%,.:;&|^~?", c) >= 0:
			if c == '{' {
				depth++
			} else if c == '}' {
				depth--
			}
			s.tokens = append(s.tokens, lookToken{0, string(c)})
			i++
		default: // \, #, @, and what is not ASCII
			return 0, false
		}
	}
	return i, !within
}

// quotedEnd is where a text of one line that begins at i ends, or -1.
func quotedEnd(text string, i int) int {
	for j := i + 1; j < len(text); j++ {
		switch text[j] {
		case '\\':
			j++
		case '\n', '\r':
			return -1
		case text[i]:
			return j
		}
	}
	return -1
}

// template reads `text ${code} text`.
func (s *jsScan) template(i int) (end int, ok bool) {
	s.tokens = append(s.tokens, lookToken{'s', ""}, lookToken{0, "+"}, lookToken{0, "("})
	if n := len(s.tokens); n > 3 && (s.is(n-4, 'n') && !jsOperators[s.at(n-4)] || s.at(n-4) == ")" || s.at(n-4) == "]") {
		return 0, false // a function is given the text
	}
	for i++; i < len(s.text); i++ {
		switch {
		case s.text[i] == '\\':
			i++
		case s.text[i] == '`':
			s.tokens = append(s.tokens, lookToken{'s', ""}, lookToken{0, ")"})
			return i + 1, true
		case strings.HasPrefix(s.text[i:], "${"):
			s.tokens = append(s.tokens, lookToken{0, "("})
			if i, ok = s.cut(i+2, true); !ok {
				return 0, false
			}
			s.tokens = append(s.tokens, lookToken{0, ")"}, lookToken{0, "+"})
		}
	}
	return 0, false
}

// expression tells where a regular expression that begins at i ends, -1 if the
// sign divides, and whether that is known.
func (s *jsScan) expression(i int) (end int, known bool) {
	n := len(s.tokens) - 1
	switch before := s.at(n); {
	case n < 0:
	case before == ")" && s.called(n):
		return -1, true
	case before == ")" || before == "}", s.is(n, 'r'), before == "+" && s.at(n-1) == "+", before == "-" && s.at(n-1) == "-":
		return 0, false
	case before == "]", s.is(n, 's'), s.is(n, '0'), s.is(n, 'n') && !jsOperators[before]:
		return -1, true
	}
	class := false
	for j := i + 1; j < len(s.text); j++ {
		switch c := s.text[j]; {
		case c == '\\':
			j++
		case c == '\n' || c > 0x7e:
			return 0, false
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			return j, true
		}
	}
	return 0, false
}

// called tells that the bracket that ends at token n is that of a call.
func (s *jsScan) called(n int) bool {
	depth := 0
	for i := n; i >= 0; i-- {
		switch s.at(i) {
		case ")":
			depth++
		case "(":
			if depth--; depth == 0 {
				return s.is(i-1, 'n') && !jsWords[s.at(i-1)] || s.at(i-1) == ")" && s.called(i-1)
			}
		}
	}
	return false
}
