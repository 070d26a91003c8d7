package risk

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/web"
)

// A tool of which nothing is declared is high, whatever it is called. Its
// arguments are searched besides for what cannot be undone: a string that is
// SQL from end to end, a command, a request. What is found raises the verdict;
// what is not found proves nothing.

const (
	maxScanned = 1 << 20 // bytes of one string
	maxJudged  = 256     // strings of one call that are worth a parse
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type scan struct {
	engine *Engine
	found  *finding.List
	budget int
}

func (e *Engine) scan(l *finding.List, args json.RawMessage) {
	if sql, shell, request := suspicious(args); !sql && !shell && !request && !bytes.Contains(args, []byte(`\u`)) {
		return
	}
	doc, err := decode(args)
	if err != nil {
		l.Add(sallyport.Critical, "the arguments are not valid JSON")
		return
	}
	s := &scan{engine: e, found: l, budget: maxJudged}
	s.value(doc, 0)
}

func (s *scan) value(v any, depth int) {
	if depth > 2*sallyport.MaxDepth {
		s.found.Add(sallyport.Critical, "the arguments are nested too deeply to judge")
		return
	}
	switch v := v.(type) {
	case string:
		s.text(v, depth)
	case []any:
		for _, e := range v {
			s.value(e, depth+1)
		}
		if line, ok := argv(v).(string); ok && len(v) > 1 {
			s.command(line)
		}
	case map[string]any:
		s.request(v)
		s.program(v)
		for _, k := range sortedKeys(v) {
			if strings.ContainsAny(k, " \t\n") {
				s.text(k, depth)
			}
			s.value(v[k], depth+1)
		}
	}
}

func (s *scan) text(text string, depth int) {
	if inner, ok := nested(text); ok && depth < 2*sallyport.MaxDepth {
		s.value(inner, depth+8)
		return
	}
	sql, shell, _ := suspicious([]byte(text))
	if sql && (strings.ContainsAny(text, " \t\r\n\f\v") || strings.Contains(text, "/*")) {
		s.sql(text)
	}
	if shell {
		s.command(text)
	}
	if words := strings.Fields(text); len(words) == 2 && len(text) < 4096 && isRemoving(words[0]) && isURL(words[1]) {
		s.found.Merge(web.Judge(web.Request{Method: words[0], URL: words[1]}))
	}
}

func (s *scan) spend() bool {
	if s.budget--; s.budget < 0 {
		s.found.Add(sallyport.Critical, "the arguments hold too much that looks like commands to judge it all")
		return false
	}
	return true
}

// alarming are the statements that raise an undeclared tool to critical though
// they can be undone.
var alarming = map[string]bool{
	"AlterTableStmt": true, "GrantStmt": true, "GrantRoleStmt": true, "AlterRoleStmt": true, "AlterRoleSetStmt": true,
	"CreateRoleStmt": true, "AlterSystemStmt": true, "AlterOwnerStmt": true, "AlterDatabaseStmt": true, "AlterDefaultPrivilegesStmt": true,
	"DoStmt": true, "RenameStmt": true, "ReassignOwnedStmt": true, "AlterObjectSchemaStmt": true, "AlterDatabaseSetStmt": true,
}

func (s *scan) sql(text string) {
	if !s.spend() {
		return
	}
	j := s.engine.postgres.Judge(text)
	if strings.ContainsAny(text, "`#!") && (!j.Parsed || j.Risk.Level < sallyport.Critical) {
		if other := s.engine.postgres.Judge(likePostgres(text)); other.Parsed {
			j = other
		}
	}
	if j.Parsed && j.Risk.Irreversible {
		s.found.Merge(j.Risk)
		return
	}
	if j.Parsed && slices.ContainsFunc(j.Kinds, func(k string) bool { return alarming[k] }) {
		s.found.Merge(j.Risk)
		s.found.Add(sallyport.Critical, "an argument is SQL that changes the schema or privileges")
	}
	// Comments nest in PostgreSQL and not in others, so what is a comment there may act here.
	comments := strings.Contains(text, "/*")
	if j.Parsed && !comments {
		return
	}
	if r, parsed := s.engine.sqlite.Judge(text); r.Irreversible && (parsed || comments) {
		s.found.Merge(r)
	}
}

// command judges a text as a shell script, and heeds only what is clearly
// destructive in it.
func (s *scan) command(text string) {
	if !clearly.MatchString(text) || len(text) > maxScanned || !s.spend() {
		return
	}
	if r, parsed := s.engine.commands.Judge(text); parsed && r.Irreversible {
		s.found.Merge(r)
	}
}

// clearly finds commands that hardly stand in a text by chance.
var clearly = regexp.MustCompile(`(?i)\brm['"]*\s+['"]*-[a-z-]*[rf]|\bmkfs|\bdd['"]*\s.*\bof=|\b(curl|wget)\b[^;&]*\|\s*(sudo\s+)?\w*sh\b|\b(ba|z|da|k)?sh\b.*\b(curl|wget)\b|\bshred\b|\bwipefs\b|\bblkdiscard\b|\bfind\b.*-(delete|exec)|>\s*/dev/(sd|nvme|vd|hd|xvd|disk|mapper)|\b(kubectl|aws|gcloud|terraform|docker|helm|git|psql|mysql|redis-cli|dropdb|truncate)['"]*\s|\bxargs\s+rm\b`)

// program tries each single word of an object with each list of words in it:
// {"command": "rm", "args": ["-rf", "/"]}, whatever the names are.
func (s *scan) program(object map[string]any) {
	for _, k := range sortedKeys(object) {
		list, ok := object[k].([]any)
		if !ok || len(list) == 0 {
			continue
		}
		for _, other := range sortedKeys(object) {
			word, ok := object[other].(string)
			if !ok || word == "" || len(word) > 256 || strings.ContainsAny(word, " \t\n") {
				continue
			}
			if line, ok := argv(append([]any{word}, list...)).(string); ok {
				s.command(line)
			}
		}
	}
}

// request finds a method and a URL side by side, whatever their names are.
func (s *scan) request(object map[string]any) {
	method, address := "", ""
	for _, k := range sortedKeys(object) {
		v, ok := object[k].(string)
		switch {
		case !ok:
		case isRemoving(v):
			method = v
		case isURL(v):
			address = v
		}
	}
	if method != "" && address != "" {
		s.found.Merge(web.Judge(web.Request{Method: method, URL: address}))
	}
}

func isRemoving(method string) bool {
	return strings.EqualFold(method, "DELETE") || strings.EqualFold(method, "PURGE")
}

func isURL(s string) bool {
	return len(s) > 8 && (strings.EqualFold(s[:7], "http://") || strings.EqualFold(s[:8], "https://"))
}

// suspicious tells in one pass, without allocation, whether JSON or text holds
// a word that statements, commands or requests begin with.
func suspicious(b []byte) (sql, shell, request bool) {
	for i := 0; i < len(b); {
		c := b[i]
		if c == '\\' {
			i += 2 // an escape of JSON, or a backslash of the text's own
			continue
		}
		if !isLetter(c) {
			i++
			continue
		}
		start := i
		for i < len(b) && (isLetter(b[i]) || b[i] >= '0' && b[i] <= '9' || b[i] == '_') {
			i++
		}
		if i-start < 2 || i-start > 10 {
			continue
		}
		var low [10]byte
		word := low[:i-start]
		for j := range word {
			word[j] = b[start+j] | 0x20
		}
		switch string(word) {
		case "truncate":
			sql, shell = true, true
		case "drop", "alter", "grant", "revoke", "update", "merge", "copy", "do", "replace", "reassign", "vacuum", "call", "rename":
			sql = true
		case "delete":
			sql, request = true, true
		case "purge":
			request = true
		case "rm", "mkfs", "dd", "shred", "wipefs", "sh", "bash", "zsh", "curl", "wget", "find", "blkdiscard", "git", "kubectl", "aws", "gcloud",
			"terraform", "docker", "helm", "psql", "mysql", "redis", "dropdb", "xargs", "dev":
			shell = true
		}
	}
	return sql, shell, request
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
