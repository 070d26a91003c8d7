package shell

import (
	"mvdan.cc/sh/v3/syntax"

	"sallyport.dev/sallyport/risk/shell/word"
)

// source is a statement as it is written.
func (w *walk) source(s *syntax.Stmt) string {
	from, to := int(s.Pos().Offset()), int(s.End().Offset())
	if from < 0 || to > len(w.text) || from > to {
		return ""
	}
	return w.text[from:to]
}

// makesFresh finds $(mktemp …), which names what did not exist before.
func makesFresh(value *syntax.Word) bool {
	if value == nil || len(value.Parts) != 1 {
		return false
	}
	in := value.Parts[0]
	if q, ok := in.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		in = q.Parts[0]
	}
	sub, ok := in.(*syntax.CmdSubst)
	if !ok || len(sub.Stmts) != 1 || len(sub.Stmts[0].Redirs) > 0 {
		return false
	}
	call, ok := sub.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) == 0 || call.Args[0].Lit() != "mktemp" {
		return false
	}
	for _, a := range call.Args[1:] {
		text, ok := constant(a)
		if !ok || word.Has([]word.Word{{Text: text, Known: true}}, "-u", "--dry-run") {
			return false
		}
	}
	return true
}
