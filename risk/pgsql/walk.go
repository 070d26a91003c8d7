package pgsql

import (
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

type node = map[string]any

const maxDepth = 2000 // of the tree

// A walk goes once through the statements of one text.
type walk struct {
	nest       func(text string) Judgement // judges a query within a literal
	catalogue  *catalogue
	statements int
	depth      int
	lenient    bool // inside a statement that is high anyway: unknown nodes are only searched

	all      []finding.List // of the statements before
	found    finding.List   // of the statement at hand
	kinds    []string
	prepared map[string]*finding.List // by name, what PREPARE in this text prepared
	ctes     map[string]bool
	open     bool // a transaction that this text began
	reads    bool
}

// statement judges {"SomeStmt": {...}}.
func (w *walk) statement(s node) {
	for _, kind := range slices.Sorted(maps.Keys(s)) {
		body, _ := s[kind].(node)
		if w.statements > 0 && w.depth == 0 {
			w.kinds = append(w.kinds, kind)
		}
		w.node(kind, body)
	}
}

// cut ends a statement: what was found belongs to it.
func (w *walk) cut(source string) {
	if w.found.Level() >= sallyport.High {
		w.found.Part("", "operation", source)
		if len(w.found.Risk().Effects) == 0 {
			w.found.Effect(sallyport.EffectWrite)
		}
	}
	w.all = append(w.all, w.found)
	w.found, w.ctes = finding.List{}, map[string]bool{}
}

// finish joins what was found, the most dangerous statement first.
func (w *walk) finish() {
	w.found.Join(w.all)
	if w.open {
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "leaves a transaction open: its locks stay")
	}
	if w.found.Level() == sallyport.Low {
		switch {
		case w.statements == 0:
			w.found.Add(sallyport.Low, "holds no statement")
		case w.reads:
			w.found.Add(sallyport.Low, "only reads")
		default:
			w.found.Add(sallyport.Low, "changes nothing")
		}
	}
	if w.statements > 1 {
		w.found.Add(w.found.Level(), "holds %d statements: the worst of them counts", w.statements)
	}
}

// value walks whatever a field holds.
func (w *walk) value(key string, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			w.value(key, e)
		}
	case node:
		if w.depth++; w.depth > maxDepth {
			w.found.Add(sallyport.Critical, "the SQL is nested too deeply to judge")
			w.depth--
			return
		}
		w.object(key, v)
		w.depth--
	}
}

func (w *walk) object(key string, v node) {
	if len(v) == 0 {
		return
	}
	if len(v) == 1 {
		for kind, body := range v {
			if isNode(kind) {
				b, _ := body.(node)
				w.node(kind, b)
				return
			}
		}
	}
	switch key {
	case "larg", "rarg":
		w.node("SelectStmt", v)
	case "intoClause", "into":
		w.node("IntoClause", v)
	case "relation", "rel", "pktable", "sequence", "view", "viewQuery":
		w.node("RangeVar", v)
	case "typeName", "argType", "returnType":
		w.node("TypeName", v)
	default:
		if !w.lenient && !rawFields[key] {
			w.found.Add(sallyport.Critical, "uses %q, which the analyser does not know", key)
			return
		}
		w.children(v)
	}
}

func isNode(kind string) bool { return kind != "" && kind[0] >= 'A' && kind[0] <= 'Z' }

// children walks every field of a node, in a fixed order, WITH first: its names
// are no tables.
func (w *walk) children(n node) {
	if with := n["withClause"]; with != nil {
		w.value("withClause", with)
	}
	for _, k := range slices.Sorted(maps.Keys(n)) {
		if k != "withClause" {
			w.value(k, n[k])
		}
	}
}

func (w *walk) node(kind string, n node) {
	if harmless[kind] {
		w.children(n)
		return
	}
	if leaves[kind] || w.special(kind, n) || w.statementKind(kind, n) {
		return
	}
	if w.lenient {
		w.children(n)
		return
	}
	w.unknown("uses %s, which the analyser does not know", kind)
}

// unknown notes what cannot be told.
func (w *walk) unknown(format string, args ...any) {
	w.found.Effect(sallyport.EffectOpaque)
	w.found.Add(sallyport.Critical, format, args...)
}

// rawFields are the fields that hold a node without naming its kind.
var rawFields = set(`alias over withClause context_item raw_expr formatted_expr format output returning on_empty on_error
	onConflictClause infer search_clause cycle_clause pathspec constructor func expr key value arg query columns
	partitionClause orderClause name_expr passing typeName path rootPathSpec plan absent_on_null exprs options`)

// leaves hold nothing that could act.
var leaves = set(`A_Const A_Star ParamRef String Integer Float Boolean BitString Null Alias SQLValueFunction
	SetToDefault CurrentOfExpr RoleSpec ReplicaIdentityStmt`)

// harmless nodes are as harmless as what is in them.
var harmless = set(`ResTarget BoolExpr NullTest BooleanTest CollateClause CaseExpr CaseWhen
	SubLink RangeSubselect RangeFunction RangeTableFunc RangeTableFuncCol JoinExpr WindowDef WithClause
	CTESearchClause CTECycleClause CoalesceExpr MinMaxExpr XmlExpr XmlSerialize A_Indices A_ArrayExpr
	ColumnDef RowExpr GroupingFunc GroupingSet MultiAssignRef NamedArgExpr List OnConflictClause InferClause IndexElem
	JsonFuncExpr JsonTable JsonTableColumn JsonTablePathSpec JsonArgument JsonBehavior JsonOutput JsonReturning JsonFormat
	JsonValueExpr JsonObjectConstructor JsonArrayConstructor JsonArrayQueryConstructor JsonObjectAgg JsonArrayAgg
	JsonAggConstructor JsonKeyValue JsonIsPredicate JsonParseExpr JsonScalarExpr JsonSerializeExpr`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// names reads a list of {"String": {"sval": …}}.
func names(v any) []string {
	list, _ := v.([]any)
	out := make([]string, 0, len(list))
	for _, e := range list {
		n, _ := e.(node)
		s, ok := n["String"].(node)
		if !ok {
			continue
		}
		name, _ := s["sval"].(string)
		out = append(out, name)
	}
	return out
}

func str(n node, key string) string {
	s, _ := n[key].(string)
	return s
}

func flag(n node, key string) bool {
	b, _ := n[key].(bool)
	return b
}

func sub(n node, keys ...string) node {
	for _, k := range keys {
		n, _ = n[k].(node)
	}
	return n
}

// tableName is a RangeVar's name as it is written.
func tableName(n node) string {
	parts := make([]string, 0, 3)
	for _, k := range []string{"catalogname", "schemaname", "relname"} {
		if s := str(n, k); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ".")
}

// literal returns the text of a string constant, through casts.
func literal(v any) (string, bool) {
	n, _ := v.(node)
	if cast := sub(n, "TypeCast"); cast != nil {
		return literal(cast["arg"])
	}
	c := sub(n, "A_Const")
	if c == nil {
		return "", false
	}
	s, ok := c["sval"].(node)
	return str(s, "sval"), ok
}
