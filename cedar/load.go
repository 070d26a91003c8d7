package cedar

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	cedargo "github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Bounds of what is read. A bracket depth beyond maxDepth is no policy that
// anybody can read, and would cost the parser its stack.
const (
	maxFile  = 8 << 20
	maxDepth = 64
)

// Check tells everything that is wrong with the policies of dir, and what is
// only doubtful. No problems, warnings apart, means that Load succeeds.
func Check(dir string) []Problem {
	l := newLoader(dir, os.DirFS(dir))
	l.read()
	l.problems.sort()
	return l.problems
}

func load(dir string) (*set, error) { return loadFS(dir, os.DirFS(dir)) }

func loadFS(dir string, fsys fs.FS) (*set, error) {
	l := newLoader(dir, fsys)
	l.read()
	var fatal Problems
	for _, p := range l.problems {
		if !p.Warning {
			fatal = append(fatal, p)
		}
	}
	if len(fatal) > 0 {
		fatal.sort()
		return nil, failure(fatal)
	}
	return &set{index: l.index, byID: l.byID, likes: l.likes, version: hex.EncodeToString(l.hash.Sum(nil))[:12]}, nil
}

// A loader collects the policies of one folder and what is wrong with them.
type loader struct {
	dir   string
	fsys  fs.FS
	check *checker
	hash  interface {
		io.Writer
		Sum([]byte) []byte
	}
	index    index
	byID     map[cedargo.PolicyID]*policy
	likes    likes
	problems Problems
}

func newLoader(dir string, fsys fs.FS) *loader {
	return &loader{
		dir: dir, fsys: fsys, check: newChecker(), hash: sha256.New(),
		index: make(index), byID: make(map[cedargo.PolicyID]*policy), likes: likes{},
	}
}

func (l *loader) read() {
	entries, err := fs.ReadDir(l.fsys, ".")
	if err != nil {
		l.problem(Problem{File: l.dir, Message: "the folder of policies cannot be read: " + cause(err),
			Hint: "create it with `sallyport init`, or name the right one as `policies` in sallyport.yaml"})
		return
	}
	files := 0
	for _, entry := range entries {
		switch name := entry.Name(); {
		case ignored(name):
		case !strings.HasSuffix(name, ".cedar"):
			l.problem(Problem{File: l.path(name), Message: "not a policy file, so what it says would not count",
				Hint: "policy files end in .cedar and stand directly in this folder; rename or remove it"})
		default:
			files++
			l.file(name)
		}
	}
	if files == 0 && len(l.problems) == 0 {
		l.problem(Problem{File: l.dir, Message: "the folder has no policies, so nothing would be allowed",
			Hint: "add a .cedar file; `sallyport init` writes a starter set"})
	}
}

// ignored names are what editors, people and file systems leave in a folder.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") ||
		strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".txt")
}

func (l *loader) file(name string) {
	text, err := readFile(l.fsys, name)
	if err != nil {
		l.problem(Problem{File: l.path(name), Message: "cannot be read: " + cause(err),
			Hint: "check that it is a file that the gateway may read"})
		return
	}
	fmt.Fprintf(l.hash, "%d %s %d ", len(name), name, len(text))
	_, _ = l.hash.Write(text)
	if p := unfit(text); p != nil {
		p.File = l.path(name)
		l.problem(*p)
		return
	}
	list, err := cedargo.NewPolicyListFromBytes(l.path(name), text)
	if err != nil {
		l.problem(l.parseProblem(name, text, err))
		return
	}
	if len(list) == 0 {
		l.problem(Problem{File: l.path(name), Line: 1, Column: 1, Message: "the file holds no policy",
			Hint: "remove it, or put its policies back: an empty file may be one that was cut short"})
		return
	}
	for i, src := range list {
		l.policy(name, i, src)
	}
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return text, err
}

// unfit finds what must not come to the parser.
func unfit(text []byte) *Problem {
	if !utf8.Valid(text) {
		return &Problem{Message: "the file is not valid UTF-8", Hint: "save it as UTF-8 text"}
	}
	for n, line := range bytes.Split(text, []byte("\n")) {
		if i := bytes.IndexByte(line, 0); i >= 0 {
			return &Problem{Line: n + 1, Column: i + 1, Message: "the file holds a NUL byte", Hint: "save it as UTF-8 text"}
		}
	}
	if at := tooDeep(text); at >= 0 {
		line := bytes.Count(text[:at], []byte("\n"))
		return &Problem{Line: line + 1, Column: at - bytes.LastIndexByte(text[:at], '\n'),
			Message: fmt.Sprintf("brackets are nested deeper than %d levels", maxDepth), Hint: "write several smaller policies"}
	}
	return nil
}

// tooDeep returns where brackets outside strings and comments nest deeper than
// maxDepth, or -1.
func tooDeep(text []byte) int {
	depth, inString, inComment := 0, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inComment:
			inComment = c != '\n'
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			inComment = true
		case c == '(' || c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return i
			}
		case c == ')' || c == ']' || c == '}':
			depth--
		}
	}
	return -1
}

func (l *loader) policy(name string, at int, src *cedargo.Policy) {
	pos := src.Position()
	where := Problem{File: l.path(name), Line: pos.Line, Column: pos.Column}
	p, err := newPolicy(src, fmt.Sprintf("%s#%d", strings.TrimSuffix(name, ".cedar"), at+1))
	if err != nil {
		where.Message, where.Hint = err.Error(), "docs/policies.md lists the annotations"
		l.problem(where)
		return
	}
	where.Policy = string(p.id)
	if other := l.byID[p.id]; other != nil {
		where.Message = fmt.Sprintf("the id is already used at %s:%d", other.src.Position().Filename, other.src.Position().Line)
		where.Hint = "give each policy its own @id"
		l.problem(where)
		return
	}
	l.byID[p.id] = p
	uses, faults := l.check.policy(p)
	for _, f := range faults {
		where.Message, where.Hint = f.message, f.hint
		l.problem(where)
	}
	p.args = uses
	if len(faults) == 0 && allowsAll(p.src) {
		where.Message, where.Warning = "allows every agent to call every tool", true
		where.Hint = "name the role or agent, and the server or tool"
		l.problem(where)
	}
	if len(faults) == 0 {
		l.index.add(p)
		l.likes.take(p)
	}
}

// allowsAll reports whether a permit has no bound at all.
func allowsAll(src *cedargo.Policy) bool {
	t := tree(src)
	_, principal := t.Principal.(xast.ScopeTypeAll)
	_, resource := t.Resource.(xast.ScopeTypeAll)
	return src.Effect() == cedargo.Permit && principal && resource && len(t.Conditions) == 0
}

func (l *loader) path(name string) string { return filepath.Join(l.dir, name) }

func (l *loader) problem(p Problem) { l.problems = append(l.problems, p) }

// cause is an error without the path, which the problem has already.
func cause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
