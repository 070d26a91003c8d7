// Package shell judges shell commands by what they would do. The text is parsed
// whole; every command in it counts, wherever it stands: in pipes, loops,
// substitutions, functions, behind sudo, env or xargs, in find -exec and in
// sh -c. A command is harmless only if it is known and each of its options is
// known to be; whatever is not known is critical.
//
// It cannot see the machine: aliases, files named like options, what a script
// file holds, what a variable from outside is set to.
package shell

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/shell/form"
	"sallyport.dev/sallyport/risk/shell/parts"
)

// Bounds. Texts beyond them are critical; the parser recurses, so that they
// also bound its stack.
const (
	MaxText    = finding.MaxText
	maxNesting = 4096 // brackets and backquotes in all
	maxScripts = 8    // scripts within scripts (sh -c "sh -c …")
)

// A Judge judges shell texts. It is safe for concurrent use.
type Judge struct {
	// SQL judges the SQL that psql, sqlite3 or mysql is given.
	SQL func(dialect, text string) sallyport.Risk
}

// Judge says what text would do, and whether it parses as a shell script. It
// never fails: what cannot be judged is critical.
func (j Judge) Judge(text string) (r sallyport.Risk, parsed bool) {
	defer func() {
		if e := recover(); e != nil {
			r, parsed = finding.One(sallyport.Critical, "the command broke the analyser, so what it does is unknown"), false
		}
	}()
	w := &walk{judge: j}
	if parsed = w.script(text); !parsed {
		w.hide()
	}
	w.finish()
	if len(w.parts) == 0 && w.found.Level() >= sallyport.High {
		w.parts.Add(parts.Critical, text)
	}
	w.parts.Note(&w.found)
	return w.found.Risk(), parsed
}

// A walk goes once through one text and the scripts within it.
type walk struct {
	judge   Judge
	found   finding.List
	parts   parts.Parts
	text    string   // of the script that is walked now
	folders []string // that the script makes its own
	keeps   uint     // set -C: where from > makes files, and writes over none
	vars    map[string]variable
	funcs   map[string]uint // by name, where the definition ends
	remade  bool            // makes mktemp something else
	unsets  bool            // takes names away again: no function is trusted
	resets  bool            // runs what may set variables: none is trusted
	scripts int
	wraps   int
	tries   *int // commands looked for within words, so far
	rounds  int  // of loops over words that are known, so far

	pipes  map[*syntax.Stmt]string // what echo prints into a statement
	piped  string                  // into this one
	silent bool                    // its input is known, or nothing

	secret string // the first file that is read and holds secrets
	talks  string // the first command that can tell another machine something

	downloads string // the first command that fetches something from the network
	opaque    bool   // something runs code that cannot be read here
}

// A variable is what the text assigns to a name.
type variable struct {
	times int // how often the text sets it
	value string
	known bool // assigned exactly once, to a literal, by a statement that surely runs
	fresh bool // assigned exactly once, to what mktemp makes
	from  uint // where that statement ends
}

func (w *walk) finish() {
	if w.downloads != "" && w.opaque {
		w.found.Lost("runs code that it downloads: what that does is unknown and cannot be undone")
		w.parts.Add(parts.Lost, w.downloads)
	}
	w.leaks()
	if w.found.Empty() {
		w.found.Add(sallyport.Low, "changes nothing")
	}
}

// hide notes that something runs code that cannot be read here.
func (w *walk) hide() {
	w.opaque = true
	w.found.Effect(sallyport.EffectOpaque)
	w.found.Effect(sallyport.EffectExecute)
}

// lost notes that files are gone, or what they held.
func (w *walk) lost(format string, args ...any) {
	w.found.Effect(sallyport.EffectDelete)
	w.found.Lost(format, args...)
}

// changed notes a change that can be undone.
func (w *walk) changed(format string, args ...any) {
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, format, args...)
}

func (w *walk) unknown(format string, args ...any) {
	w.found.Add(sallyport.Critical, format, args...)
}

