package pgsql

import (
	"strings"
	"unicode"
)

// This file reads a text without parsing it, for what the parser does not tell.

// hidesLine tells whether a line comment holds a character that may end a line
// for another reader, with more than white space behind it.
func hidesLine(s string) bool {
	if !strings.ContainsAny(s, "\v\f\u0085\u2028\u2029") || !strings.Contains(s, "--") {
		return false
	}
	for i := 0; i < len(s); {
		if strings.HasPrefix(s[i:], "--") {
			end := strings.IndexAny(s[i:]+"\n", "\r\n")
			comment := s[i : i+end]
			if j := strings.IndexAny(comment, "\v\f\u0085\u2028\u2029"); j >= 0 && strings.TrimFunc(comment[j:], unicode.IsSpace) != "" {
				return true
			}
			i += end
			continue
		}
		i, _ = skip(s, i)
	}
	return false
}

// ambiguousStrings tells whether some plain string literal has a backslash just
// before a quote, so that a server with standard_conforming_strings off would
// read on where the parser stopped.
func ambiguousStrings(s string) bool {
	if !strings.Contains(s, `\'`) {
		return false
	}
	for i, ambiguous := 0, false; i < len(s); {
		if i, ambiguous = skip(s, i); ambiguous {
			return true
		}
	}
	return false
}

// skip goes past the comment, the quoted text or the character at i, and tells
// whether it was a plain string with a backslash before a quote.
func skip(s string, i int) (next int, ambiguous bool) {
	switch c := s[i]; {
	case c == '-' && strings.HasPrefix(s[i:], "--"):
		return i + strings.IndexAny(s[i:]+"\n", "\r\n"), false
	case c == '/' && strings.HasPrefix(s[i:], "/*"):
		return skipComment(s, i), false
	case c == '"':
		return skipPast(s, i+1, `"`), false
	case c == '$':
		return skipDollar(s, i), false
	case c == '\'':
		escapes := i > 0 && (s[i-1] == 'e' || s[i-1] == 'E') && (i < 2 || !isWord(s[i-2]))
		end, backslash := skipString(s, i+1, escapes)
		return end, backslash && !escapes
	}
	return i + 1, false
}

func skipString(s string, i int, escapes bool) (end int, backslash bool) {
	for i < len(s) {
		switch {
		case escapes && s[i] == '\\':
			i += 2
		case s[i] == '\'':
			if s[i-1] == '\\' {
				backslash = true
			}
			if i+1 >= len(s) || s[i+1] != '\'' {
				return i + 1, backslash
			}
			i += 2
		default:
			i++
		}
	}
	return len(s), backslash
}

func skipComment(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i += 2
		case strings.HasPrefix(s[i:], "*/"):
			i += 2
			if depth--; depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return i
}

func skipDollar(s string, i int) int {
	end := i + 1
	for end < len(s) && isWord(s[end]) {
		end++
	}
	if end >= len(s) || s[end] != '$' || i > 0 && isWord(s[i-1]) {
		return i + 1
	}
	return skipPast(s, end+1, s[i:end+1])
}

func skipPast(s string, i int, mark string) int {
	if i > len(s) {
		return len(s)
	}
	if n := strings.Index(s[i:], mark); n >= 0 {
		return i + n + len(mark)
	}
	return len(s)
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
