// Package filter tells the awk and sed programs that only change what flows
// through them from those that can run commands or write files.
package filter

import (
	"bytes"
	"regexp"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// awkRuns are the ways of awk to run something, or to read what it is not given.
var awkRuns = regexp.MustCompile(`\bsystem\s*\(|\|&|\bgetline\b|@|\bPROCINFO\b|\bextension\s*\(|\bclose\s*\(`)

var awkPrints = regexp.MustCompile(`\b(?:print|printf)\b`)

// AwkActs tells whether an awk program can run a command or write a file. There
// > and | redirect in print statements, outside of brackets; elsewhere they
// compare.
func AwkActs(program string) bool {
	s, ok := awkBare(program)
	if !ok || awkRuns.MatchString(s) {
		return true
	}
	for _, at := range awkPrints.FindAllStringIndex(s, -1) {
		depth := 0
	statement:
		for i := at[1]; i < len(s); i++ {
			switch s[i] {
			case '(', '[':
				depth++
			case ')', ']':
				depth--
			case ';', '}', '\n':
				if depth <= 0 {
					break statement
				}
			case '>':
				if depth <= 0 {
					return true
				}
			case '|':
				if i+1 < len(s) && s[i+1] == '|' {
					i++
				} else if depth <= 0 {
					return true
				}
			}
		}
	}
	return strings.Contains(strings.ReplaceAll(s, "||", ""), "|")
}

// awkOutputs are where awk may print besides.
var awkOutputs = word.Set(`"/dev/stderr" "/dev/stdout"`)

// awkCounts is i++, behind which / divides, and ++, behind which it may not.
var awkCounts = regexp.MustCompile(`(\+\+|--)[ \t]*$`)

// awkWords are those behind which a pattern stands, and awkHeads those whose
// brackets come first.
var (
	awkWords = word.Set(`print printf return else do in delete exit getline case if while for switch`)
	awkHeads = word.Set(`if while for switch`)
)

// awkBare leaves out strings, regular expressions and comments. It reports
// false where it cannot tell where they end.
func awkBare(s string) (string, bool) {
	var b []byte
	var opened []bool // brackets of if and the like, behind which a pattern may stand
	value := false    // a value stands before: / divides
	wordAt := -1
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"' || c == '/' && !value:
			end := closing(s, i)
			if end < 0 || c == '/' && awkCounts.Match(b) {
				return "", false
			}
			if bare := bytes.TrimRight(b, " \t"); awkOutputs[s[i:end+1]] && bytes.HasSuffix(bare, []byte(">")) && !bytes.HasSuffix(bare, []byte(">>")) {
				b = bare[:len(bare)-1]
			}
			i, value, wordAt = end, true, -1
			b = append(b, " 0 "...)
			continue
		case c == '#':
			for i < len(s) && s[i] != '\n' {
				i++
			}
			b, value, wordAt = append(b, '\n'), false, -1
			continue
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			i++
			continue
		case word.InName(c):
			if wordAt < 0 || !word.InName(s[i-1]) {
				wordAt = i
			}
			value = !awkWords[s[wordAt:i+1]]
			b = append(b, c)
			continue
		case c == '(':
			opened = append(opened, wordAt >= 0 && awkHeads[strings.TrimSpace(s[wordAt:i])])
		case c == ')' && len(opened) > 0 && opened[len(opened)-1]:
			opened, value, wordAt = opened[:len(opened)-1], false, -1
			b = append(b, c)
			continue
		case c == ')' && len(opened) > 0:
			opened = opened[:len(opened)-1]
		}
		if c != ' ' && c != '\t' {
			value, wordAt = c == ')' || c == ']', -1
		}
		b = append(b, c)
	}
	return string(b), true
}

// closing finds the end of a string or a regular expression that begins at i.
func closing(s string, i int) int {
	bracket := false
	for j := i + 1; j < len(s); j++ {
		switch {
		case s[j] == '\\':
			j++
		case s[j] == '\n':
			return -1
		case s[i] == '/' && s[j] == '[' && !bracket:
			bracket = true
		case s[j] == ']' && j > i+2:
			bracket = false
		case s[j] == s[i] && bracket:
			return -1 // awks differ
		case s[j] == s[i]:
			return j
		}
	}
	return -1
}

