package risk

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// plainSelect is a single SELECT of names, numbers, strings without backslash,
// comparisons and a few functions: what MySQL and PostgreSQL read alike.
var plainSelect = regexp.MustCompile("(?is)^\\s*select\\s[a-z0-9_\\s.,*()=<>!'%+`-]+;?\\s*$")

var (
	notPlain  = regexp.MustCompile(`(?i)--|/\*|#|\b(into|for|lock|procedure|union|with|handler|load|outfile|dumpfile|sleep|benchmark)\b|:=|@`)
	functions = regexp.MustCompile(`(?i)([a-z0-9_]+)\s*\(`)
	mysqlSafe = map[string]bool{
		"count": true, "sum": true, "min": true, "max": true, "avg": true, "lower": true, "upper": true, "coalesce": true,
		"now": true, "date": true, "round": true, "abs": true, "concat": true, "length": true, "in": true, "and": true, "or": true,
		"where": true, "from": true, "on": true, "select": true, "distinct": true, "not": true, "values": true, "exists": true, "as": true,
		"join": true, "by": true, "trim": true, "year": true, "month": true, "substring": true,
	}
)

// mysql judges MySQL text as far as that goes without a parser for it: one
// plain SELECT passes, all else is critical.
func (e *Engine) mysql(text string) sallyport.Risk {
	like := e.postgres.Judge(likePostgres(text))
	if plainSelect.MatchString(text) && !notPlain.MatchString(text) && like.Parsed && like.Risk.Level <= sallyport.Medium && len(like.Kinds) == 1 {
		known := true
		for _, f := range functions.FindAllStringSubmatch(text, -1) {
			known = known && mysqlSafe[strings.ToLower(f[1])]
		}
		if known {
			return like.Risk
		}
	}
	var l finding.List
	if like.Parsed && like.Risk.Irreversible {
		l.Merge(like.Risk)
	}
	l.Add(sallyport.Critical, "the MySQL analyser is not built in yet: only a plain single SELECT can be judged")
	return l.Risk()
}

var (
	executableComment = regexp.MustCompile(`(?s)/\*[!M]!?\d*(.*?)\*/`)
	hashComment       = regexp.MustCompile(`(?m)#`)
)

// likePostgres rewrites what only MySQL knows: comments that are executed, #
// comments and names in backquotes. It serves to find what is destructive, not
// to prove anything harmless.
func likePostgres(text string) string {
	text = executableComment.ReplaceAllString(text, " $1 ")
	text = hashComment.ReplaceAllString(text, "--")
	return strings.ReplaceAll(text, "`", `"`)
}
