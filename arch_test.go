package sallyport_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "sallyport.dev/sallyport"

// A source is one Go file of the module.
type source struct {
	path      string // from the root
	dir       string // its package, "" for the root
	test      bool
	generated bool
	file      *ast.File
	fset      *token.FileSet
}

func (s source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

func (s source) imports() []string {
	var out []string
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			out = append(out, p)
		}
	}
	return out
}

// skipped are folders that are not ours, or other modules.
func skipped(name string) bool {
	return name == "node_modules" || name == "testdata" || name == "tools" || name == "bin" ||
		strings.HasPrefix(name, ".") && name != "."
}

func walkFiles(t *testing.T, ext string, visit func(p string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(d.Name()):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(p, ext):
			visit(filepath.ToSlash(p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	fset := token.NewFileSet()
	walkFiles(t, ".go", func(p string) {
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Dir(p)
		if dir == "." {
			dir = ""
		}
		out = append(out, source{p, dir, strings.HasSuffix(p, "_test.go"), ast.IsGenerated(f), f, fset})
	})
	if len(out) < 20 {
		t.Fatalf("only %d Go files found: the walk is broken", len(out))
	}
	return out
}

// ours turns an import path into a package of the tables.
func ours(importPath string) (dir string, ok bool) {
	rest, ok := strings.CutPrefix(importPath, module)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// Imports point one way, and each edge has a reason. An edge that nobody uses
// is taken out of the table again.
func TestImportTable(t *testing.T) {
	unused := map[string]edges{}
	for dir, allowed := range imports {
		unused[dir] = maps.Clone(allowed)
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		allowed, known := imports[s.dir]
		cmd := strings.HasPrefix(s.dir, "cmd/")
		if !known && !cmd {
			t.Errorf("%s: package %q is not in the table of arch_table_test.go", s.path, s.dir)
			continue
		}
		for _, imp := range s.imports() {
			to, mine := ours(imp)
			switch {
			case !mine || to == "" && s.dir != "":
			case cmd && !strings.HasPrefix(to, "cmd/"):
			case cmd && strings.HasPrefix(to, s.dir+"/"):
			case allowed[to] == "":
				t.Errorf("%s imports %q: no reason for it in arch_table_test.go", s.path, to)
			}
			delete(unused[s.dir], to)
		}
	}
	for dir, left := range unused {
		for to := range left {
			t.Errorf("%q does not import %q: take the edge out of arch_table_test.go", dir, to)
		}
	}
}

// No door reaches what executes, by any path of imports.
func TestDoorsReachNoExecutor(t *testing.T) {
	graph := map[string][]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, imp := range s.imports() {
			if to, mine := ours(imp); mine {
				graph[s.dir] = append(graph[s.dir], to)
			}
		}
	}
	for _, door := range doors {
		seen := map[string]bool{}
		var visit func(pkg string, way []string)
		visit = func(pkg string, way []string) {
			if seen[pkg] {
				return
			}
			seen[pkg] = true
			if slices.Contains(executors, pkg) {
				t.Errorf("a door reaches what executes: %s", strings.Join(append(way, pkg), " → "))
			}
			for _, to := range graph[pkg] {
				visit(to, append(slices.Clone(way), pkg))
			}
		}
		visit(door, nil)
	}
}

func TestSDKStaysOutside(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || slices.Contains(sdkAllowed, s.dir) || strings.HasPrefix(s.dir, "test/") {
			continue
		}
		for _, imp := range s.imports() {
			if strings.HasPrefix(imp, sdk) {
				t.Errorf("%s imports the MCP SDK", s.path)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	funcs, long := 0, []string(nil)
	packages := map[string]int{}
	used := map[string]bool{}
	over := func(what string, lines, limit int) {
		if lines <= limit {
			return
		}
		if w, ok := waivers[what]; ok {
			used[what] = w.why != ""
			limit = w.lines
		}
		if lines <= limit {
			return
		}
		t.Errorf("%s has %d lines, more than %d: split it, or waive it with the reason", what, lines, limit)
	}
	for _, s := range sources(t) {
		if s.test || s.generated || strings.HasSuffix(s.dir, "test") {
			continue
		}
		lines := s.fset.Position(s.file.FileEnd).Line
		packages[s.dir] += lines
		over(s.path, lines, maxFileLines)
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			funcs++
			name := s.path + ":" + f.Name.Name
			if n := s.lines(f); n > maxFuncLines {
				long = append(long, name)
				over(name, n, hardFuncLines)
			}
		}
	}
	for dir, lines := range packages {
		over("package "+dir, lines, maxPackageLines)
	}
	if 20*len(long) > funcs {
		t.Errorf("%d of %d functions have more than %d lines: %v", len(long), funcs, maxFuncLines, long)
	}
	for what := range waivers {
		if !used[what] {
			t.Errorf("the waiver of %s is no longer needed, or gives no reason", what)
		}
	}
}

// Every package says what it is for, and none does anything by being imported.
func TestPackageDocsAndNoInit(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		documented[s.dir] = documented[s.dir] || s.file.Doc != nil && len(s.file.Doc.Text()) > 20
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !s.generated {
				t.Errorf("%s has an init function", s.path)
			}
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %q has no doc comment", dir)
		}
	}
}

var (
	mdLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdCode = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

// Relative links of documents lead somewhere.
func TestDocumentLinks(t *testing.T) {
	links := 0
	walkFiles(t, ".md", func(p string) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllSubmatch(mdCode.ReplaceAll(text, nil), -1) {
			u, err := url.Parse(string(m[1]))
			if err != nil {
				t.Errorf("%s: link %s: %v", p, m[1], err)
				continue
			}
			if u.Scheme != "" || u.Path == "" {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), filepath.FromSlash(u.Path))); err != nil {
				t.Errorf("%s: dead link %s", p, m[1])
			}
		}
	})
	if links < 5 {
		t.Errorf("only %d links found: the search is broken", links)
	}
}

