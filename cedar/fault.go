package cedar

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What the parser of policies says, and where.
var (
	parsePosition = regexp.MustCompile(`<input>:(\d+):(\d+)`)
	parseNear     = regexp.MustCompile(`(?s)^parse error ("(?:[^"\\]|\\.)*"): (.*)$`)
	parseGot      = regexp.MustCompile(`(?s)^(?:exact )?got (.*) want (.*)$`)
)

// lastToken is what stands before a place: the parser complains of a token that
// it has passed.
var lastToken = regexp.MustCompile(`([A-Za-z0-9_]+|[^\s])\s*$`)

// expectations are the parser's words for what it wants, in ours.
var expectations = []struct{ says, means string }{
	{"expected ident or reserved keyword", "a name"}, {"expected ident or string", "a name or a text in quotes"},
	{"expected ident", "a name"}, {"expected string", "a text in quotes"},
	{"invalid primary", "a value, such as context.risk.level or true"}, {"unexpected effect", "permit or forbid"},
}

// parseProblem finds the position in a parser's error, and says in plain words
// what stands there, what should, and what to do.
func (l *loader) parseProblem(name string, text []byte, err error) Problem {
	p := Problem{File: l.path(name), Line: 1, Column: 1, Hint: "look at this place, and at what stands before it; docs/policies.md and the starter policies show how policies are written"}
	msg := err.Error()
	if m := parsePosition.FindStringSubmatch(msg); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Column, _ = strconv.Atoi(m[2])
		msg = strings.Replace(msg, " at "+m[0], "", 1)
		msg = strings.Replace(msg, m[0]+": ", "", 1)
	}
	p.Message = strings.TrimPrefix(msg, "parser error: ")
	m := parseNear.FindStringSubmatch(p.Message)
	if m == nil {
		if strings.Contains(p.Message, "literal not terminated") {
			p.Message, p.Hint = "a text in quotes does not end on its line", `close it with "`
		}
		return p
	}
	near, _ := strconv.Unquote(m[1])
	p.say(string(text), near, m[2])
	return p
}

// say words what the parser says of the token near, where p is.
func (p *Problem) say(text, near, says string) {
	wants := ""
	if m := parseGot.FindStringSubmatch(says); m != nil {
		if near != m[1] { // it has gone past what it complains about
			p.back(text, m[1])
		}
		near, wants = m[1], strconv.Quote(m[2])
	}
	for _, e := range expectations {
		if wants == "" && strings.HasPrefix(says, e.says) {
			if wants = e.means; near != "" {
				near = lastToken.FindString(text[:p.offset(text)])
				p.back(text, near)
			}
		}
	}
	near = strings.TrimSpace(near)
	switch {
	case near == "" && wants != "":
		p.Message = fmt.Sprintf("the file ends where %s should stand", wants)
	case near == "":
		p.Message = "the file ends in the middle of a policy"
	case wants != "":
		p.Message = fmt.Sprintf("%.60q stands where %s should stand", near, wants)
	case says == "unexpected token":
		p.Message = fmt.Sprintf("%.60q does not belong here", near)
	default:
		p.Message = fmt.Sprintf("%s, at %.60q", says, near)
	}
	if near == "" {
		p.Hint = "was the file cut short? Each policy ends with a semicolon, and each bracket and quote is closed"
	}
}

// offset is where p is in the text, in bytes.
func (p *Problem) offset(text string) int {
	at := 0
	for i, line := range strings.SplitAfter(text, "\n") {
		if i == p.Line-1 {
			runes := []rune(line)
			return at + len(string(runes[:min(len(runes), p.Column-1)]))
		}
		at += len(line)
	}
	return len(text)
}

// back moves p to the last place before it where token stands.
func (p *Problem) back(text, token string) {
	i := strings.LastIndex(text[:p.offset(text)], strings.TrimSpace(token))
	if token == "" || i < 0 {
		return
	}
	before := text[:i]
	p.Line, p.Column = 1+strings.Count(before, "\n"), 1+len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
}
