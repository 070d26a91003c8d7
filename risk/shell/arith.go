package shell

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bash evaluates more than what is written as a substitution: where it reads a
// number or the name of a variable, the text a[$(rm x)] runs rm, though it was
// quoted. So a script that has such a place, and such a text anywhere in it, is
// not what it seems, however the two come together.

// evaluators are the commands whose arguments bash reads as names or numbers.
var evaluators = set(`test [ let unset read printf wait getopts mapfile readarray declare typeset local export readonly`)

var index = regexp.MustCompile(`[A-Za-z_]\w*\[`)

func (w *walk) arithmetic(file *syntax.File) {
	evaluates, indexes, substitutes := false, false, false
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.CStyleLoop, *syntax.LetClause, *syntax.TestClause, *syntax.DeclClause:
			evaluates = true
		case *syntax.ParamExp:
			evaluates = evaluates || n.Index != nil || n.Slice != nil
		case *syntax.Assign:
			evaluates = evaluates || n.Index != nil
		case *syntax.CallExpr:
			evaluates = evaluates || len(n.Args) > 0 && evaluators[plain(n.Args[0])]
		case *syntax.Word:
			text := plain(n)
			indexes = indexes || index.MatchString(text)
			substitutes = substitutes || strings.Contains(text, "$(") || strings.Contains(text, "`")
		}
		return true
	})
	if evaluates && indexes && substitutes {
		w.unknown("a quoted text holds a command, and bash may run it where it reads a name or a number")
	}
}

// plain is what is known of a word without running it: what is quoted or
// escaped in it counts, real substitutions do not.
func plain(word *syntax.Word) string {
	text, _ := constant(word)
	return text
}
