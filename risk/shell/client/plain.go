package client

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// plainOptions are those of clients whose dialect no parser here reads.
var plainOptions = map[string]word.Options{
	"duckdb":            word.ParseOptions(`-c= -s= -readonly -csv -json -markdown -box -line -list -table -column -header -noheader -batch -bail -safe`),
	"clickhouse-client": word.ParseOptions(`-q= --query= -h= --host= --port= -u= --user= --password= -d= --database= --format= -f= -s --secure -t --time -m -n --multiquery --readonly= --max_rows_to_read= --max_execution_time=`),
	"cqlsh":             word.ParseOptions(`-e= --execute= -u= -p= -k= --username= --password= --keyspace= --ssl --no-color --request-timeout= --connect-timeout=`),
}

// plainWord begins a statement that only asks.
var plainWord = regexp.MustCompile(`(?i)^\s*(select|with|from|describe|desc|show|explain|summarize|values|table)\b`)

// acting are words of statements, and functions, that do more than ask; orders to
// the clients are no words that a statement begins with.
var acting = regexp.MustCompile(`(?i)\b(insert|update|delete|drop|create|alter|copy|attach|detach|install|load|import|export|call|set|reset|vacuum|checkpoint|truncate|merge|into|outfile|pragma|execute|prepare|grant|revoke|kill|system|optimize|rename|exchange|undrop|nextval|query|query_table|url|urlcluster|remote|remotesecure|executable|mysql|postgresql|jdbc|odbc|s3|s3cluster|hdfs|mongodb|redis|input|sqlite|sqlite_scan|postgres_scan|postgres_query|mysql_scan|mysql_query|postgres_execute|mysql_execute|getenv|read_text|read_blob|source|begin|batch|use|sleep|azureblobstorage|gcs|iceberg|deltalake|hudi|file|filecluster|parallel_scan|shell|which_secret|duckdb_secrets|write_log|enable_logging|http_get|http_post)\b`)

var quoted = regexp.MustCompile(`'(?:[^']|'')*'|"(?:[^"]|"")*"`)

// Plain tells a use of a client that only asks by one statement, as far as its
// words tell without a parser of the dialect.
func Plain(name string, args []word.Word) bool {
	o, ok := plainOptions[name]
	r := o.Read(args, false)
	if !ok || r.Bad != "" || slices.ContainsFunc(args, func(a word.Word) bool { return a.Loose }) || len(r.Rest) > 2 {
		return false
	}
	n := 0
	for _, g := range r.Given {
		switch g.Name {
		case "-c", "-s", "-q", "-e", "--query", "--execute":
			if g.Name == "-s" && name != "duckdb" {
				continue
			}
			if n++; !g.Value.Known || !PlainSelect(g.Value.Text) {
				return false
			}
		}
	}
	return n == 1 && (name == "cqlsh" || len(r.Rest) <= 1)
}

// PlainSelect tells one statement that only asks.
func PlainSelect(text string) bool {
	text = strings.TrimRight(strings.TrimSpace(text), "; ")
	for _, differs := range []string{`\`, "--", "/*", "//", "#", "$", "`", "://", "\n.", "{"} {
		if strings.Contains(text, differs) {
			return false // where texts end may differ, or they reach elsewhere
		}
	}
	bare := quoted.ReplaceAllString(text, "''")
	return plainWord.MatchString(text) && !strings.Contains(bare, ";") && strings.Count(bare, "'")%2 == 0 && !strings.Contains(bare, `"`) && !acting.MatchString(bare)
}
