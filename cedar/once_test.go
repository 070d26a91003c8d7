package cedar

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mistake is told once, with what follows from it left out.
func TestOneMistakeIsOneProblem(t *testing.T) {
	for policy, want := range map[string]string{
		`permit (principal, action == Action::"cal", resource);`:                               "unrecognized action",
		`permit (principal == Agnt::"a", action, resource);`:                                   "Agnt",
		`permit (principal in Role::"agent", action == Action::"call", resource == Tol::"x");`: "Tol",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(`@id("x") `+policy), 0o600); err != nil {
			t.Fatal(err)
		}
		if p := Check(dir); len(p) != 1 || !strings.Contains(p[0].Message, want) || p[0].Hint == "" {
			t.Errorf("%s: %+v", policy, p)
		}
	}
}
