package mysql

import (
	"strings"

	"vitess.io/vitess/go/vt/sqlparser"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// A walk goes through the statements of all readings of one text.
type walk struct {
	judge    Judge
	parser   *sqlparser.Parser
	nested   int
	prepared map[string]sallyport.Risk // by name, what PREPARE in this text prepared

	all   []finding.List // one for each statement
	count int            // statements of the reading that has most
	open  bool           // a transaction that this text began

	// of the statement at hand
	found   *finding.List
	source  string // as written
	why     string // which reading it is, "" for the usual one
	names   map[string]bool
	ctes    map[string]bool
	lenient bool // it is high anyway: unknown nodes are only searched
	either  bool // || means OR or concatenation, by the server's settings
}

func (w *walk) begin(source string) {
	w.all = append(w.all, finding.List{})
	w.found, w.source, w.ctes, w.lenient = &w.all[len(w.all)-1], source, map[string]bool{}, false
}

func (w *walk) end() {
	if w.found.Level() >= sallyport.High {
		w.found.Part("", "operation", w.source)
		if len(w.found.Risk().Effects) == 0 {
			w.found.Effect(sallyport.EffectWrite)
		}
	}
	if w.found.Empty() {
		w.found.Add(sallyport.Low, "only reads")
	}
}

// unknown notes what cannot be told.
func (w *walk) unknown(format string, args ...any) {
	w.found.Effect(sallyport.EffectOpaque)
	w.found.Add(sallyport.Critical, format, args...)
}

func (w *walk) statement(s statement) bool {
	if f, ok := s.apart(); ok {
		w.unknown("calls %s with a space before its parenthesis, which is a stored function of that name unless the server ignores such spaces", f)
	}
	w.either = s.hasOp("||")
	if s.has("delimiter") && s[0].is("delimiter") {
		w.unknown("changes the delimiter of a client, so where statements end is unknown")
		w.suspect(s)
		return false
	}
	if s.looks() {
		w.found.Effect(sallyport.EffectRead)
		return true
	}
	sql := s.withoutSounds().withoutColons().canonical()
	if s[0].is("table") { // TABLE t is SELECT * FROM t
		sql = "select * from " + s[1:].canonical()
	}
	tree, err := w.parser.ParseStrictDDL(sql)
	if err != nil { // vitess knows no EXCEPT; it reads what UNION reads
		tree, err = w.parser.ParseStrictDDL(s.asUnion().canonical())
	}
	if err != nil || tree == nil {
		w.unparsed(s)
		return false
	}
	w.tree(tree, s)
	return true
}

// tree judges one parsed statement.
func (w *walk) tree(tree sqlparser.Statement, s statement) {
	switch n := tree.(type) {
	case *sqlparser.Select, *sqlparser.Union, *sqlparser.ValuesStatement:
		w.found.Effect(sallyport.EffectRead)
		w.nodes(n)
		w.listed(n, s)
	case *sqlparser.Insert:
		w.insert(n)
	case *sqlparser.Update:
		w.update(n)
	case *sqlparser.Delete:
		w.remove(n)
	case *sqlparser.Set:
		w.set(n)
	case *sqlparser.Show:
		w.show(n)
	case *sqlparser.ExplainStmt:
		w.explain(n)
		w.listed(n.Statement, s)
	case *sqlparser.ExplainTab:
		w.table(n.Table)
	case *sqlparser.CommentOnly:
	case *sqlparser.PrepareStmt:
		w.prepare(n)
	case *sqlparser.ExecuteStmt:
		w.execute(n)
	case *sqlparser.CallProc:
		w.found.Effect(sallyport.EffectExecute)
		w.unknown("calls procedure %s: what it does is unknown", tableName(n.Name))
	case *sqlparser.Load, *sqlparser.OtherAdmin:
		w.swallowed(s)
	default:
		if !w.session(tree) && !w.definition(tree) {
			w.unknown("uses a statement that the analyser does not know: %s", strings.ToUpper(s[0].value))
			w.suspect(s)
		}
	}
}

// listed looks for what vitess forgets of a VALUES statement: where its rows go.
func (w *walk) listed(n sqlparser.Statement, s statement) {
	if _, values := n.(*sqlparser.ValuesStatement); values && s.has("into") {
		w.unknown("writes a list of values into a file of the server or a variable")
		w.suspect(s)
	}
}

// session judges what concerns the connection, transactions and locks. It
// reports false for what it does not know.
func (w *walk) session(tree sqlparser.Statement) bool {
	high := func(format string, args ...any) bool {
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, format, args...)
		return true
	}
	switch n := tree.(type) {
	case *sqlparser.Begin:
		w.open = true
	case *sqlparser.Commit, *sqlparser.Rollback:
		if !w.open {
			return high("ends a transaction that it did not begin")
		}
		w.open = false
	case *sqlparser.Savepoint, *sqlparser.SRollback, *sqlparser.Release:
		if !w.open {
			return high("moves within a transaction that it did not begin")
		}
	case *sqlparser.Use:
		w.found.Object(n.DBName.String())
		return high("switches to database %s: what follows acts there", n.DBName.String())
	case *sqlparser.LockTables:
		w.lenient = true
		w.nodes(n)
		return high("locks tables")
	case *sqlparser.UnlockTables:
		return high("gives up the session's table locks")
	case *sqlparser.Flush:
		return high("flushes the server's caches, logs or tables")
	case *sqlparser.Kill:
		return high("ends another connection or its statement")
	case *sqlparser.Analyze:
		w.object(n.Table)
		return high("writes statistics about %s", tableName(n.Table))
	case *sqlparser.DeallocateStmt:
		return high("forgets a prepared statement")
	default:
		return false
	}
	return true
}

