package litesql

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SQLite prepares a statement only against a schema that has all it names. The
// real one is not known here, so one is made up: whatever an error says is
// missing is added, and the statement is tried again.

type table struct {
	schema, name string
	columns      []string
	fill         int // at least so many columns
	unique       [][]string
	banned       map[string]bool
}

type schema struct {
	session  *session
	tables   []*table
	attached []string
	seeded   int // tables whose columns were guessed from the whole text
}

const (
	maxTables  = 64
	maxColumns = 512
)

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (t *table) full() string {
	if t.schema == "" {
		return quote(t.name)
	}
	return quote(t.schema) + "." + quote(t.name)
}

func (t *table) has(column string) bool {
	return slices.ContainsFunc(t.columns, func(c string) bool { return strings.EqualFold(c, column) })
}

func (t *table) add(column string) bool {
	if t.has(column) || t.banned[strings.ToLower(column)] || len(t.columns) >= maxColumns {
		return false
	}
	t.columns = append(t.columns, column)
	return true
}

func (s *schema) build(t *table) bool {
	columns := make([]string, 0, len(t.columns)+t.fill)
	for _, c := range t.columns {
		columns = append(columns, quote(c))
	}
	for i := 0; len(columns) < max(t.fill, 1); i++ {
		columns = append(columns, quote(fmt.Sprintf("sallyport fill %d", i)))
	}
	for _, u := range t.unique {
		names := make([]string, len(u))
		for i, c := range u {
			names[i] = quote(c)
		}
		columns = append(columns, "UNIQUE("+strings.Join(names, ",")+")")
	}
	s.session.run("DROP TABLE IF EXISTS " + t.full())
	return s.session.run("CREATE TABLE " + t.full() + "(" + strings.Join(columns, ",") + ")")
}

func (s *schema) find(name string) *table {
	_, bare := cutSchema(name)
	for _, t := range s.tables {
		if strings.EqualFold(t.name, bare) {
			return t
		}
	}
	return nil
}

func cutSchema(name string) (schemaName, bare string) {
	if a, b, ok := strings.Cut(name, "."); ok {
		return a, b
	}
	return "", name
}

var (
	noTable   = regexp.MustCompile(`(?s)^no such table: (.+)$`)
	noColumn  = regexp.MustCompile(`(?s)^no such column: (.+?)(?: - should this be a string literal in single-quotes\?)?$`)
	ambiguous = regexp.MustCompile(`(?s)^ambiguous column name: (.+)$`)
	noSchema  = regexp.MustCompile(`(?s)^unknown database:? (.+)$`)
	tooMany   = regexp.MustCompile(`(?s)^table (.+) has \d+ columns but (\d+) values were supplied$`)
	notNamed  = regexp.MustCompile(`(?s)^table (.+) has no column named (.+)$`)
	notBoth   = regexp.MustCompile(`(?s)^cannot join using column (.+) - column not present in both tables$`)
	noIndex   = regexp.MustCompile(`(?s)^no such index: (.+)$`)
	noReindex = "unable to identify the object to be reindexed"
	noTarget  = "ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint"
)

// mend adds what the error says is missing. It reports false when it cannot.
func (s *schema) mend(message string, list []token) bool {
	if m := noTable.FindStringSubmatch(message); m != nil {
		return s.addTable(m[1])
	}
	if message == noReindex && len(list) > 1 {
		return s.addTable(unquoted(list[1:]))
	}
	if m := noSchema.FindStringSubmatch(message); m != nil {
		return s.attach(m[1])
	}
	if m := noColumn.FindStringSubmatch(message); m != nil {
		return s.addColumn(m[1], list)
	}
	if m := notNamed.FindStringSubmatch(message); m != nil {
		t := s.find(m[1])
		return t != nil && t.add(m[2]) && s.build(t)
	}
	if m := tooMany.FindStringSubmatch(message); m != nil {
		t, n := s.find(m[1]), 0
		n, _ = strconv.Atoi(m[2])
		if t == nil || n > maxColumns || n <= t.fill {
			return false
		}
		t.fill = n
		return s.build(t)
	}
	if m := notBoth.FindStringSubmatch(message); m != nil {
		changed := false
		for _, t := range s.tables {
			delete(t.banned, strings.ToLower(m[1]))
			changed = t.add(m[1]) && s.build(t) || changed
		}
		return changed
	}
	if m := ambiguous.FindStringSubmatch(message); m != nil {
		return s.removeColumn(m[1])
	}
	if m := noIndex.FindStringSubmatch(message); m != nil && len(s.tables) > 0 {
		t := s.tables[0]
		return s.session.run("CREATE INDEX " + quote(m[1]) + " ON " + quote(t.name) + "(rowid+1)")
	}
	if message == noTarget {
		return s.addUnique(list)
	}
	return false
}

