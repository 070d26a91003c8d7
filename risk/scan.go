package risk

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
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
	engine *sitting
	found  *finding.List
	budget int
	seen   sightings

	sqlish, shellish bool // there may be SQL, or commands, in the arguments
}

// scan searches the arguments of a tool of which nothing is declared, or none of
// whose declared arguments is there.
func (e *sitting) scan(l *finding.List, tool sallyport.Tool, args json.RawMessage) {
	doc, err := decode(args)
	if err != nil {
		l.Add(sallyport.Critical, "the arguments are not valid JSON")
		return
	}
	shape := e.shapes.of(tool)
	e.search(l, shape, shape.fill(doc), args)
}

// search looks through arguments, or those of them that nobody declared; args is
// how they are written.
func (e *sitting) search(l *finding.List, shape *shape, doc any, args json.RawMessage) {
	s := &scan{engine: e, found: l, budget: maxJudged}
	s.sqlish, s.shellish = suspicious(args)
	s.sqlish = s.sqlish || bytes.Contains(args, []byte(`\u`)) || shape.defaults
	s.shellish = s.shellish || s.sqlish
	s.value(doc, 0)
	shape.told(s, doc)
	s.seen.judge(s)
}

func (s *scan) value(v any, depth int) {
	if s.late() {
		return
	}
	if depth > 2*sallyport.MaxDepth {
		s.found.Add(sallyport.Critical, "the arguments are nested too deeply to judge")
		return
	}
	switch v := v.(type) {
	case string:
		s.text(v, depth)
	case json.Number:
		s.seen.number(v.String(), true)
	case []any:
		for _, e := range v {
			s.value(e, depth+1)
		}
		if line, ok := argv(unquoted(v)).(string); ok && len(v) > 1 {
			s.command(line)
		}
	case map[string]any:
		s.program(v)
		s.manifest(v, depth)
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
	s.seen.text(text)
	if cloud.IsManifest(text) && s.spend() {
		s.found.Merge(cloud.Manifest(text))
	}
	if strings.Contains(text, "(") {
		s.code(text)
	}
	if !s.sqlish && !s.shellish {
		return
	}
	sql, shell := suspicious([]byte(text))
	if sql && (strings.ContainsAny(text, " \t\r\n\f\v") || strings.Contains(text, "/*")) {
		s.sql(text)
	}
	if shell {
		s.command(text)
	}
}

// deletingCode finds calls by which programs of other languages delete files, and
// startingCode those that run a command which is written in them.
var (
	deletingCode = regexp.MustCompile(`\b(?:os\s*\.\s*(?:remove|unlink|removedirs|rmdir)|shutil\s*\.\s*rmtree|(?:rm|unlink|rmdir)Sync|FileUtils\.rm\w*|File\.(?:delete|unlink))\s*\(`)
	startingCode = regexp.MustCompile(`(?:exec|execSync|spawn|spawnSync|system|popen|Popen|run|call|check_call|check_output)\s*\(\s*(?:"([^"\n]+)"|'([^'\n]+)')`)
)

// code looks at a text as a program.
func (s *scan) code(text string) {
	if len(text) > finding.MaxText {
		return
	}
	if deletingCode.MatchString(text) {
		s.found.Effect(sallyport.EffectDelete)
		s.found.Lost("an argument looks like code that deletes files")
	}
	for _, m := range startingCode.FindAllStringSubmatch(text, maxInCode) {
		s.command(m[1] + m[2])
	}
}

const maxInCode = 16 // commands in one text that are judged

func (s *scan) spend() bool {
	if s.late() {
		return false
	}
	if s.budget--; s.budget < 0 {
		s.found.Add(sallyport.Critical, "the arguments hold too much that looks like commands to judge it all")
		return false
	}
	return true
}

// late tells that there is no time left to judge, and notes it.
func (s *scan) late() bool {
	why := s.engine.late()
	if why != "" {
		s.found.Add(sallyport.Critical, "%s", why)
	}
	return why != ""
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
	if len(text) > finding.MaxText {
		if statement.MatchString(text) {
			s.found.Add(sallyport.Critical, "an argument looks like SQL, and is too long to judge: %d bytes, and %d is the most", len(text), finding.MaxText)
		}
		return
	}
	j := s.engine.parse(text)
	if strings.ContainsAny(text, "`#!") && (!j.Parsed || j.Risk.Level < sallyport.Critical) {
		if r, parsed := s.engine.mysql.Judge(text); parsed && r.Irreversible {
			s.found.Merge(r)
			return
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
	if len(text) > maxScanned {
		return
	}
	for _, script := range judgeable(text) {
		if !clearly.MatchString(script) || !s.spend() {
			continue
		}
		if r, parsed := s.engine.commands.Judge(script); parsed && r.Irreversible {
			s.found.Merge(r)
		}
	}
}

// judgeable is a script; of one that is too long, the lines at its beginning and
// at its end, which a shell runs whatever lies between.
func judgeable(text string) []string {
	if len(text) <= finding.MaxText {
		return []string{text}
	}
	head, tail := text[:finding.MaxText], text[len(text)-finding.MaxText:]
	return []string{head[:strings.LastIndexByte(head, '\n')+1], tail[strings.IndexByte(tail, '\n')+1:]}
}

// statement finds what a text of SQL begins with.
var statement = regexp.MustCompile(`(?is)^(?:\s|--[^\n]*\n|#[^\n]*\n|/\*[^!].*?\*/|[;(])*(?:/\*!\d*\s*)?(?:drop|delete|truncate|update|alter|grant|revoke|insert|merge|copy|do|replace|reassign|vacuum|call|with|select|explain|create|set|begin|start|rename)\b`)

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
			word, ok := unquote(object[other]).(string)
			if !ok || word == "" || len(word) > 256 || strings.ContainsAny(word, " \t\n") {
				continue
			}
			if line, ok := argv(append([]any{word}, unquoted(list)...)).(string); ok {
				s.command(line)
			}
		}
	}
}

// manifest judges an argument that is itself a Kubernetes object.
func (s *scan) manifest(object map[string]any, depth int) {
	_, version := object["apiVersion"].(string)
	_, kind := object["kind"].(string)
	if depth > 0 && version && kind && s.spend() {
		s.found.Merge(cloud.Object(plainJSON(object)))
	}
}

// unquoted takes the texts of a list out of the JSON that they may be written in.
func unquoted(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = unquote(v)
	}
	return out
}

func unquote(v any) any {
	for range maxUnwrap {
		s, ok := v.(string)
		if !ok || len(s) < 2 || s[0] != '"' {
			break
		}
		inner, ok := nested(s)
		if !ok {
			break
		}
		v = inner
	}
	return v
}

func isURL(s string) bool {
	return len(s) > 8 && (strings.EqualFold(s[:7], "http://") || strings.EqualFold(s[:8], "https://"))
}

// suspicious tells in one pass, without allocation, whether JSON or text holds
// a word that statements or commands begin with.
func suspicious(b []byte) (sql, shell bool) {
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
		case "drop", "delete", "alter", "grant", "revoke", "update", "merge", "copy", "do", "replace", "reassign", "vacuum", "call", "rename":
			sql = true
		case "rm", "mkfs", "dd", "shred", "wipefs", "sh", "bash", "zsh", "curl", "wget", "find", "blkdiscard", "git", "kubectl", "aws", "gcloud",
			"terraform", "docker", "helm", "psql", "mysql", "redis", "dropdb", "xargs", "dev":
			shell = true
		}
	}
	return sql, shell
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