// set judges SET. What changes how later text is read is critical.
func (w *walk) set(n *sqlparser.Set) {
	w.found.Effect(sallyport.EffectWrite)
	for _, e := range n.Exprs {
		name := strings.ToLower(e.Var.Name.String())
		switch {
		case (name == "names" || name == "charset") && plainCharset(e.Expr):
			w.found.Add(sallyport.High, "changes the session's setting %s", name)
		case readsText[name]:
			w.found.Add(sallyport.Critical, "sets %s, which changes how the SQL after it is read", name)
		case runsLater[name]:
			w.found.Effect(sallyport.EffectExecute)
			w.found.Add(sallyport.Critical, "sets %s, by which the server writes files or runs SQL", name)
		case e.Var.Scope == sqlparser.VariableScope:
			w.found.Add(sallyport.High, "sets the session's variable @%s", name)
		case e.Var.Scope == sqlparser.SessionScope || e.Var.Scope == sqlparser.NextTxScope || e.Var.Scope == sqlparser.NoScope:
			w.found.Add(sallyport.High, "changes the session's setting %s", name)
		default:
			w.found.Add(sallyport.High, "changes the server's setting %s for everybody", name)
		}
		w.nodes(e.Expr)
	}
}

// readsText are the variables that decide how SQL is read; runsLater are those
// by which the server writes files, runs SQL or stops recording.
var (
	readsText = set(`sql_mode names charset character_set_client character_set_connection collation_connection old_mode`)
	runsLater = set(`general_log_file slow_query_log_file log_error init_connect init_file init_slave init_replica secure_file_priv
		plugin_dir sql_log_bin datadir tmpdir log_bin_basename local_infile`)
)

// plainCharset tells a character set in which no letter holds the byte of a
// quote or a backslash, so that text means what it does here.
func plainCharset(e sqlparser.Expr) bool {
	switch e := e.(type) {
	case *sqlparser.Literal:
		return plainCharsets[strings.ToLower(e.Val)]
	case *sqlparser.ColName:
		return plainCharsets[e.Name.Lowered()]
	}
	return false
}

func (w *walk) show(n *sqlparser.Show) {
	w.found.Effect(sallyport.EffectRead)
	switch s := n.Internal.(type) {
	case *sqlparser.ShowBasic:
		if s.Filter != nil && s.Filter.Filter != nil {
			w.nodes(s.Filter.Filter)
		}
		if !s.Tbl.IsEmpty() {
			w.table(s.Tbl)
		}
	case *sqlparser.ShowCreate:
		w.table(s.Op)
	case *sqlparser.ShowCreateUser:
		w.found.Add(sallyport.Medium, "shows an account with what proves it")
	case *sqlparser.ShowGrants, *sqlparser.ShowEngine, *sqlparser.ShowBinaryLogs, *sqlparser.ShowReplicas,
		*sqlparser.ShowReplicationStatus, *sqlparser.ShowReplicationSourceStatus, *sqlparser.ShowProfile:
	case *sqlparser.ShowBinlogEvents:
		w.found.Add(sallyport.Medium, "shows statements of others, with the values in them")
	default:
		w.unknown("shows something that the analyser does not know")
	}
}

// explain judges the functions alone of what is only explained: planning may call them.
func (w *walk) explain(n *sqlparser.ExplainStmt) {
	if n.Type == sqlparser.AnalyzeType {
		w.found.Add(sallyport.Low, "runs the statement to explain it")
		w.tree(n.Statement, nil)
		return
	}
	w.found.Effect(sallyport.EffectRead)
	w.lenient = true
	w.functionsIn(n.Statement)
	w.lenient = false
}

func (w *walk) prepare(n *sqlparser.PrepareStmt) {
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, "keeps statement %s in the session", n.Name.String())
	literal, ok := n.Statement.(*sqlparser.Literal)
	if !ok {
		w.found.Effect(sallyport.EffectExecute)
		w.unknown("prepares a statement from a variable: what it does is unknown")
		return
	}
	r, _ := w.judge.judge(literal.Val, w.nested+1)
	w.prepared[n.Name.Lowered()] = r
	w.found.Merge(r)
}

func (w *walk) execute(n *sqlparser.ExecuteStmt) {
	w.found.Effect(sallyport.EffectExecute)
	if r, ok := w.prepared[n.Name.Lowered()]; ok {
		w.found.Merge(r)
		return
	}
	w.unknown("executes %s, which was prepared elsewhere: what it does is unknown", n.Name.String())
}
