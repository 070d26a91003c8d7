package code

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// A Call is a program that an interpreter is given, and what the program is given.
type Call struct {
	Language string
	Program  string
	Isolated bool   // the interpreter takes no modules from the folder
	Loops    bool   // it runs for each line of the files that follow
	Modules  string // that are taken by options
	Rest     []word.Word
}

// plainOptions are those of interpreters that change nothing about what a program
// may do, of one word.
var plainOptions = map[string]*regexp.Regexp{
	"python": regexp.MustCompile(`^-[BEIPsSuqOb]+$|^-W(ignore|default|once|always)$|^-X(importtime|utf8|dev)$`),
	"node":   regexp.MustCompile(`^--(no-warnings|input-type=(module|commonjs)|trace-warnings|unhandled-rejections=strict|experimental-default-type=module)$`),
}

var languageOf = map[string]string{"python3": "python", "python": "python", "node": "node", "nodejs": "node", "perl": "perl", "ruby": "ruby", "php": "php"}

// Given finds the program in the words behind an interpreter's name, or on its
// input. It reports false where it is not seen.
func Given(name string, args []word.Word, stdin string) (c Call, ok bool) {
	c.Language = languageOf[name]
	switch c.Language {
	case "perl", "ruby":
		return c.filter(args)
	case "php":
		if len(args) < 2 || !args[0].Is("-r") || !args[1].Known || slices.ContainsFunc(args[2:], word.Word.Option) {
			return c, false
		}
		c.Program, c.Rest = args[1].Text, args[2:]
		return c, true
	case "":
		return c, false
	}
	for len(args) > 0 && args[0].Literal() && plainOptions[c.Language].MatchString(args[0].Text) {
		c.Isolated = c.Isolated || c.Language == "python" && strings.ContainsAny(args[0].Text, "IP") && args[0].Text[1] != 'W' && args[0].Text[1] != 'X'
		args = args[1:]
	}
	if len(args) > 1 && c.Language == "python" && (args[0].Is("-X") && args[1].Is("importtime", "utf8", "dev") || args[0].Is("-W") && args[1].Is("ignore", "default")) {
		args = args[2:]
	}
	switch {
	case len(args) > 1 && (c.Language == "python" && args[0].Is("-c") || c.Language == "node" && args[0].Is("-e", "-p", "-pe", "--print", "--eval")) && args[1].Known:
		c.Program, c.Rest = args[1].Text, args[2:]
	case len(args) == 0 || args[0].Is("-"):
		c.Program, c.Rest = stdin, args[min(1, len(args)):]
	default:
		return c, false
	}
	if c.Language == "node" && slices.ContainsFunc(c.Rest, word.Word.Option) { // they are node's own
		return c, false
	}
	return c, strings.TrimSpace(c.Program) != ""
}
