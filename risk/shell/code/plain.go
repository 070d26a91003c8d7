package code

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// plain are the one-line programs of languages that are not read otherwise: sums,
// and for Perl the filters by one plain expression or field.
var plain = map[string]*regexp.Regexp{
	"perl": regexp.MustCompile(`^\s*(?:(?:print|say)\s*[\d\s.+*()%-]+|print\s+(?:if|unless)\s+/[\w\s.,:;=^|*+?-]+\$?/i?|print\s+\$F\[-?\d+\]|s/[\w\s.,:;=^*+?-]+/[\w\s.,:;=-]*/[gi]*);?\s*$`),
	"ruby": regexp.MustCompile(`^\s*(?:p|puts|print)\s*[\d\s.+*()%-]+(?:\.sum|\.to_s|\.to_a)?\s*$`),
	"php":  regexp.MustCompile(`^\s*echo\s*(?:[\d\s.+*()%-]+|PHP_VERSION|PHP_OS)(?:,\s*PHP_EOL)?;\s*$`),
	"lua":  regexp.MustCompile(`^\s*print\s*\([\d\s.+*()%^-]+\)\s*$`),
}

var plainFlags = map[string]map[string]bool{
	"perl": word.Set(`-e -E -le -lE -ne -pe -lne -nle -lane -ane`), "ruby": word.Set(`-e`), "php": word.Set(`-r`), "lua": word.Set(`-e`),
}

var plainFile = regexp.MustCompile(`^[\w./][\w./-]*$`) // Perl runs names that end in a pipe

// Plain tells a program given in one word that only calculates, or filters the
// files whose names follow it.
func Plain(name string, args []word.Word) bool {
	if len(args) < 2 || !args[0].Literal() || !plainFlags[name][args[0].Text] || !args[1].Literal() || !plain[name].MatchString(args[1].Text) {
		return false
	}
	for _, a := range args[2:] {
		if !a.Literal() || !plainFile.MatchString(a.Text) {
			return false
		}
	}
	return !strings.Contains(args[1].Text, "(?")
}
