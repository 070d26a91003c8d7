package litesql

import (
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// effects turns what the authorizer was told about one statement into findings.
func (w *walk) effects(p prepared, sql string, list []token) {
	if p.empty {
		return
	}
	lead := list[0]
	events := w.session.events
	if p.explain && !hasAction(events, sqlite3.SQLITE_PRAGMA) && !hasAction(events, sqlite3.SQLITE_ATTACH) {
		w.found.Add(sallyport.Low, "explains a statement without running it")
		return
	}
	before := w.found.Level()
	if lead.is("reindex") {
		w.found.Add(sallyport.High, "rebuilds indexes")
	}
	defines := definesSchema(events)
	for _, e := range events {
		if defines && isInternal(e.arg1) && (e.action == sqlite3.SQLITE_INSERT || e.action == sqlite3.SQLITE_UPDATE || e.action == sqlite3.SQLITE_DELETE || e.action == sqlite3.SQLITE_READ) {
			continue // how SQLite keeps its schema
		}
		w.effect(e, sql, list, lead)
	}
	switch {
	case lead.is("vacuum"):
		w.vacuum(list)
	case lead.is("replace") || lead.is("with") && has(list, "replace", "into") || has(list, "or", "replace") && (lead.is("insert") || lead.is("update") || lead.is("with")):
		w.found.Effect(sallyport.EffectDelete)
		w.found.Lost("replaces rows: those that clash are deleted and cannot be brought back")
	case lead.is("create") && has(list, "trigger"):
		w.trigger(sql)
	}
	if lead.is("create") {
		w.planted(list)
	}
	level := w.found.Level()
	if level > sallyport.Low && level >= before {
		return
	}
	if !p.readOnly && !lead.is("begin") {
		w.found.Add(sallyport.Critical, "writes in a way that the analyser does not know")
	} else if !readsOnly(lead) {
		w.found.Add(sallyport.Critical, "begins with %s, which the analyser does not know", strings.ToUpper(lead.value))
	}
}

func readsOnly(lead token) bool {
	for _, k := range []string{"select", "with", "values", "explain", "pragma", "begin", "commit", "end", "rollback", "savepoint", "release"} {
		if lead.is(k) {
			return true
		}
	}
	return lead.op("(")
}

func hasAction(events []event, action int32) bool {
	for _, e := range events {
		if e.action == action {
			return true
		}
	}
	return false
}

func isInternal(name string) bool { return strings.HasPrefix(strings.ToLower(name), "sqlite_") }

// creates and drops say what the actions of a schema change are about.
var creates = map[int32]string{
	sqlite3.SQLITE_CREATE_INDEX: "index", sqlite3.SQLITE_CREATE_TEMP_INDEX: "index", sqlite3.SQLITE_CREATE_TABLE: "table",
	sqlite3.SQLITE_CREATE_TEMP_TABLE: "table", sqlite3.SQLITE_CREATE_TRIGGER: "trigger", sqlite3.SQLITE_CREATE_TEMP_TRIGGER: "trigger",
	sqlite3.SQLITE_CREATE_VIEW: "view", sqlite3.SQLITE_CREATE_TEMP_VIEW: "view",
}

var drops = map[int32]string{
	sqlite3.SQLITE_DROP_INDEX: "index", sqlite3.SQLITE_DROP_TEMP_INDEX: "index", sqlite3.SQLITE_DROP_TABLE: "table",
	sqlite3.SQLITE_DROP_TEMP_TABLE: "table", sqlite3.SQLITE_DROP_TRIGGER: "trigger", sqlite3.SQLITE_DROP_TEMP_TRIGGER: "trigger",
	sqlite3.SQLITE_DROP_VIEW: "view", sqlite3.SQLITE_DROP_TEMP_VIEW: "view", sqlite3.SQLITE_DROP_VTABLE: "table",
}

func definesSchema(events []event) bool {
	for _, e := range events {
		switch e.action {
		case sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_REINDEX, sqlite3.SQLITE_ANALYZE, sqlite3.SQLITE_CREATE_VTABLE:
			return true
		}
		if creates[e.action] != "" || drops[e.action] != "" {
			return true
		}
	}
	return false
}

func (w *walk) effect(e event, sql string, list []token, lead token) {
	name := asWritten(e.database, e.arg1, list)
	if what := creates[e.action]; what != "" {
		if isInternal(e.arg1) {
			w.found.Add(sallyport.High, "writes SQLite's own tables")
			return
		}
		w.found.Object(name)
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "creates %s %s", what, name)
		return
	}
	if what := drops[e.action]; what != "" {
		w.dropped(what, name)
		return
	}
	switch e.action {
	case sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE:
		w.found.Effect(sallyport.EffectRead)
	case sqlite3.SQLITE_READ:
		w.read(e, name)
	case sqlite3.SQLITE_FUNCTION:
		internal := lead.is("alter") && isInternal(e.arg2)
		if !functions[strings.ToLower(e.arg2)] && !internal {
			w.found.Effect(sallyport.EffectExecute)
			w.found.Add(sallyport.Critical, "calls %s, whose effect is unknown or leaves the database", e.arg2)
		}
	case sqlite3.SQLITE_INSERT:
		w.writes(name, e.arg1)
		w.insert(name, e.arg1, list)
	case sqlite3.SQLITE_UPDATE:
		w.writes(name, e.arg1)
		w.found.Effect(sallyport.EffectWrite)
		w.update(name, sql, list, lead)
	case sqlite3.SQLITE_DELETE:
		w.writes(name, e.arg1)
		if !lead.is("drop") { // which reports the table's rows as deleted
			w.found.Effect(sallyport.EffectDelete)
			w.found.Lost("deletes rows of %s: they cannot be brought back", name)
		}
	case sqlite3.SQLITE_ALTER_TABLE:
		w.alter(asWritten(e.arg1, e.arg2, list), list)
	case sqlite3.SQLITE_PRAGMA:
		w.pragma(strings.ToLower(e.arg1), e.arg2)
	case sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT:
		w.transaction(strings.ToUpper(e.arg1), e.action == sqlite3.SQLITE_SAVEPOINT)
	case sqlite3.SQLITE_ATTACH:
		w.attaches(e.arg1)
	case sqlite3.SQLITE_DETACH:
		w.found.Add(sallyport.High, "detaches database %s", e.arg1)
	case sqlite3.SQLITE_REINDEX:
		w.found.Add(sallyport.High, "rebuilds index %s", e.arg1)
	case sqlite3.SQLITE_ANALYZE:
		w.found.Add(sallyport.High, "writes statistics about %s", e.arg1)
	case sqlite3.SQLITE_CREATE_VTABLE:
		w.virtual(e, name)
	default:
		w.found.Add(sallyport.Critical, "does something that the analyser does not know (action %d)", e.action)
	}
}

