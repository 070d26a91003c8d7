package mysql

import "strings"

// A statement is the tokens between two semicolons.
type statement []token

func (s statement) start() int { return s[0].start }

func (s statement) end() int { return s[len(s)-1].end }

// statements cuts a reading at its semicolons; empty statements are left out.
func (r reading) statements() []statement {
	var out []statement
	from := 0
	for i, t := range r.tokens {
		if t.op(";") {
			if i > from {
				out = append(out, r.tokens[from:i])
			}
			from = i + 1
		}
	}
	if from < len(r.tokens) {
		out = append(out, r.tokens[from:])
	}
	return out
}

// canonical is the reading as text that has one meaning whatever the mode.
func (r reading) canonical() string {
	var b strings.Builder
	for _, s := range r.statements() {
		b.WriteString(s.canonical())
		b.WriteString(";\n")
	}
	b.WriteString(r.broken)
	return b.String()
}

// canonical writes a statement without comments, its strings in single quotes
// with both escapes, its quoted names in backquotes.
func (s statement) canonical() string {
	var b strings.Builder
	for i, t := range s {
		if i > 0 && (t.spaced || glued(s[i-1], t) || i > 1 && t.kind == text && s[i-2].op("@")) {
			b.WriteByte(' ')
		}
		switch {
		case t.kind == text && i > 0 && s[i-1].op("@") && !t.spaced, t.kind == name, t.kind == word && !isASCII(t.value):
			b.WriteString("`" + strings.ReplaceAll(t.value, "`", "``") + "`")
		case t.kind == text:
			b.WriteString("'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(t.value) + "'")
		default:
			b.WriteString(t.value)
		}
	}
	return b.String()
}

// glued tells whether two tokens would be read as something else if nothing
// stood between them.
func glued(a, b token) bool {
	if a.kind == operator && b.kind == operator {
		switch a.value + b.value {
		case "--", "//", "/*", "*/", "->", "<>", "<=>", ">=", "!=", ":=":
			return true
		}
		return false
	}
	return a.kind != operator && b.kind != operator && !prefixes(a, b)
}

// prefixes tells whether a belongs to the string behind it: x'4d', n'a', _utf8'a'.
func prefixes(a, b token) bool {
	return a.kind == word && b.kind == text && !b.spaced
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// asUnion writes UNION for EXCEPT and INTERSECT.
func (s statement) asUnion() statement {
	out := make(statement, len(s))
	for i, t := range s {
		if t.is("except") || t.is("intersect") {
			t.value = "union"
		}
		out[i] = t
	}
	return out
}

// has tells whether the keywords stand one after the other somewhere.
func (s statement) has(keywords ...string) bool {
	for i := 0; i+len(keywords) <= len(s); i++ {
		all := true
		for j, k := range keywords {
			all = all && s[i+j].is(k)
		}
		if all {
			return true
		}
	}
	return false
}

func (s statement) hasOp(op string) bool {
	for _, t := range s {
		if t.op(op) {
			return true
		}
	}
	return false
}

// apart finds a function that has a space before its parenthesis. Unless the
// server ignores such spaces, it is then a stored function of that name.
func (s statement) apart() (string, bool) {
	for i := 1; i < len(s); i++ {
		if s[i].op("(") && s[i].spaced && s[i-1].kind == word && tight[strings.ToLower(s[i-1].value)] {
			return s[i-1].value, true
		}
	}
	return "", false
}

// tight are the functions that are built in only if the parenthesis follows at once.
var tight = set(`adddate bit_and bit_or bit_xor cast count curdate curtime date_add date_sub extract group_concat max mid min now
	position session_user std stddev stddev_pop stddev_samp subdate substr substring sum sysdate system_user trim variance var_pop
	var_samp`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
