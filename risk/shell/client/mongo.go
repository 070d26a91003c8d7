package client

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

var mongoOptions = word.ParseOptions(`--quiet --eval= --host= --port= -u= -p= --username= --password= --authenticationDatabase= --norc --tls --ssl --json[= --nodb`)

// mongoAsks are what may be called in a script of MongoDB's shell.
var mongoAsks = word.Set(`find findOne count countDocuments estimatedDocumentCount distinct aggregate explain sort limit skip toArray forEach map pretty hint maxTimeMS projection batchSize
	collation hasNext next itcount size stats dataSize storageSize totalSize totalIndexSize getIndexes getIndexKeys isCapped latencyStats getCollectionNames getCollectionInfos getCollection getName getSiblingDB
	serverStatus hostInfo version serverBuildInfo currentOp getProfilingStatus getReplicationInfo printReplicationInfo printSecondaryReplicationInfo hello isMaster
	status conf config getMongo getDBNames getDBs print printjson stringify tojson ObjectId ISODate NumberLong NumberInt NumberDecimal UUID Date keys values entries length
	slice join filter reduce some every includes push toFixed toString toISOString getTime getTimestamp Number String round floor max min now`)

// mongoActs are names that may act, or lead to what does. They stand nowhere but as keys.
var mongoActs = regexp.MustCompile(`(?i)^_*(drop|delete|remove|insert|update|replace|create|rename|bulk|findand|save|kill|shut|fsync|run|admin|eval|load|copy|clone|convert|set|enable|disable|add|grant|revoke|exec|spawn|require|import|process|fs|global|this|function|constructor|prototype|__|cat|ls$|cd$|pwd|write|remove|compact|reindex|watch|log(out|rotate)|re(config|sync|lease)|step|free|init|start|stop|abort|commit|unset|ensure|hide|unhide|validate|repair|move|split|merge|shard|balancer|refine|reset|passwd|change|edit|buildinfo|mapreduce|with|sleep|quit|exit|use$|sh$|opcounters$|lock|un)`)

var mongoTokens = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_$][\w$]*|\d[\d.]*|[\s]+|.`)

// Mongo tells a use of mongosh that only asks.
func Mongo(args []word.Word) bool {
	r := mongoOptions.Read(args, false)
	if r.Bad != "" || len(r.Rest) > 1 || slices.ContainsFunc(args, func(a word.Word) bool { return a.Loose }) {
		return false
	}
	if len(r.Rest) == 1 && (strings.HasSuffix(r.Rest[0].Text, ".js") || strings.HasSuffix(r.Rest[0].Text, ".mongodb")) {
		return false
	}
	n := 0
	for _, g := range r.Given {
		if g.Name == "--eval" {
			if n++; !g.Value.Known || !MongoAsks(g.Value.Text) {
				return false
			}
		}
	}
	return n > 0
}

// MongoAsks tells a script of MongoDB's shell that only asks and prints: whatever
// is called is known to, and nothing that acts is named.
func MongoAsks(text string) bool {
	if len(text) > 1<<12 || strings.ContainsAny(text, "`\\\r@#") || strings.Contains(text, "//") || strings.Contains(text, "/*") {
		return false
	}
	var tokens []string
	for _, t := range mongoTokens.FindAllString(text, -1) {
		if strings.TrimSpace(t) != "" {
			tokens = append(tokens, t)
		}
	}
	at := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return tokens[i]
	}
	for i, t := range tokens {
		switch c := t[0]; {
		case c == '"' || c == '\'':
			for stage := range mongoStages {
				if strings.Contains(t, stage) {
					return false
				}
			}
			if at(i+1) == "(" {
				return false
			}
		case c == '}' && (at(i+1) == "=" || at(i+1) == "of" || at(i+1) == "in" || at(i+1) == ")" && at(i+2) == "="):
			return false // names what it takes out of something
		case c == ']' && at(i+1) == ":":
			return false // a key whose name is not seen
		case c == '[' && at(i-1) == "db" && at(i+2) == "]" && at(i+3) == "." && at(i+5) == "(":
		case c == '[' && i > 0 && isValue(at(i-1)):
			return false // a member whose name is not seen
		case c == '/' || c == '<' && at(i+1) == "<" || c > 0x7e:
			return false
		case c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			if !mongoName(t, at(i-1), at(i+1)) {
				return false
			}
		}
	}
	return len(tokens) > 0
}

var mongoStages = word.Set(`$out $merge $function $where $accumulator $eval $currentOp $listSessions`)

func isValue(before string) bool {
	return before == ")" || before == "]" || before == "}" || before[0] == '"' || before[0] == '\'' || before[0] == '_' || before[0] == '$' ||
		before[0] >= 'a' && before[0] <= 'z' || before[0] >= 'A' && before[0] <= 'Z'
}

func mongoName(t, before, after string) bool {
	switch {
	case mongoStages[t]:
		return false
	case after == "(":
		return mongoAsks[t] && (before == "." || t == "print" || t == "printjson" || t == "ObjectId" || t == "ISODate" || t == "NumberLong" || t == "NumberInt" || t == "UUID" || t == "Date" || t == "tojson" || t == "NumberDecimal" || t == "Number" || t == "String")
	case t == "new":
		return after == "Date" || after == "ObjectId"
	case after == ":" && before != "?" || strings.HasPrefix(t, "$"):
		return t != "__proto__" && t != "constructor" // a key
	}
	return !mongoActs.MatchString(t)
}