func (w *walk) read(e event, name string) {
	if pragma, ok := strings.CutPrefix(strings.ToLower(e.arg1), "pragma_"); ok && writing[pragma] { // which a SELECT from it runs
		w.pragma(pragma, e.arg2)
	}
	if !isInternal(e.arg1) && !functions[strings.ToLower(e.arg1)] {
		w.found.Object(name)
	}
	if finding.Secret(e.arg2) {
		w.found.Add(sallyport.Medium, "reads %s of %s, which by its name is secret", e.arg2, name)
	}
	if finding.Secret(e.arg1) {
		w.found.Add(sallyport.Medium, "reads %s, which by its name holds secrets", name)
	}
}

// insert judges an INSERT. One into a column that has the table's own name is a
// command of full-text search: 'delete-all' and the like.
func (w *walk) insert(name, bare string, list []token) {
	w.found.Effect(sallyport.EffectWrite)
	for i := 2; i < len(list); i++ {
		if list[i-1].op("(") && strings.EqualFold(list[i].value, bare) && strings.EqualFold(list[i-2].value, bare) {
			w.found.Lost("gives the full-text index %s a command, which may delete what it holds", name)
		}
	}
	w.found.Add(sallyport.High, "inserts into %s", name)
	if has(list, "do", "update") {
		w.upserts(name, list)
	}
}