// script judges a whole script, perhaps one within another.
func (w *walk) script(text string) bool {
	switch nesting := strings.Count(text, "(") + strings.Count(text, "{") + strings.Count(text, "`") + strings.Count(text, "["); {
	case len(text) > MaxText:
		w.unknown("the command is too long to judge: %d bytes, and %d is the most", len(text), MaxText)
		return false
	case !utf8.ValidString(text):
		w.unknown("the command is not valid UTF-8")
		return false
	case strings.IndexByte(text, 0) >= 0:
		w.unknown("the command holds a NUL byte: what follows it may or may not be read")
		return false
	case strings.IndexByte(text, '\r') >= 0:
		w.unknown("the command holds a carriage return, which shells and terminals read differently")
		return false
	case nesting > maxNesting:
		w.unknown("the command is nested too deeply to judge")
		return false
	case w.scripts >= maxScripts:
		w.unknown("the command holds scripts within scripts, too deep to judge")
		return false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		w.unknown("the command cannot be parsed, so what it does is unknown")
		return false
	}
	outerVars, outerFuncs, outerText, outerPipes, outerKeeps := w.vars, w.funcs, w.text, w.pipes, w.keeps
	w.vars, w.funcs, w.text, w.pipes, w.keeps = map[string]variable{}, map[string]uint{}, text, echoes(file), form.Keeps(file)
	w.scripts++
	w.declare(file)
	w.visit(file)
	w.arithmetic(file)
	w.scripts--
	w.vars, w.funcs, w.text, w.pipes, w.keeps = outerVars, outerFuncs, outerText, outerPipes, outerKeeps
	return true
}

// declare notes every variable and function that the script sets, before
// anything is judged. Only what surely runs, in order, tells what a name stands
// for: a statement of the script itself, not one in a branch, a loop, a pipe.
func (w *walk) declare(file *syntax.File) {
	set := func(name string) { w.vars[name] = variable{times: w.vars[name].times + 1} }
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			w.remade = w.remade || n.Name != nil && n.Name.Value == "mktemp"
		case *syntax.Assign:
			if n.Name != nil {
				v, again := w.vars[n.Name.Value]
				v.known = !again
				v.times++
				w.vars[n.Name.Value] = v
			}
		case *syntax.WordIter:
			set(n.Name.Value)
		case *syntax.ParamExp:
			if n.Param != nil && n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				set(n.Param.Value)
			}
		case *syntax.BinaryArithm:
			if word, ok := n.X.(*syntax.Word); ok {
				set(word.Lit())
			}
		case *syntax.UnaryArithm:
			if word, ok := n.X.(*syntax.Word); ok {
				set(word.Lit())
			}
		}
		return true
	})
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok {
			w.declareByCommand(call, set)
		}
		return true
	})
	for _, s := range file.Stmts {
		if s.Background || s.Negated || len(s.Redirs) > 0 {
			continue
		}
		s = form.First(s)
		end := s.End().Offset()
		switch c := s.Cmd.(type) {
		case *syntax.FuncDecl:
			if c.Name != nil && !w.unsets {
				w.funcs[c.Name.Value] = end
			}
		case *syntax.CallExpr:
			if len(c.Args) == 0 {
				w.fix(c.Assigns, end)
			}
		case *syntax.DeclClause:
			w.fix(c.Args, end)
		}
	}
	for name, v := range w.vars {
		if v.from == 0 {
			w.vars[name] = variable{times: v.times}
		}
	}
}

// fix gives the variables of a statement that surely runs their value.
func (w *walk) fix(assigns []*syntax.Assign, end uint) {
	for _, a := range assigns {
		if a.Name == nil || a.Naked || a.Append || a.Index != nil || a.Array != nil {
			continue
		}
		value, ok := constant(a.Value)
		switch v := w.vars[a.Name.Value]; {
		case w.resets:
		case ok && v.known:
			w.vars[a.Name.Value] = variable{value: value, known: true, from: end}
		case v.known && !w.remade && makesFresh(a.Value):
			w.vars[a.Name.Value] = variable{fresh: true, from: end}
		}
	}
}

// declareByCommand sees the commands that set variables: read x, printf -v x …
func (w *walk) declareByCommand(n *syntax.CallExpr, set func(string)) {
	for i, a := range n.Args {
		switch name, _ := constant(a); name {
		case "command", "builtin", "-p", "--":
			continue // the command itself comes behind it
		case "eval", "source", ".", "trap":
			w.resets = true
		case "read", "mapfile", "readarray", "getopts", "printf", "unset", "wait", "let", "export", "declare", "typeset", "local", "readonly":
			w.unsets = w.unsets || name == "unset"
			for _, a := range n.Args[i+1:] {
				s, ok := constant(a)
				w.resets = w.resets || !ok && name != "printf"
				s, _, _ = strings.Cut(s, "=")
				set(s)
			}
		}
		return
	}
}

