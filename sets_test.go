package sallyport

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// Codes and EntryKinds leave none out.
func TestSetsAreWhole(t *testing.T) {
	for file, want := range map[string]struct {
		typ string
		n   int
	}{"error.go": {"Code", len(Codes)}, "record.go": {"EntryKind", len(EntryKinds)}} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		ast.Inspect(f, func(node ast.Node) bool {
			if v, ok := node.(*ast.ValueSpec); ok {
				if id, ok := v.Type.(*ast.Ident); ok && id.Name == want.typ {
					n++
				}
			}
			return true
		})
		if n != want.n || n < 5 {
			t.Errorf("%s declares %d of type %s, the set holds %d", file, n, want.typ, want.n)
		}
	}
}