// SedEdits tells whether every command of a sed script only edits what flows
// through: none reads or writes a file by name, or runs a command.
func SedEdits(script string) bool {
	s := sed{text: script}
	for s.ok() {
		if !s.command() {
			return false
		}
	}
	return true
}

type sed struct {
	text string
	at   int
}

func (s *sed) ok() bool {
	for s.at < len(s.text) && strings.IndexByte(" \t\n;{}", s.text[s.at]) >= 0 {
		s.at++
	}
	return s.at < len(s.text)
}

func (s *sed) next() byte {
	if s.at >= len(s.text) {
		return 0
	}
	s.at++
	return s.text[s.at-1]
}

func (s *sed) peek() byte {
	if s.at >= len(s.text) {
		return 0
	}
	return s.text[s.at]
}

func (s *sed) skip(chars string) {
	for s.at < len(s.text) && strings.IndexByte(chars, s.text[s.at]) >= 0 {
		s.at++
	}
}

// address reads a line, $, /re/, \cREc, or two of them.
func (s *sed) address() bool {
	switch c := s.peek(); {
	case c >= '0' && c <= '9' || c == '$' || c == '+' || c == '~':
		s.skip("0123456789$+~")
	case c == '/':
		s.at++
		if !s.pattern('/') {
			return false
		}
	case c == '\\':
		s.at++
		if d := s.next(); d == 0 || d == '\n' || !s.pattern(d) {
			return false
		}
	}
	s.skip("IM \t")
	if s.peek() == ',' {
		s.at++
		s.skip(" \t")
		return s.address()
	}
	s.skip(" \t!")
	return true
}

// pattern goes behind the delimiter that ends a regular expression. One within
// brackets is refused: seds differ in whether it counts.
func (s *sed) pattern(delimiter byte) bool {
	bracket := false
	for s.at < len(s.text) {
		switch c := s.next(); {
		case c == delimiter:
			return !bracket
		case c == '\\':
			s.at++
		case c == '[' && !bracket:
			bracket = true
			s.skip("^")
			if s.peek() == ']' && delimiter != ']' {
				s.at++
			}
		case c == '[' && (s.peek() == ':' || s.peek() == '.' || s.peek() == '='):
			end := strings.IndexByte(s.text[s.at:], ']')
			if end < 0 {
				return false
			}
			s.at += end + 1
		case c == ']':
			bracket = false
		}
	}
	return false
}

// until goes behind the next delimiter that is not escaped.
func (s *sed) until(delimiter byte) bool {
	for s.at < len(s.text) {
		switch c := s.next(); c {
		case delimiter:
			return true
		case '\\':
			s.at++
		}
	}
	return false
}

func (s *sed) command() bool {
	if !s.address() {
		return false
	}
	switch c := s.next(); c {
	case '{', '}', 'p', 'P', 'd', 'D', 'g', 'G', 'h', 'H', 'x', 'n', 'N', '=', 'z':
	case 'q', 'Q', 'l', 'L':
		s.skip("0123456789 \t")
	case ':', 'b', 't', 'T':
		s.skip(" \t")
		for s.peek() != 0 && strings.IndexByte(" \t;\n}", s.peek()) < 0 {
			s.at++
		}
		return s.ends() // a space ends a label, and another command may follow
	case 'a', 'i', 'c', '#':
		for s.peek() != 0 && s.peek() != '\n' {
			if s.next() == '\\' {
				s.at++
			}
		}
	case 'y':
		d := s.next()
		return d != 0 && s.until(d) && s.until(d) && s.ends()
	case 's':
		d := s.next()
		if d == 0 || d == '\n' || d == '\\' || !s.pattern(d) || !s.until(d) {
			return false
		}
		s.skip("gpiIM0123456789")
		return s.ends()
	default:
		return false
	}
	return true
}

// ends says that nothing but the next command follows.
func (s *sed) ends() bool {
	s.skip(" \t")
	c := s.peek()
	return c == 0 || strings.IndexByte(";\n}#", c) >= 0
}
