package shell

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"sallyport.dev/sallyport/risk/shell/form"
)

const (
	maxRounds = 128 // of all loops of a text
	maxItems  = 24  // of one loop
)

// loop judges a loop over words that are all known: once for each of them. It
// reports false for any other, which is judged with the name standing for anything.
func (w *walk) loop(f *syntax.ForClause) bool {
	in, ok := f.Loop.(*syntax.WordIter)
	if !ok || f.Select || in.Name == nil || w.vars[in.Name.Value].times != 1 || w.evals() {
		return false
	}
	name, items := in.Name.Value, []string{}
	for _, item := range in.Items {
		for _, a := range w.expand(item) {
			if n, ok := form.Number(item); ok {
				a = arg{Text: n, Known: true}
			}
			if !a.Literal() || len(items) == maxItems {
				return false
			}
			items = append(items, a.Text)
		}
	}
	if w.rounds += len(items); len(items) == 0 || w.rounds > maxRounds {
		return false
	}
	outer := w.vars[name]
	for _, value := range items {
		w.vars[name] = variable{times: 1, value: value, known: true, from: f.Loop.End().Offset()}
		for _, s := range f.Do {
			w.visit(s)
		}
	}
	w.vars[name] = outer
	return true
}

// evals tells that a text may set variables by other words than those that show.
func (w *walk) evals() bool {
	for _, word := range []string{"eval", "source", "trap", "declare", "typeset", "local", ". "} {
		if strings.Contains(w.text, word) {
			return true
		}
	}
	return false
}

// echoes finds what echo or printf prints into the command behind a pipe, where
// that is seen.
func echoes(file *syntax.File) map[*syntax.Stmt]string {
	out := map[*syntax.Stmt]string{}
	syntax.Walk(file, func(n syntax.Node) bool {
		pipe, ok := n.(*syntax.BinaryCmd)
		if !ok || pipe.Op != syntax.Pipe {
			return true
		}
		call, ok := pipe.X.Cmd.(*syntax.CallExpr)
		if ok && len(pipe.X.Redirs) == 1 && len(call.Assigns) == 0 && len(call.Args) == 1 && call.Args[0].Lit() == "cat" {
			out[pipe.Y] = heredoc(pipe.X)
		}
		if len(pipe.X.Redirs) > 0 {
			return true
		}
		if !ok || len(call.Assigns) > 0 || len(call.Args) == 0 {
			return true
		}
		var words []string
		for _, a := range call.Args {
			text, ok := constant(a)
			if !ok || strings.ContainsAny(text, `\%`) || strings.HasPrefix(text, "-") {
				return true
			}
			words = append(words, text)
		}
		if words[0] == "echo" || words[0] == "printf" && len(words) == 2 {
			out[pipe.Y] = strings.Join(words[1:], " ") + "\n"
		}
		return true
	})
	return out
}

// heredoc returns the literal text that a statement is given on its input.
func heredoc(s *syntax.Stmt) string {
	for _, r := range s.Redirs {
		text, ok := "", false
		switch {
		case r.Op == syntax.WordHdoc && r.Word != nil:
			text, ok = constant(r.Word)
		case r.Hdoc != nil:
			text, ok = document(r)
		}
		if ok {
			return text
		}
	}
	return ""
}

var tabs = regexp.MustCompile(`(?m)^\t+`)

// document is the text of <<EOF. Where EOF is quoted, nothing in it is special.
func document(r *syntax.Redirect) (string, bool) {
	p := piece{known: true}
	for _, part := range r.Hdoc.Parts {
		lit, ok := part.(*syntax.Lit)
		switch {
		case !ok:
			return "", false
		case r.Word == nil || r.Word.Lit() == "" || strings.Contains(r.Word.Lit(), `\`):
			p.text.WriteString(lit.Value)
		case strings.Contains(lit.Value, `\"`):
			return "", false
		default:
			p.lit(lit.Value, true)
		}
	}
	text := p.text.String()
	if r.Op == syntax.DashHdoc {
		text = tabs.ReplaceAllString(text, "")
	}
	return text, true
}
