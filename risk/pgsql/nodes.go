package pgsql

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// special judges the parts of queries that need a look of their own.
func (w *walk) special(kind string, n node) bool {
	switch kind {
	case "SelectStmt":
		w.query(n)
	case "CommonTableExpr":
		w.cte(n)
	case "IntoClause":
		w.into(n)
	case "LockingClause":
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "locks the rows that it reads")
	case "RangeVar":
		w.table(n)
	case "ColumnRef":
		w.column(n)
	case "A_Expr":
		w.operator(n)
	case "RangeTableSample":
		w.sample(n)
	case "FuncCall":
		w.call(n)
	case "SortBy":
		w.sort(n)
	case "TypeCast":
		w.cast(n)
	case "TypeName": // of a column that a function or JSON_TABLE gives, or of a parameter
		if !w.lenient {
			w.converts(n, nil)
		}
	case "A_Indirection":
		w.part(n)
	default:
		return false
	}
	return true
}

func (w *walk) query(n node) {
	w.found.Effect(sallyport.EffectRead)
	w.reads = true
	w.children(n)
}

func (w *walk) cte(n node) {
	w.ctes[str(n, "ctename")] = true
	w.children(n)
}

func (w *walk) into(n node) {
	name := tableName(sub(n, "rel"))
	w.found.Object(name)
	w.found.Part("", "table", name)
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, "creates table %s", name)
}

var secretRelations = set(`pg_shadow pg_authid pg_user_mapping pg_user_mappings pg_subscription pg_largeobject
	pg_hba_file_rules pg_ident_file_mappings pg_file_settings pg_stat_wal_receiver pg_statistic`)

func (w *walk) table(n node) {
	name, relation := tableName(n), str(n, "relname")
	if w.ctes[relation] && str(n, "schemaname") == "" {
		return
	}
	w.found.Object(name)
	switch {
	case secretRelations[relation]:
		w.found.Add(sallyport.Medium, "reads %s, which holds credentials or other secrets", name)
	case finding.Secret(relation):
		w.found.Add(sallyport.Medium, "reads %s, which by its name holds secrets", name)
	}
}

func (w *walk) column(n node) {
	parts := names(n["fields"])
	if len(parts) > 0 && finding.Secret(parts[len(parts)-1]) {
		w.found.Add(sallyport.Medium, "reads %s, which by its name is secret", strings.Join(parts, "."))
	}
}

// knownOperator tells whether an operator, as it is written, is PostgreSQL's own.
func (w *walk) knownOperator(parts []string) bool {
	if len(parts) == 2 && parts[0] == "pg_catalog" {
		parts = parts[1:]
	}
	return len(parts) == 1 && (w.catalogue.operators[parts[0]] || parts[0] == "!=")
}

func (w *walk) sort(n node) {
	if op := names(n["useOp"]); len(op) > 0 && !w.knownOperator(op) {
		w.found.Add(sallyport.Critical, "sorts by operator %s, which is not PostgreSQL's own", strings.Join(op, "."))
	}
	w.children(n)
}

func (w *walk) operator(n node) {
	parts := names(n["name"])
	known := w.knownOperator(parts)
	if kind := str(n, "kind"); !known && (kind == "AEXPR_OP" || kind == "AEXPR_OP_ANY" || kind == "AEXPR_OP_ALL") {
		w.found.Effect(sallyport.EffectExecute)
		w.found.Add(sallyport.Critical, "uses operator %s, which is not PostgreSQL's own", strings.Join(parts, "."))
	}
	w.children(n)
}

// cast judges a conversion. One to a type of somebody's own may call a function
// of theirs, and that of a literal or NULL too: a domain's check is code.
func (w *walk) cast(n node) {
	w.converts(sub(n, "typeName"), sub(nodeOf(n["arg"]), "A_Const"))
	w.value("arg", n["arg"])
}

// converts judges what reading a value as a type does. constant is what is read,
// nil if it is computed.
func (w *walk) converts(typeName, constant node) {
	parts := names(typeName["names"])
	plain := parts
	if len(parts) > 1 && parts[0] == "pg_catalog" {
		plain = parts[1:]
	}
	if len(parts) == 0 || len(plain) == 1 && w.catalogue.types[plain[0]] {
		return
	}
	// A quoted literal has no type yet: it is read, and not converted.
	if (constant["sval"] != nil || constant["isnull"] != nil) && extensionTypes[parts[len(parts)-1]] {
		return
	}
	w.found.Effect(sallyport.EffectExecute)
	w.found.Add(sallyport.Critical, "converts to %s, which is not PostgreSQL's own type: the conversion or a domain's check may call a function", strings.Join(parts, "."))
}

