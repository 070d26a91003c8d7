package risk_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// callsIn are, for each language, calls that act, the option before a program, and a
// call that does not.
var callsIn = map[string]struct {
	option, harmless string
	acts             []string
}{
	"perl":    {"-e", "lc", []string{"unlink", "unlink $_", "unlink()", `unlink "important.txt"`, `rename $_, "y"`}},
	"node":    {"-e", `fs.existsSync("a")`, []string{`fs.rmSync("a")`, `fs["rmSync"]("a")`, `require("fs").rmSync("a")`, `fs.promises.rm("a")`, `fs.readFileSync("a",{flag:"w+"})`, `require("./x.json")`}},
	"python3": {"-c", `len("a")`, []string{`open("a","w")`, `open("a",mode="w")`, `__import__("os").remove("a")`, `open("a","w+").read()`, `open(*("a","w"))`}},
}

// A call that acts is stopped wherever in a program it can stand.
func TestCallsAreSeenEverywhere(t *testing.T) {
	e := engine(t)
	places, low := 0, 0
	for line := range strings.Lines(data(t, doors+"places.txt")) {
		language, place, ok := strings.Cut(strings.TrimSuffix(unseen.Replace(line), "\n"), "\t")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		places++
		in := callsIn[language]
		judge := func(call string) (string, sallyport.Risk) {
			program := strings.ReplaceAll(strings.ReplaceAll(place, "U", call), "'", `'"'"'`)
			text := language + " " + in.option + " '" + program + "'"
			return text, e.Shell(text)
		}
		for _, call := range in.acts {
			if text, r := judge(call); r.Level != sallyport.Critical {
				t.Errorf("%s: %v; want critical", text, r)
			}
		}
		if _, r := judge(in.harmless); r.Level < sallyport.High {
			low++
		}
	}
	if places < 250 || low < 60 {
		t.Errorf("%d places, %d of them low with a harmless call: this test does not see what is judged", places, low)
	}
}
