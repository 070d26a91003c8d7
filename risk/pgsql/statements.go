package pgsql

import (
	"maps"
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// statementKind judges the statements that are more than a query. It reports
// false for what it does not know.
func (w *walk) statementKind(kind string, n node) bool {
	switch kind {
	case "InsertStmt":
		w.insert(n)
	case "UpdateStmt":
		w.update(n)
	case "DeleteStmt":
		w.remove(n)
	case "MergeStmt":
		w.merge(n)
	case "ExplainStmt":
		w.explain(n)
	case "VariableShowStmt":
	case "VariableSetStmt":
		w.setting(n)
	case "TransactionStmt":
		w.transaction(n)
	case "CopyStmt":
		w.copies(n)
	case "DoStmt":
		w.do(n)
	case "CallStmt":
		w.found.Effect(sallyport.EffectExecute)
		w.unknown("calls procedure %s: what it does is unknown", strings.Join(names(sub(n, "funccall")["funcname"]), "."))
		w.loosely(n)
	case "PrepareStmt":
		w.prepare(n)
	case "ExecuteStmt":
		w.execute(n)
	default:
		return w.definition(kind, n)
	}
	return true
}

func (w *walk) written(n node) string {
	name := tableName(n)
	w.found.Object(name)
	w.found.Part("", "table", name)
	if str(n, "schemaname") == "pg_catalog" || strings.HasPrefix(str(n, "relname"), "pg_") {
		w.found.Add(sallyport.Critical, "writes PostgreSQL's own catalogue %s", name)
	}
	return name
}

// rest walks the fields of a statement but those named.
func (w *walk) rest(n node, skip ...string) {
	c := maps.Clone(n)
	for _, k := range skip {
		delete(c, k)
	}
	w.children(c)
}

// loosely searches a statement that is high anyway for calls and statements
// in it that are worse.
func (w *walk) loosely(n node) {
	was := w.lenient
	w.lenient = true
	w.children(n)
	w.lenient = was
}

func (w *walk) insert(n node) {
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, "inserts into %s", w.written(sub(n, "relation")))
	if conflict := sub(n, "onConflictClause"); str(conflict, "action") == "ONCONFLICT_UPDATE" {
		level := sallyport.High
		if sub(n, "selectStmt", "SelectStmt")["valuesLists"] == nil && !bounded(conflict["whereClause"]) {
			level = sallyport.Critical // as many as the query gives, which may be all
		}
		w.found.Add(level, "updates rows of %s that exist", tableName(sub(n, "relation")))
	}
	w.children(sub(n, "onConflictClause"))
	w.rest(n, "relation", "cols", "onConflictClause")
}

func (w *walk) update(n node) {
	name := w.written(sub(n, "relation"))
	w.found.Effect(sallyport.EffectWrite)
	switch where := n["whereClause"]; {
	case where == nil:
		w.found.Lost("updates every row of %s: it has no WHERE, and the old values cannot be brought back", name)
	case !bounded(where):
		w.found.Lost("may update every row of %s: its WHERE need not leave any out, and the old values cannot be brought back", name)
	case n["fromClause"] != nil && !joined(where, targetNames(n)):
		w.found.Lost("may update every row of %s: its WHERE need leave out only rows of other tables", name)
	default:
		w.found.Add(sallyport.High, "updates rows of %s", name)
	}
	w.rest(n, "relation")
}

func (w *walk) remove(n node) {
	name := w.written(sub(n, "relation"))
	w.found.Effect(sallyport.EffectDelete)
	switch where := n["whereClause"]; {
	case where == nil:
		w.found.Lost("deletes every row of %s: it has no WHERE, and the rows cannot be brought back", name)
	case !bounded(where):
		w.found.Lost("may delete every row of %s: its WHERE need not leave any out, and the rows cannot be brought back", name)
	default:
		w.found.Lost("deletes rows of %s: they cannot be brought back", name)
	}
	w.rest(n, "relation")
}

func (w *walk) merge(n node) {
	name := w.written(sub(n, "relation"))
	w.found.Effect(sallyport.EffectWrite)
	clauses, _ := n["mergeWhenClauses"].([]any)
	for _, c := range clauses {
		e, _ := c.(node)
		clause := sub(e, "MergeWhenClause")
		switch str(clause, "commandType") {
		case "CMD_DELETE":
			w.found.Effect(sallyport.EffectDelete)
			w.found.Lost("deletes rows of %s by MERGE: they cannot be brought back", name)
		case "CMD_UPDATE":
			w.found.Add(sallyport.Critical, "updates rows of %s by MERGE: as many as match", name)
		case "CMD_INSERT":
			w.found.Add(sallyport.High, "inserts into %s by MERGE", name)
		}
		w.children(clause)
	}
	w.rest(n, "relation", "mergeWhenClauses")
}

func (w *walk) explain(n node) {
	runs := false
	options, _ := n["options"].([]any)
	for _, o := range options {
		e, _ := o.(node)
		def := sub(e, "DefElem")
		if str(def, "defname") == "analyze" && !isOff(def["arg"]) {
			runs = true
		}
	}
	query, _ := n["query"].(node)
	if runs {
		w.found.Add(sallyport.Low, "runs the statement to explain it")
		w.value("query", query)
		return
	}
	// The planner evaluates functions, so those still count; the rest does not.
	inner := &walk{nest: w.nest, catalogue: w.catalogue, prepared: w.prepared, ctes: w.ctes, lenient: true, depth: w.depth}
	inner.calls(query)
	w.found.Append(&inner.found)
	w.reads = true
}