// visit judges every command below n, with the nodes that the analyser knows.
func (w *walk) visit(n syntax.Node) {
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil:
		case *syntax.Stmt:
			w.stmt(n)
		case *syntax.ParamExp:
			w.param(n)
		case *syntax.DeclClause:
			w.decl(n)
		case *syntax.FuncDecl:
			w.function(n)
		case *syntax.ForClause:
			return !w.loop(n)
		case *syntax.CallExpr, *syntax.File, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted,
			*syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.BinaryArithm, *syntax.UnaryArithm,
			*syntax.ParenArithm, *syntax.BinaryCmd, *syntax.Subshell, *syntax.Block, *syntax.IfClause, *syntax.WhileClause,
			*syntax.WordIter, *syntax.CStyleLoop, *syntax.CaseClause, *syntax.CaseItem, *syntax.TestClause,
			*syntax.BinaryTest, *syntax.UnaryTest, *syntax.ParenTest, *syntax.TimeClause, *syntax.LetClause, *syntax.Assign,
			*syntax.ArrayExpr, *syntax.ArrayElem, *syntax.Redirect, *syntax.Comment, *syntax.ExtGlob, *syntax.BraceExp,
			*syntax.CoprocClause:
		default:
			w.unknown("uses a construct that the analyser does not know")
		}
		return true
	})
}

// stmt judges what a statement does itself; what stands within it is visited
// after it. What is dangerous becomes a part, as it is written.
func (w *walk) stmt(s *syntax.Stmt) {
	outer := w.found
	w.found = finding.List{}
	w.commandOf(s)
	here := w.found
	w.found = outer
	w.parts.Found(&here, w.source(s))
	w.found.Append(&here)
}

func (w *walk) commandOf(s *syntax.Stmt) {
	for _, r := range s.Redirs {
		w.redirect(r)
	}
	if s.Background {
		w.found.Effect(sallyport.EffectExecute)
		w.found.Add(sallyport.High, "leaves a process behind")
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok {
		return
	}
	for _, a := range call.Assigns {
		if a.Name != nil && a.Name.Value == "IFS" && len(call.Args) > 0 && call.Args[0].Lit() == "read" {
			continue // for read alone
		}
		w.environment(a)
	}
	var argv []arg
	for _, word := range call.Args {
		argv = append(argv, w.expand(word)...)
	}
	if len(argv) == 0 {
		return
	}
	if end, ok := w.funcs[argv[0].Text]; ok && argv[0].Literal() && end <= s.Pos().Offset() && !takesAway(argv[0].Text) {
		return // its body was judged where it stands
	}
	fetched, stdin := w.downloads, heredoc(s)
	w.downloads = ""
	w.piped = w.pipes[s]
	w.silent = w.piped != "" || stdin != "" || form.Empty(s)
	w.command(argv, stdin)
	if fetched != "" || w.downloads != "" {
		w.downloads = cmp.Or(fetched, w.source(s), "here")
	}
}

func (w *walk) param(p *syntax.ParamExp) {
	if p.Param != nil && finding.Secret(p.Param.Value) && !givenVars[p.Param.Value] && !w.vars[p.Param.Value].known {
		w.found.Add(sallyport.Medium, "reads variable %s, which by its name is secret", p.Param.Value)
	}
	if p.Exp != nil && p.Exp.Op == syntax.OtherParamOps {
		if text, ok := constant(p.Exp.Word); ok && text == "P" {
			w.unknown("expands a variable as a prompt, which runs commands in it")
		}
	}
}

func (w *walk) decl(d *syntax.DeclClause) {
	for _, a := range d.Args {
		if a.Name == nil {
			if s, ok := constant(a.Value); ok && strings.HasPrefix(s, "-") && strings.Contains(s, "n") {
				w.unknown("makes one variable stand for another")
			}
			continue
		}
		w.environment(a)
	}
}

func (w *walk) function(f *syntax.FuncDecl) {
	if f.Name == nil {
		w.unknown("declares a function without a name")
		return
	}
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 && call.Args[0].Lit() == f.Name.Value {
			w.unknown("%s calls itself: it may fill the machine with processes", f.Name.Value)
			return false
		}
		return true
	})
}
