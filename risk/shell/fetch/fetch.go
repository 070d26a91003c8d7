// Package fetch reads the words of the programs that send requests.
package fetch

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// Bundled reads -sIXPOST or -sIX POST: the letters that take no value, and the
// option that does, if there is one.
func Bundled(letters, next string) (flags, name, value string) {
	for j := 1; j < len(letters); j++ {
		if strings.IndexByte("XdFTHoAembruwx", letters[j]) < 0 {
			continue
		}
		if j+1 < len(letters) {
			next = letters[j+1:]
		}
		return letters[1:j], "-" + letters[j:j+1], next
	}
	return letters[1:], "", ""
}

// Files are the words of curl without those that are no files: the headers.
func Files(args []word.Word) (out []word.Word) {
	for i, a := range args {
		if i > 0 && args[i-1].Is("-H", "--header", "-A", "--user-agent", "-e", "--referer") && !strings.HasPrefix(a.Text, "@") && !a.Option() {
			a = word.Word{Text: "header", Known: a.Known}
		}
		out = append(out, a)
	}
	return out
}

var httpieOptions = word.ParseOptions(`-p= --print= -h --headers -b --body -v --verbose -j --json -f --form --follow -F --timeout= -a= --auth= --check-status -I --ignore-stdin --pretty= -s= --style= --max-redirects= --all -q --quiet`)

// HTTPie reads http METHOD URL, where nothing is sent but headers and a query.
func HTTPie(args []word.Word) (method string, address word.Word, ok bool) {
	r := httpieOptions.Read(args, false)
	sends := func(a word.Word) bool {
		return !a.Known || strings.Contains(a.Text, "@") || !strings.Contains(a.Text, "==") && (!strings.Contains(a.Text, ":") || strings.Contains(a.Text, "="))
	}
	if r.Bad != "" || len(r.Rest) < 2 || !r.Rest[0].Is("GET", "HEAD", "OPTIONS") || slices.ContainsFunc(r.Rest[2:], sends) {
		return "", word.Word{}, false
	}
	return r.Rest[0].Text, r.Rest[1], true
}
