package code

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// cut makes tokens of Python. It reports false for what it cannot read for sure:
// names that are not ASCII, lines that are joined, decorators.
func (s *pyScan) cut(text string, depth int) bool {
	if strings.ContainsAny(text, "\r\f\v\x00") || depth > 4 {
		return false
	}
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '#':
			comment, _, more := strings.Cut(text[i:], "\n")
			if strings.Contains(comment, "coding") || depth > 0 { // in other letters the text is another
				return false
			}
			if !more {
				return true
			}
			i += len(comment)
		case c == '\'' || c == '"':
			end, ok := s.text(text, i, "", depth)
			if !ok {
				return false
			}
			i = end
		case word.InName(c) && (c < '0' || c > '9'):
			from := i
			for i < len(text) && word.InName(text[i]) {
				i++
			}
			name := text[from:i]
			if i < len(text) && (text[i] == '\'' || text[i] == '"') {
				end, ok := s.text(text, i, strings.ToLower(name), depth)
				if !ok {
					return false
				}
				i = end
				continue
			}
			s.tokens = append(s.tokens, lookToken{'n', name})
		case c >= '0' && c <= '9':
			for i < len(text) && (word.InName(text[i]) || text[i] == '.' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9') {
				i++ // a point before anything but a digit may begin a member: 1..x
			}
			s.tokens = append(s.tokens, lookToken{0, "0"})
		case strings.IndexByte(" \t\n", c) >= 0:
			i++
		case strings.IndexByte("()[]{}<>=!+-*%,.:;&|^~/", c) >= 0:
			s.tokens = append(s.tokens, lookToken{0, string(c)})
			i++
		default: // `, \, @, $, and what is not ASCII
			return false
		}
	}
	return true
}

// pyPrefixes may stand before a text, and say what it is.
var pyPrefixes = map[string]bool{"": true, "b": true, "r": true, "u": true, "f": true, "rb": true, "br": true, "rf": true, "fr": true}

// text reads a text that begins at i, and says where it ends.
func (s *pyScan) text(text string, i int, prefix string, depth int) (end int, ok bool) {
	if !pyPrefixes[prefix] {
		return 0, false // a name right before a text
	}
	quote := text[i : i+1]
	if strings.HasPrefix(text[i:], quote+quote+quote) {
		quote += quote + quote
	}
	for j := i + len(quote); j < len(text); j++ {
		switch {
		case text[j] == '\\':
			j++
		case text[j] == '\n' && len(quote) == 1:
			return 0, false
		case strings.HasPrefix(text[j:], quote):
			inner := text[i+len(quote) : j]
			s.tokens = append(s.tokens, lookToken{'s', inner})
			if strings.Contains(prefix, "f") && !s.formatted(inner, depth) {
				return 0, false
			}
			return j + len(quote), true
		}
	}
	return 0, false
}

// formatted reads the code within an f"…": every {…} is an expression, perhaps
// with how it is shown behind it.
func (s *pyScan) formatted(text string, depth int) bool {
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "{{") || strings.HasPrefix(text[i:], "}}"):
			i++
		case text[i] == '}':
			return false
		case text[i] == '{':
			level, end, shown := 0, -1, -1
			for j := i + 1; j < len(text) && end < 0; j++ {
				switch c := text[j]; {
				case c == '\\' || c == '#' || c == '\n':
					return false
				case c == '(' || c == '[' || c == '{':
					level++
				case c == '}' && level == 0:
					end = j
				case c == ')' || c == ']' || c == '}':
					level--
				case (c == ':' || c == '!' && j+1 < len(text) && text[j+1] != '=') && level == 0 && shown < 0:
					shown = j
				}
			}
			if end < 0 {
				return false
			}
			code, spec := text[i+1:end], ""
			if shown >= 0 {
				code, spec = text[i+1:shown], text[shown:end]
			}
			s.tokens = append(s.tokens, lookToken{0, "("})
			if !s.cut(strings.TrimSuffix(strings.TrimSpace(code), "="), depth+1) || !s.formatted(spec, depth+1) {
				return false
			}
			s.tokens = append(s.tokens, lookToken{0, ")"})
			i = end
		}
	}
	return true
}
