// Package ahead knows the interpreters that can be started before it is known
// what they are to run, and how they are told.
package ahead

import (
	_ "embed"
	"fmt"
	"strings"

	"sallyport.dev/sallyport/tier/payload"
)

// The programs below make an interpreter that was started ahead behave as if
// it had been started with the script.
var (
	//go:embed ahead.py
	python string
	//go:embed ahead.js
	node string
	//go:embed ahead.sh
	bash string
)

// Unbuffered has Python write lines as they are printed: the one variable that an
// interpreter that was started ahead can be given.
const Unbuffered = "PYTHONUNBUFFERED=1"

// A Kind is an interpreter that can be started ahead: its name and, but for
// Node.js, that of its script. It is "" for all else, which needs nothing but its
// sandbox.
type Kind string

// Of says what can be started ahead of a program: of two words, an interpreter
// and a script.
func Of(argv []string) Kind {
	if len(argv) != 2 || argv[1] == "" || argv[1][0] == '-' {
		return ""
	}
	switch {
	case argv[0] == "node":
		return Kind(argv[0])
	case argv[0] == "bash", argv[0] == "python3" && strings.HasSuffix(argv[1], ".py") && !strings.Contains(argv[1], "/"):
		return Kind(argv[0] + " " + argv[1])
	}
	return ""
}

// A Start starts an interpreter that waits.
type Start struct {
	Argv, Env []string
	File      string // it starts from this one, in the working folder; "" if from none
	Text      []byte
}

// A Place is the sandbox that an interpreter waits in.
type Place struct {
	Folder string // that it works in
	Leads  bool   // its program may reach something
	Forks  bool   // it may have more than one process
}

// Start says how an interpreter is started.
func (k Kind) Start(p Place) (s Start) {
	name, script, _ := strings.Cut(string(k), " ")
	switch name {
	case "python3":
		// Under the script's name, as its command line and outermost frame will have
		// it. A namespace of its own: __main__ is to be the script's alone, and what it
		// makes of builtins too.
		more := ""
		if p.Leads {
			more = "http.client ssl urllib.request"
		}
		s = Start{Argv: []string{name, script}, File: script}
		s.Text = fmt.Appendf(nil, "exec(compile(%q, '<start>', 'exec'), {'__name__': '<start>', '__builtins__': dict(vars(__builtins__)), 'more': %q})", python, more)
	case "node":
		s = Start{Argv: []string{name, ".ahead.js"}, File: ".ahead.js", Text: []byte(node)}
	case "bash": // runs a file before it opens its script
		s = Start{Argv: []string{name, script}, File: ".ahead.sh", Text: []byte(bash), Env: []string{"BASH_ENV=" + p.Folder + "/.ahead.sh"}}
		if p.Forks { // what scripts do is done once before: it is quicker then
			s.Text = append([]byte("/bin/true 2>/dev/null\n"), bash...)
		}
	}
	return s
}

// Rehearsal is an order to do nothing but what programs usually do, for an interpreter
// that was copied while it waited; nil for one that knows none. It tells nobody when it is done.
func (k Kind) Rehearsal() []byte {
	if strings.HasPrefix(string(k), "python3 ") {
		return payload.AppendUint32(nil, 0)
	}
	return nil
}

// Order is what an interpreter that was started ahead is to do: env is what it
// does not have yet, text the script, nil where that is not alone. brief says that
// the order holds the script; else all files come first, and the order then.
func Order(argv, env []string, text []byte) (order []byte, brief bool) {
	if argv[0] == "bash" {
		return []byte(strings.Join(env, "") + "\n"), false
	}
	if len(text) > 0 {
		if order = payload.AppendOrder(nil, argv, env, text); len(order) <= payload.MaxOrder {
			return order, true
		}
	}
	return payload.AppendOrder(nil, argv, env, nil), false
}