// Every design note has a number of its own, and stands in the index.
func TestDesignNotes(t *testing.T) {
	index, err := os.ReadFile("docs/design/README.md")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob("docs/design/[0-9]*.md")
	if err != nil || len(notes) < 10 {
		t.Fatalf("only %d notes found, %v: the search is broken", len(notes), err)
	}
	taken := map[string]string{}
	for _, p := range notes {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(p)
		number, _, _ := strings.Cut(name, "-")
		if other := taken[number]; other != "" {
			t.Errorf("%s and %s have one number", name, other)
		}
		taken[number] = name
		if !bytes.HasPrefix(text, []byte("# "+number+" ")) {
			t.Errorf("%s does not begin with its number", p)
		}
		if !bytes.Contains(index, []byte("]("+name+")")) {
			t.Errorf("%s is not in docs/design/README.md", name)
		}
	}
}

// The functions that the tour names, as `TYPE.NAME` or `PACKAGE.NAME`, exist.
func TestTourNamesRealFunctions(t *testing.T) {
	declared := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !s.test {
				declared[owner(f, s.file.Name.Name)+"."+f.Name.Name] = true
			}
		}
	}
	text, err := os.ReadFile("docs/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([A-Za-z]+\\.[A-Za-z]+)`").FindAllSubmatch(text, -1)
	for _, m := range named {
		if name := string(m[1]); path.Ext(name) != ".yaml" && !declared[name] {
			t.Errorf("docs/tour.md names %s, which does not exist", name)
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d functions found: the search is broken", len(named))
	}
}

// owner is the receiver's type of a method, or the package of a function.
func owner(f *ast.FuncDecl, pkg string) string {
	if f.Recv == nil {
		return pkg
	}
	typ := f.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// The tests that a document names exist.
func TestDocumentsNameRealTests(t *testing.T) {
	var code bytes.Buffer
	for _, s := range sources(t) {
		if s.test {
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					code.WriteString(f.Name.Name + "\n")
				}
			}
		}
	}
	name := regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*`)
	walkFiles(t, ".md", func(p string) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range name.FindAll(text, -1) {
			if !bytes.Contains(code.Bytes(), append(slices.Clone(n), '\n')) {
				t.Errorf("%s names %s, which does not exist", p, n)
			}
		}
	})
}
