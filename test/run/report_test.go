package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Run on small modules of its own, the report counts leaves and tells what
// failed and why.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		code      int
		last      string
		want      []string
	}{
		{"pass", `func TestA(t *testing.T) {}
func TestB(t *testing.T) { t.Run("x", func(t *testing.T) {}); t.Run("y/z", func(t *testing.T) {}) }`,
			0, "3 passed, 0 failed", []string{"ok    m: 3 passed"}},
		{"skip", `func TestA(t *testing.T) {}
func TestB(t *testing.T) { t.Skip("no", "camel") }`,
			0, "1 passed, 0 failed, 1 skipped", []string{"skipped TestB: no camel"}},
		{"fail", `func TestA(t *testing.T) {}
func TestB(t *testing.T) { t.Run("x", func(t *testing.T) { t.Error("broken") }); t.Run("y", func(t *testing.T) {}) }`,
			1, "2 passed, 1 failed", []string{"FAIL  m", "--- TestB/x", "broken", "failed: m TestB/x"}},
		{"parent fails", `func TestB(t *testing.T) { t.Run("x", func(t *testing.T) {}); t.Error("after") }`,
			1, "1 passed, 1 failed", []string{"--- TestB", "after"}},
		{"panic", `func TestA(t *testing.T) {}
func TestB(t *testing.T) { panic("oops") }`, 1, "1 passed, 1 failed", []string{"oops"}},
		{"exit", `func TestA(t *testing.T) {}
func TestB(t *testing.T) { os.Exit(0) }
var _ = os.Exit`, 1, "1 passed, 1 failed", []string{"--- TestB"}},
		{"main fails", `func TestA(t *testing.T) {}
func TestMain(m *testing.M) { m.Run(); println("no disk"); os.Exit(3) }`, 1, "1 passed, 1 failed", []string{"no disk"}},
		{"does not build", `func TestA(t *testing.T) { undefined() }`, 1, "0 passed, 1 failed", []string{"undefined: undefined", "failed: m\n"}},
		{"nothing", `func help(t *testing.T) {}`, 1, "0 passed, 0 failed", []string{"no test ran"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			src := "package m\nimport (\n\"os\"\n\"testing\"\n)\nvar _ = os.Args\n" + tt.src + "\n"
			for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.26\n", "m_test.go": src} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			t.Setenv("GOFLAGS", "")
			var out strings.Builder
			code := run(&out, []string{"-count", "1", "./..."})
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if code != tt.code || lines[len(lines)-1] != tt.last {
				t.Errorf("exit %d, last line %q; want %d, %q", code, lines[len(lines)-1], tt.code, tt.last)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
		})
	}
}

// A test that was running when go test died counts as failed.
func TestCloseCountsWhatNeverEnded(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.line([]byte(`{"Action":"run","Package":"m","Test":"TestA"}` + "\n"))
	r.line([]byte("not JSON\n"))
	if code := r.close(errors.New("killed")); code != 1 || !strings.HasSuffix(out.String(), "\n0 passed, 1 failed\n") {
		t.Errorf("exit %d: %s", code, out.String())
	}
	if !strings.HasPrefix(out.String(), "not JSON\n") {
		t.Errorf("plain lines are lost: %s", out.String())
	}
}
