// Package form tells what the form of a script says by itself.
package form

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// First is the statement of a && b that surely runs.
func First(s *syntax.Stmt) *syntax.Stmt {
	for range 8 {
		b, ok := s.Cmd.(*syntax.BinaryCmd)
		if !ok || b.Op != syntax.AndStmt && b.Op != syntax.OrStmt || b.X.Background || b.X.Negated || len(b.X.Redirs) > 0 {
			return s
		}
		s = b.X
	}
	return s
}

// Number finds $(seq 1 9), which is a number whatever it is.
func Number(word *syntax.Word) (string, bool) {
	if len(word.Parts) != 1 {
		return "", false
	}
	sub, ok := word.Parts[0].(*syntax.CmdSubst)
	if !ok || len(sub.Stmts) != 1 || len(sub.Stmts[0].Redirs) > 0 || sub.Stmts[0].Negated {
		return "", false
	}
	call, ok := sub.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) < 2 || call.Args[0].Lit() != "seq" {
		return "", false
	}
	for _, a := range call.Args[1:] {
		if text := a.Lit(); text == "" || strings.Trim(text, "0123456789") != "" {
			return "", false
		}
	}
	return "1", true
}

// Empty tells a statement whose input is empty.
func Empty(s *syntax.Stmt) bool {
	for _, r := range s.Redirs {
		if r.Op == syntax.RdrIn && r.Word.Lit() == "/dev/null" && (r.N == nil || r.N.Value == "0") {
			return true
		}
	}
	return false
}
