package client

import (
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// queryOptions are those of bq query that change how it asks and prints.
var queryOptions = word.ParseOptions(`--use_legacy_sql[= --nouse_legacy_sql --format= --max_rows= -n= --dry_run[= --location= --project_id= --dataset_id=
	--quiet --headless -q --maximum_bytes_billed= --nosync --use_cache[= --nouse_cache --label= --batch[=`)

// BigQuery returns the statement of bq query 'SELECT …', as PostgreSQL's parser
// reads it. It reports false for what is none of it.
func BigQuery(args []word.Word) (sql string, ok bool) {
	r := queryOptions.Read(args, false)
	if r.Bad != "" || len(r.Rest) != 2 || !r.Rest[0].Is("query") || !r.Rest[1].Known {
		return "", false
	}
	return asPostgres(r.Rest[1].Text)
}

// asPostgres writes a text of BigQuery's as PostgreSQL's parser reads it, if
// both end strings, names and comments at the same places.
func asPostgres(text string) (string, bool) {
	for _, differs := range []string{`\`, "#", "$", "/*", "'''", `"""`, "''", `""`, "@@"} {
		if strings.Contains(text, differs) {
			return "", false
		}
	}
	if strings.Contains(text, "`") {
		if strings.Contains(text, `"`) || strings.Contains(text, "'") || strings.Contains(text, "--") {
			return "", false // a quote within a quote
		}
		text = strings.ReplaceAll(text, "`", `"`)
	}
	return text, true
}
