package ahead

import _ "embed"

// The programs that make interpreters stay, and run one program of a session after
// another. A shell does not: each program gets a new one, that begins where the
// last one ended.
var (
	//go:embed stay.py
	stayPython string
	//go:embed stay.js
	stayNode string
	//go:embed stay.sh
	stayShell string
)

// Resident is what starts the interpreter that a session keeps for a language,
// nil if each of its programs is a process of its own.
func Resident(language string) []string {
	switch language {
	case "python": // under a name, so that it can be left out of tracebacks
		return []string{"python3", "-c", "exec(compile(" + pythonString(stayPython) + ", '<session>', 'exec'), {'__name__': '<session>'})"}
	case "javascript":
		return []string{"node", "--experimental-vm-modules", "-e", stayNode}
	}
	return nil
}

// Shell is what starts a shell that goes on where the last one of its session ended.
// Its script's file follows.
func Shell() []string { return []string{"bash", "-c", stayShell, "bash"} }

// pythonString quotes text for Python.
func pythonString(s string) string {
	out := []byte{'"'}
	for _, c := range []byte(s) {
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		default:
			out = append(out, c)
		}
	}
	return string(append(out, '"'))
}
