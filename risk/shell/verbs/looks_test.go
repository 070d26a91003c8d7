package verbs_test

import (
	"os"
	"strings"
	"testing"

	"sallyport.dev/sallyport/risk/shell/verbs"
	"sallyport.dev/sallyport/risk/shell/word"
)

func said(texts ...string) []word.Word {
	var out []word.Word
	for _, s := range texts {
		out = append(out, word.Word{Text: s, Known: true})
	}
	return out
}

// Every entry of the table shows what it says, and none takes an option that
// nobody has heard of, a verb that is not there, or a word made at run time.
func TestLooksDoubt(t *testing.T) {
	data, err := os.ReadFile("looks.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen, lines := 0, strings.Split(strings.ReplaceAll(string(data), "\n\t", " "), "\n")
	star := map[string]bool{} // programs that are given any words
	for _, line := range lines {
		head, list, _ := strings.Cut(line, "|")
		for _, name := range strings.Fields(head) {
			star[name] = star[name] || strings.HasPrefix(strings.TrimSpace(list), "*")
		}
	}
	for _, line := range lines {
		head, list, ok := strings.Cut(line, "|")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		needed := ""
		if parts := strings.Split(list, "|"); len(parts) > 3 && len(strings.Fields(parts[3])) > 0 {
			needed = strings.TrimPrefix(strings.Fields(parts[3])[0], "$")
		}
		list, _, _ = strings.Cut(list, "|")
		for _, name := range strings.Fields(head)[1:] {
			for _, verb := range strings.Fields(list) {
				args := words(verb)
				if seen++; needed != "" {
					args = append(args, needed)
				}
				if _, ok := verbs.Looks(name, said(args...)); !ok {
					t.Errorf("%s %q is not found", name, args)
				}
				if _, ok := verbs.Looks(name, said(append(args, "--quux-frob=/tmp/x")...)); ok {
					t.Errorf("%s %q with an unknown option shows something", name, args)
				}
				if _, ok := verbs.Looks(name, append(said(args...), word.Word{Loose: true})); ok {
					t.Errorf("%s %q with words made at run time shows something", name, args)
				}
				if _, ok := verbs.Looks(name, said(append(args, "quux", "quux")...)); ok && strings.HasSuffix(verb, ".") && !strings.Contains(" "+list+" ", " "+strings.TrimSuffix(verb, ".")+" ") && !star[name] {
					t.Errorf("%s %q with more words shows something", name, args)
				}
			}
			if _, ok := verbs.Looks(name, said("quux-frob", "x")); ok && !star[name] {
				t.Errorf("%s quux-frob shows something", name)
			}
		}
	}
	if seen < 1500 {
		t.Errorf("%d uses, want 1500", seen)
	}
}

// words are those of a verb as the table writes it.
func words(verb string) []string {
	if verb == "." || verb == "*" {
		return nil
	}
	return strings.Split(strings.TrimRight(verb, ".:"), "/")
}