// calls judges nothing but functions and operators.
func (w *walk) calls(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			w.calls(e)
		}
	case node:
		if w.depth++; w.depth > maxDepth {
			w.found.Add(sallyport.Critical, "the SQL is nested too deeply to judge")
		} else if f := sub(v, "FuncCall"); f != nil {
			w.call(f)
		} else {
			for _, k := range sortedKeys(v) {
				w.calls(v[k])
			}
		}
		w.depth--
	}
}

func isOff(arg any) bool {
	n, _ := arg.(node)
	if s := sub(n, "String"); s != nil {
		v := strings.ToLower(str(s, "sval"))
		return v == "off" || v == "false" || v == "0"
	}
	if b := sub(n, "Boolean"); b != nil {
		return !flag(b, "boolval")
	}
	if i, ok := n["Integer"].(node); ok {
		return i["ival"] == nil || i["ival"] == float64(0)
	}
	return false
}

// readsText are the settings that decide how SQL is read.
var readsText = set(`client_encoding names standard_conforming_strings backslash_quote escape_string_warning`)

func (w *walk) setting(n node) {
	name := str(n, "name")
	w.found.Effect(sallyport.EffectWrite)
	switch {
	case readsText[name]:
		w.found.Add(sallyport.Critical, "sets %s, which changes how the SQL after it is read", name)
	case strings.HasPrefix(str(n, "kind"), "VAR_SET_MULTI") && name == "TRANSACTION" && w.open:
	case name == "role" || name == "session_authorization":
		w.found.Effect(sallyport.EffectPrivileges)
		w.found.Add(sallyport.Critical, "changes on whose behalf the session acts")
	case str(n, "kind") == "VAR_RESET_ALL":
		w.found.Add(sallyport.High, "resets every setting of the session")
	default:
		w.found.Add(sallyport.High, "changes the session's setting %s", name)
	}
	w.loosely(n)
}

func (w *walk) transaction(n node) {
	switch str(n, "kind") {
	case "TRANS_STMT_BEGIN", "TRANS_STMT_START":
		w.open = true
	case "TRANS_STMT_COMMIT", "TRANS_STMT_ROLLBACK":
		if !w.open {
			w.found.Add(sallyport.High, "ends a transaction that it did not begin")
		}
		w.open = flag(n, "chain")
	case "TRANS_STMT_SAVEPOINT", "TRANS_STMT_RELEASE", "TRANS_STMT_ROLLBACK_TO":
		if !w.open {
			w.found.Add(sallyport.High, "moves within a transaction that it did not begin")
		}
	default:
		w.found.Add(sallyport.Critical, "prepares or settles a two-phase transaction: what is in it is unknown")
	}
}

func (w *walk) copies(n node) {
	name := tableName(sub(n, "relation"))
	file := str(n, "filename")
	w.found.Effect(sallyport.EffectRead)
	switch {
	case flag(n, "is_program"):
		w.found.Effect(sallyport.EffectExecute)
		w.found.Lost("runs a program on the server: %s", file)
	case flag(n, "is_from"):
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "loads rows into %s", w.written(sub(n, "relation")))
		if file != "" {
			w.found.Add(sallyport.Critical, "reads file %s of the server, which no table's privileges guard", file)
		}
	case file != "":
		w.found.Effect(sallyport.EffectWrite)
		w.found.Lost("overwrites file %s on the server", file)
	}
	w.found.Object(file)
	if name != "" && !flag(n, "is_from") {
		w.reads = true
		w.table(sub(n, "relation"))
	}
	w.value("query", n["query"])
	w.value("whereClause", n["whereClause"])
}

// takesAway finds, in code that is not parsed here, the words of statements
// that cannot be undone.
var takesAway = regexp.MustCompile(`(?is)\b(drop\s+\w|truncate\s+\w|delete\s+from|alter\s+\w+\s.*\bdrop\b)`)

func (w *walk) do(n node) {
	w.found.Effect(sallyport.EffectExecute)
	args, _ := n["args"].([]any)
	for _, a := range args {
		e, _ := a.(node)
		def := sub(e, "DefElem")
		if str(def, "defname") != "as" {
			continue
		}
		body := str(sub(def, "arg", "String"), "sval")
		if takesAway.MatchString(body) {
			w.found.Lost("runs a block of code that drops, truncates or deletes")
			return
		}
	}
	w.found.Add(sallyport.Critical, "runs a block of code, whose effect cannot be told")
}

func (w *walk) prepare(n node) {
	inner := &walk{nest: w.nest, catalogue: w.catalogue, prepared: map[string]*finding.List{}, ctes: map[string]bool{}, depth: w.depth}
	inner.value("query", n["query"])
	inner.value("argtypes", n["argtypes"])
	w.prepared[str(n, "name")] = &inner.found
	w.found.Add(sallyport.High, "keeps statement %s in the session", str(n, "name"))
	w.found.Append(&inner.found)
}

func (w *walk) execute(n node) {
	w.value("params", n["params"])
	if found, ok := w.prepared[str(n, "name")]; ok {
		w.found.Append(found)
		return
	}
	w.found.Effect(sallyport.EffectExecute)
	w.unknown("executes %s, which was prepared elsewhere: what it does is unknown", str(n, "name"))
}
