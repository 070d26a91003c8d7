package payload

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// No two kinds of record share a letter.
func TestKindsDiffer(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "payload.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if kind, ok := v.Type.(*ast.Ident); ok && kind.Name == "Kind" {
			letter := v.Values[0].(*ast.BasicLit).Value
			if seen[letter] != "" {
				t.Errorf("%s and %s are both %s", seen[letter], v.Names[0].Name, letter)
			}
			seen[letter] = v.Names[0].Name
		}
		return true
	})
	if len(seen) < 30 {
		t.Errorf("%d kinds were found", len(seen))
	}
}
