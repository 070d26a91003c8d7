package redact_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/trust"
)

func lines(t testing.TB, name string) (out []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		if !strings.HasPrefix(line, "# One text") {
			out = append(out, strings.ReplaceAll(line, "⏎", "\n"))
		}
	}
	return out
}

// TO-16: texts that give the model orders are flagged, in many languages and
// disguises; texts about injection, and ordinary ones, are not. Nothing is ever
// taken out because of it.
func TestTO16_Detector(t *testing.T) {
	flagged := func(s string) bool {
		got, findings := clean(t, s)
		if got != s && !strings.Contains(got, "masked") && !strings.Contains(s, "\u200b") {
			t.Errorf("%q came out as %q", s, got)
		}
		return slices.Contains(findings, trust.FlagInstructions)
	}
	missed, alarms := 0, 0
	injections, benign := lines(t, "injections.txt"), lines(t, "benign.txt")
	for _, s := range injections {
		if !flagged(s) {
			missed++
			t.Errorf("not flagged: %q", s)
		}
		if in := `{"page":` + quoteText(s) + `}`; !flagged(in) && !strings.Contains(s, "\n") {
			t.Errorf("not flagged within JSON: %s", in)
		}
	}
	for _, s := range benign {
		if flagged(s) {
			alarms++
			t.Logf("flagged, and benign: %q", s)
		}
	}
	t.Logf("%d of %d injections flagged; %d of %d benign texts flagged", len(injections)-missed, len(injections), alarms, len(benign))
	if len(injections) < 30 || len(benign) < 30 || alarms*20 > len(benign) {
		t.Errorf("want at least 30 of each, and at most 5 %% of the benign ones flagged")
	}
}

func quoteText(s string) string {
	b := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
	return `"` + b + `"`
}

func BenchmarkDetector(b *testing.B) {
	if err := all.Warm(); err != nil {
		b.Fatal(err)
	}
	long := strings.Repeat("The assistant called a tool, and the function returned what you must know about the display. ", 11)
	content := text(long)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		if _, _, _, err := all.Result("", tool, out(content)); err != nil {
			b.Fatal(err)
		}
	}
}

var tool = sallyport.Tool{Name: "t"}

func out(content json.RawMessage) sallyport.Output { return sallyport.Output{Content: content} }
