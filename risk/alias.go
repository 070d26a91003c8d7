package risk

import (
	"regexp"
	"strings"
)

// T-SQL needs no semicolon: after  SELECT 1  a new line with DELETE FROM orders
// is a statement of its own. Other dialects read DELETE as the alias of a column
// there, and see a harmless query.

// commandAsAlias returns the first command that stands where an alias could, ""
// if there is none. It is coarse: what it finds raises a read to a write.
func commandAsAlias(text string) string {
	if !commands.MatchString(text) {
		return ""
	}
	before := "select"
	for first := true; ; first = false {
		at := words.FindStringIndex(text)
		if at == nil {
			return ""
		}
		t := text[at[0]:at[1]]
		switch {
		case first && strings.EqualFold(t, "explain"):
			return "" // of a statement
		case t == "/*":
			text = text[at[0]+commentLength(text[at[0]:]):]
			continue
		case strings.HasPrefix(t, "--"):
		case isCommand(t) && ends(before) && !hint.MatchString(text[at[0]:]):
			return strings.ToUpper(t)
		default:
			before = strings.ToLower(t)
		}
		text = text[at[1]:]
	}
}

// commentLength is how long a comment is; comments nest in T-SQL.
func commentLength(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			i++
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

var (
	commands = regexp.MustCompile(`(?i)\b(` + commandWords + `)\b`)
	command  = regexp.MustCompile(`(?i)^(` + commandWords + `)$`)
	words    = regexp.MustCompile(`(?s)--[^\n]*|/\*|'[^']*'|"[^"]*"|` + "`[^`]*`" + `|[\p{L}_@#$][\p{L}\p{N}_@#$]*|[0-9.]+|[^\s]`)
)

// hint is MySQL's way to choose an index.
var hint = regexp.MustCompile(`(?i)^use\s+(index|key)\s*(for\s+[a-z ]+)?\(`)

const commandWords = `alter|backup|bulk|create|dbcc|declare|delete|deny|drop|exec|execute|go|grant|insert|kill|merge|print|raiserror|reconfigure|restore|revoke|shutdown|truncate|update|use|waitfor|xp_\w+|sp_\w+`

func isCommand(t string) bool { return command.MatchString(t) }

// ends tells whether an expression or a table could end with a token.
func ends(t string) bool {
	switch t {
	case "select", "distinct", "all", "from", "where", "and", "or", "not", "on", "by", "having", "join", "in", "like", "between", "case",
		"when", "then", "else", "as", "is", "limit", "offset", "union", "except", "intersect", "using", "for", "show", "explain", "describe",
		"verbose", "analyze", "plan", "table", "format", "ilike", "similar", "to", "over", "filter", "with", "recursive", "begin", ";":
		return false
	}
	c := t[len(t)-1]
	return c == ')' || c == '\'' || c == '"' || c == '`' || c == '*' || c == ']' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 0x80
}