// upserts judges ON CONFLICT … DO UPDATE. SQLite tells of it only where the
// schema, which is made up here, has the constraint that is meant.
func (w *walk) upserts(name string, list []token) {
	level := sallyport.High
	if !has(list, "values") || has(list, "select") || has(list, "from") {
		level = sallyport.Critical // as many as the query gives, which may be all
	}
	w.found.Add(level, "updates rows of %s that exist", name)
}

// attaches judges ATTACH, which opens any file that the process may open.
func (w *walk) attaches(file string) {
	w.found.Object(file)
	w.found.Effect(sallyport.EffectWrite)
	if file == ":memory:" {
		w.found.Add(sallyport.High, "opens a database in memory")
		return
	}
	w.found.Add(sallyport.Critical, "opens or creates database file %s, which no other check guards", file)
}

func (w *walk) writes(name, bare string) {
	w.found.Object(name)
	w.found.Part("", "table", name)
	if isInternal(bare) {
		w.found.Lost("writes SQLite's own table %s, which can destroy the database", name)
	}
}

func (w *walk) update(name, sql string, list []token, lead token) {
	if has(list, "do", "update") {
		w.upserts(name, list)
		return
	}
	if lead.is("insert") || lead.is("replace") || lead.is("with") && !has(list, "update") {
		w.found.Add(sallyport.High, "updates rows of %s that exist", name)
		return
	}
	where, ok := condition(sql, list)
	switch {
	case !ok:
		w.found.Lost("updates every row of %s: it has no WHERE, and the old values cannot be brought back", name)
	case w.judge.Bounded == nil || !w.judge.Bounded(where) || comparesTexts(list) || chains(list):
		w.found.Lost("may update every row of %s: its WHERE need not leave any out, and the old values cannot be brought back", name)
	case joins(list) && !qualified(list):
		w.found.Lost("may update every row of %s: its WHERE need leave out only rows of other tables", name)
	default:
		w.found.Add(sallyport.High, "updates rows of %s", name)
	}
}

func (w *walk) alter(name string, list []token) {
	w.found.Object(name)
	w.found.Part("", "table", name)
	w.found.Effect(sallyport.EffectWrite)
	if has(list, "drop") {
		w.found.Effect(sallyport.EffectDestroy)
		w.found.Lost("drops a column of %s: its values cannot be brought back", name)
		return
	}
	w.found.Add(sallyport.High, "alters table %s", name)
}

func (w *walk) virtual(e event, name string) {
	w.found.Object(name)
	w.found.Effect(sallyport.EffectWrite)
	switch strings.ToLower(e.arg2) {
	case "fts3", "fts4", "fts5", "rtree", "geopoly":
		w.found.Add(sallyport.High, "creates virtual table %s", name)
	default:
		w.found.Add(sallyport.Critical, "creates virtual table %s of module %s, which may reach outside the database", name, e.arg2)
	}
}

func (w *walk) vacuum(list []token) {
	w.found.Effect(sallyport.EffectWrite)
	if !has(list, "into") {
		w.found.Add(sallyport.High, "rewrites the whole database")
		return
	}
	file := list[len(list)-1]
	if file.op(";") && len(list) > 1 {
		file = list[len(list)-2]
	}
	w.found.Object(file.value)
	w.found.Add(sallyport.Critical, "copies the whole database into file %s", file.value)
}

func (w *walk) transaction(op string, savepoint bool) {
	if savepoint {
		if !w.open {
			w.found.Add(sallyport.High, "moves within a transaction that it did not begin")
		}
		return
	}
	switch op {
	case "BEGIN":
		w.open = true
	default:
		if !w.open {
			w.found.Add(sallyport.High, "ends a transaction that it did not begin")
		}
		w.open = false
	}
}

// asWritten names a table with its schema if the text does.
func asWritten(database, name string, list []token) string {
	for i := 2; i < len(list); i++ {
		if list[i-1].op(".") && strings.EqualFold(list[i].value, name) && strings.EqualFold(list[i-2].value, database) {
			return list[i-2].value + "." + list[i].value
		}
	}
	if database != "" && !strings.EqualFold(database, "main") && !strings.EqualFold(database, "temp") {
		return database + "." + name
	}
	return name
}
