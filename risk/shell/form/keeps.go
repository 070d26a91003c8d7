package form

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// undoing are the commands that may take set -C back, or run what does.
var undoing = map[string]bool{"shopt": true, "eval": true, "source": true, ".": true, "trap": true, "builtin": true, "command": true, "enable": true, "alias": true}

// Keeps is where a script has surely run set -C, behind which > makes files and writes over
// none, or 0 if it has not, or if anything in it may take that back.
func Keeps(file *syntax.File) uint {
	doubt := false
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			doubt = doubt || n.Name == nil || n.Name.Value == "set"
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				name := n.Args[0].Lit() // "" where it is quoted or made at run time
				doubt = doubt || name == "" || strings.Contains(name, `\`) || undoing[name] || name == "set" && !only(n.Args[1:])
			}
		}
		return !doubt
	})
	if doubt {
		return 0
	}
	for _, s := range file.Stmts {
		if s.Background || s.Negated || len(s.Redirs) > 0 {
			continue
		}
		s = First(s)
		if call, ok := s.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 1 && call.Args[0].Lit() == "set" && noclobber(call.Args[1:]) {
			return s.End().Offset()
		}
	}
	return 0
}

// only tells options of set of which none is taken back.
func only(words []*syntax.Word) bool {
	for _, w := range words {
		if text := w.Lit(); text == "" || text[0] == '+' || strings.Contains(text, `\`) {
			return false
		}
	}
	return true
}

func noclobber(words []*syntax.Word) bool {
	first := words[0].Lit()
	return len(words) == 1 && strings.HasPrefix(first, "-") && !strings.HasPrefix(first, "--") && strings.Contains(first, "C") ||
		len(words) == 2 && first == "-o" && words[1].Lit() == "noclobber"
}