// extensionTypes are base types of PostgreSQL's own extensions, PostGIS and
// pgvector: reading a literal of them calls a function of the extension alone.
var extensionTypes = set(`citext hstore ltree lquery ltxtquery cube seg isbn isbn13 issn ismn ean13 upc query_int
	geometry geography box2d box3d raster vector halfvec sparsevec`)

// part judges (t).f, which calls function f where t has no column f.
func (w *walk) part(n node) {
	list, _ := n["indirection"].([]any)
	if len(columnName(n["arg"])) > 0 && len(names(list)) > 0 {
		w.found.Effect(sallyport.EffectExecute)
		w.found.Add(sallyport.Critical, "takes part %s of a row, which may be a function that is called", strings.Join(names(list), "."))
	}
	w.children(n)
}

func (w *walk) sample(n node) {
	m := names(n["method"])
	if len(m) == 2 && m[0] == "pg_catalog" {
		m = m[1:]
	}
	if len(m) != 1 || m[0] != "system" && m[0] != "bernoulli" {
		w.found.Add(sallyport.Critical, "samples by %s, which is not PostgreSQL's own", strings.Join(m, "."))
	}
	w.value("relation", n["relation"])
	w.value("args", n["args"])
}

func (w *walk) call(n node) {
	parts := names(n["funcname"])
	full := strings.Join(parts, ".")
	name := full
	if len(parts) == 2 && parts[0] == "pg_catalog" {
		name = parts[1]
	}
	j, known := w.catalogue.functions[name]
	switch effect := callEffect(j, known); effect {
	case "":
	case sallyport.EffectExecute:
		w.found.Effect(effect)
		w.found.Effect(sallyport.EffectOpaque)
	default:
		w.found.Effect(effect)
	}
	switch {
	case !known && outside[parts[len(parts)-1]] != "":
		w.found.Effect(sallyport.EffectNetwork)
		w.found.Add(sallyport.Critical, "calls %s, which %s", full, outside[parts[len(parts)-1]])
	case !known && dropping.MatchString(full):
		w.found.Lost("calls %s, which is unknown and by its name takes something away", full)
	case !known:
		w.found.Add(sallyport.Critical, "calls %s, which is not PostgreSQL's own: what it does is unknown", full)
	case j == "medium":
		w.found.Add(sallyport.Medium, "calls %s, which shows secrets of the server", full)
	case j == "high":
		w.found.Add(sallyport.High, "calls %s, which acts on the server or the session", full)
	case j == "critical":
		w.found.Add(sallyport.Critical, "calls %s, whose effect cannot be told", full)
	case j == "irreversible":
		w.found.Lost("calls %s, which cannot be undone", full)
	case j == "sql":
		w.innerQuery(full, n)
	}
	w.children(n)
}

func callEffect(j judgement, known bool) string {
	switch {
	case !known:
		return sallyport.EffectExecute
	case j == "high", j == "critical":
		return sallyport.EffectWrite
	case j == "irreversible":
		return sallyport.EffectDelete
	}
	return ""
}

// dropping are names of unknown functions that say what they are for.
var dropping = regexp.MustCompile(`(?i)(^|[._])(drop|delete|truncate|purge|destroy|erase|wipe)(_|$)`)

// outside are functions of common extensions whose effect leaves the database.
var outside = map[string]string{
	"dblink": "runs SQL on another server", "dblink_exec": "runs SQL on another server",
	"dblink_connect": "connects to another server", "dblink_connect_u": "connects to another server",
	"dblink_send_query": "runs SQL on another server", "http_get": "sends a request elsewhere",
	"http_post": "sends a request elsewhere", "http_delete": "sends a request elsewhere",
	"pg_file_write": "writes a file on the server", "pg_file_unlink": "deletes a file on the server",
	"pg_execute_server_program": "runs a program on the server", "plpy": "runs code on the server",
}

// innerQuery judges the query that a function such as query_to_xml runs.
func (w *walk) innerQuery(name string, n node) {
	args, _ := n["args"].([]any)
	for _, a := range args {
		if text, ok := literal(a); ok && len(strings.Fields(text)) > 1 {
			w.found.Merge(w.nest(text).Risk)
			return
		}
	}
	w.found.Add(sallyport.Critical, "calls %s, which runs a query that cannot be read here", name)
}