func (s *schema) addTable(name string) bool {
	schemaName, bare := cutSchema(name)
	switch {
	case len(s.tables) >= maxTables:
		return false
	case strings.EqualFold(bare, "sqlite_sequence"):
		return s.session.run(`CREATE TABLE "sallyport counted" (a INTEGER PRIMARY KEY AUTOINCREMENT)`)
	case strings.EqualFold(bare, "sqlite_stat1") || strings.EqualFold(bare, "sqlite_stat4"):
		return s.session.run("ANALYZE")
	case strings.HasPrefix(strings.ToLower(bare), "sqlite_"):
		return false
	}
	if strings.EqualFold(schemaName, "temp") {
		schemaName = "temp"
	}
	if schemaName != "" && !strings.EqualFold(schemaName, "main") && schemaName != "temp" && !slices.Contains(s.attached, strings.ToLower(schemaName)) {
		return s.attach(schemaName)
	}
	t := &table{schema: schemaName, name: bare, banned: map[string]bool{}}
	if !s.build(t) {
		return false
	}
	s.tables = append(s.tables, t)
	return true
}

func (s *schema) attach(name string) bool {
	if len(s.attached) >= 8 || slices.Contains(s.attached, strings.ToLower(name)) {
		return false
	}
	s.attached = append(s.attached, strings.ToLower(name))
	return s.session.run("ATTACH ':memory:' AS " + quote(name))
}

// addColumn gives a missing column to a table: to the one that its qualifier
// names; else to the first that lacks it.
func (s *schema) addColumn(name string, list []token) bool {
	if len(s.tables) == 1 && s.seeded == 0 {
		s.seeded = 1
		return s.seed(s.tables[0], name, list)
	}
	parts := strings.Split(name, ".")
	column := parts[len(parts)-1]
	if len(parts) > 1 {
		if t := s.aliased(parts[len(parts)-2], list); t != nil && t.add(column) {
			return s.build(t)
		}
		changed := false
		for _, t := range s.tables {
			changed = t.add(column) && s.build(t) || changed
		}
		return changed
	}
	for _, t := range s.tables {
		if t.add(column) {
			return s.build(t)
		}
	}
	return false
}

// seed gives the only table every name in the text at once.
func (s *schema) seed(t *table, missing string, list []token) bool {
	parts := strings.Split(missing, ".")
	t.add(parts[len(parts)-1])
	for _, tok := range list {
		if tok.kind == quoted && tok.value != "" || tok.kind == word && !keyword(tok.value) {
			t.add(tok.value)
		}
	}
	return s.build(t)
}

// keyword knows the words that stand in most statements and are no columns.
func keyword(w string) bool {
	switch strings.ToLower(w) {
	case "select", "from", "where", "and", "or", "not", "null", "is", "in", "as", "on", "by", "group", "order", "limit",
		"join", "left", "inner", "outer", "update", "set", "insert", "into", "values", "delete", "rowid", "oid", "_rowid_":
		return true
	}
	return false
}

// aliased finds the table that an alias or name stands for: the last name that
// is a table's and is followed by [AS] alias.
func (s *schema) aliased(alias string, list []token) *table {
	if t := s.find(alias); t != nil {
		return t
	}
	for i, tok := range list {
		t := s.find(tok.value)
		if t == nil || tok.kind != word && tok.kind != quoted {
			continue
		}
		j := i + 1
		if j < len(list) && list[j].is("as") {
			j++
		}
		if j < len(list) && strings.EqualFold(list[j].value, alias) {
			return t
		}
	}
	return nil
}

func (s *schema) removeColumn(name string) bool {
	parts := strings.Split(name, ".")
	column := parts[len(parts)-1]
	for _, t := range s.tables {
		i := slices.IndexFunc(t.columns, func(c string) bool { return strings.EqualFold(c, column) })
		if i >= 0 {
			t.columns = slices.Delete(t.columns, i, i+1)
			t.banned[strings.ToLower(column)] = true
			return s.build(t)
		}
	}
	return false
}

// addUnique makes the columns of ON CONFLICT (a, b) unique.
func (s *schema) addUnique(list []token) bool {
	changed := false
	for i := 0; i+2 < len(list); i++ {
		if !list[i].is("on") || !list[i+1].is("conflict") || !list[i+2].op("(") {
			continue
		}
		var columns []string
		for j := i + 3; j < len(list) && !list[j].op(")"); j++ {
			if list[j].kind == word || list[j].kind == quoted {
				columns = append(columns, list[j].value)
			}
		}
		for _, t := range s.tables {
			if len(t.unique) > 4 || slices.ContainsFunc(t.unique, func(u []string) bool { return slices.Equal(u, columns) }) {
				continue
			}
			if slices.ContainsFunc(columns, func(c string) bool { return !t.has(c) }) {
				continue
			}
			t.unique = append(t.unique, columns)
			changed = s.build(t) || changed
		}
	}
	return changed
}
