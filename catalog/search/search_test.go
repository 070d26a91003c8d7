package search

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
)

func realTools(t testing.TB) []sallyport.Tool {
	t.Helper()
	text, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	var out []sallyport.Tool
	for _, r := range raw {
		name, _ := wire.String(wire.Member(r, "name"))
		out = append(out, sallyport.Tool{Name: name, Definition: r})
	}
	slices.SortFunc(out, func(a, b sallyport.Tool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func names(tools []sallyport.Tool) (out []string) {
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

// recall asks every question of a file and counts for how many a tool that would do
// is the first, and among the first five.
func recall(t *testing.T, file string) (asked, first, five int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tools, x := realTools(t), Index{}
	for line := range strings.Lines(string(text)) {
		question, want, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok {
			continue
		}
		asked++
		got := names(x.Find("", tools, question, 5))
		if slices.ContainsFunc(strings.Fields(want), func(w string) bool { return slices.Contains(got, w) }) {
			five++
		} else {
			t.Logf("%s: %v, not %s", question, got, want)
		}
		if len(got) > 0 && slices.Contains(strings.Fields(want), got[0]) {
			first++
		}
	}
	t.Logf("%s: %d questions over %d tools: first %d, among five %d", file, asked, len(tools), first, five)
	return asked, first, five
}

// Of what people ask for, in their own words, the tools of public servers that do
// it are among the first five. The shares are in docs/spec.md.
func TestRecallAmongRealTools(t *testing.T) {
	for file, least := range map[string]int{"testdata/questions.txt": 90, "testdata/heldout.txt": 75} {
		asked, _, five := recall(t, file)
		if asked < 25 || five*100 < asked*least {
			t.Errorf("%s: %d of %d are among the first five, less than %d of 100", file, five, asked, least)
		}
	}
}

// Neither the order nor the answers tell of tools that the asker may not see, and the
// same question has the same answer.
func TestOnlyWhatIsGivenCounts(t *testing.T) {
	tools := realTools(t)
	var x, fresh Index
	for _, question := range []string{"open an issue", "read a file", "search", "delete", "slack__slack_post_message", "x", "", "the of", "über die Dateien", "删除 文件"} {
		_ = x.Find("", tools, question, 25)
		few := slices.DeleteFunc(slices.Clone(tools), func(t sallyport.Tool) bool { return strings.HasPrefix(t.Name, "git") })
		if a, b := names(x.Find("", few, question, 25)), names(fresh.Find("", few, question, 25)); !slices.Equal(a, b) {
			t.Errorf("%q: %v, and by who never saw the others %v", question, a, b)
		}
	}
	if got := names(x.Find("", tools, "slack__slack_get_users", 1)); len(got) != 1 || got[0] != "slack__slack_get_users" {
		t.Errorf("by name: %v", got)
	}
	changed := slices.Clone(tools)
	changed[0].Definition = json.RawMessage(`{"name":"` + changed[0].Name + `","description":"boils eggs"}`)
	if got := names(x.Find("", changed, "boil an egg", 1)); len(got) != 1 || got[0] != changed[0].Name {
		t.Errorf("a changed definition is not read again: %v", got)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("create_orUpdate files, über 删除")
	f.Fuzz(func(t *testing.T, text string) {
		for _, w := range split(text) {
			if w == "" || strings.ContainsAny(w, " _-") {
				t.Errorf("%q has the word %q", text, w)
			}
		}
	})
}

// many are n tools, made of the words of real ones.
func many(t testing.TB, n int) []sallyport.Tool {
	real, random := realTools(t), rand.New(rand.NewPCG(1, 2))
	out := make([]sallyport.Tool, n)
	for i := range out {
		a, b := real[random.IntN(len(real))], real[random.IntN(len(real))]
		name := fmt.Sprintf("s%d__%s_%d", i%50, strings.TrimPrefix(a.Name[strings.Index(a.Name, "__")+2:], "slack_"), i)
		def, err := wire.SetMember(a.Definition, "name", wire.Quote(name))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := wire.String(wire.Member(b.Definition, "description"))
		if def, err = wire.SetMember(def, "title", wire.Quote(said)); err != nil {
			t.Fatal(err)
		}
		out[i] = sallyport.Tool{Name: name, Definition: def}
	}
	return out
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		tools := many(b, n)
		bytes := 0
		for _, t := range tools {
			bytes += len(t.Definition)
		}
		b.Run(fmt.Sprintf("tools=%d", n), func(b *testing.B) {
			var x Index
			found := x.Find("", tools, "open an issue", 5)
			size := 0
			for _, t := range found {
				size += len(t.Definition)
			}
			for b.Loop() {
				x.Find("", tools, "which pull requests touch the file", 5)
			}
			b.ReportMetric(float64(bytes), "list-bytes")
			b.ReportMetric(float64(size), "found-bytes")
		})
	}
}
