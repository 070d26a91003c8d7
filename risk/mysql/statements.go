package mysql

import (
	"strings"

	"vitess.io/vitess/go/vt/sqlparser"

	"sallyport.dev/sallyport"
)

// tableName is a table's name as it is written, without quotes.
func tableName(t sqlparser.TableName) string {
	if t.Qualifier.IsEmpty() {
		return t.Name.String()
	}
	return t.Qualifier.String() + "." + t.Name.String()
}

func (w *walk) object(t sqlparser.TableName) string {
	name := tableName(t)
	w.found.Object(name)
	return name
}

// written notes a table that is changed.
func (w *walk) written(t sqlparser.TableName) string {
	name := w.object(t)
	w.found.Part("", "table", name)
	if systemSchema[strings.ToLower(t.Qualifier.String())] {
		w.found.Effect(sallyport.EffectPrivileges)
		w.found.Add(sallyport.Critical, "writes the server's own table %s", name)
	}
	return name
}

var systemSchema = set(`mysql sys performance_schema information_schema`)

func (w *walk) insert(n *sqlparser.Insert) {
	table, ok := n.Table.Expr.(sqlparser.TableName)
	if !ok {
		w.unknown("inserts into something that is no table")
		return
	}
	name := w.written(table)
	w.found.Effect(sallyport.EffectWrite)
	switch {
	case n.Action == sqlparser.ReplaceAct:
		w.found.Effect(sallyport.EffectDelete)
		w.found.Lost("replaces rows of %s: those that clash are deleted and cannot be brought back", name)
	default:
		w.found.Add(sallyport.High, "inserts into %s", name)
	}
	if len(n.OnDup) > 0 {
		level := sallyport.High
		if _, values := n.Rows.(sqlparser.Values); !values {
			level = sallyport.Critical // as many as the query gives, which may be all
		}
		w.found.Add(level, "updates rows of %s that exist", name)
	}
	w.nodes(n.Rows)
	w.nodes(n.OnDup)
}

func (w *walk) update(n *sqlparser.Update) {
	w.with(n.With)
	list := w.targets(n.TableExprs)
	name := strings.Join(list, ", ")
	w.found.Effect(sallyport.EffectWrite)
	switch {
	case n.Where == nil:
		w.found.Lost("updates every row of %s: it has no WHERE, and the old values cannot be brought back", name)
	case w.either:
		w.found.Lost("may update every row of %s: || in its WHERE means OR or concatenation, by the server's settings", name)
	case !w.bounded(n.Where.Expr):
		w.found.Lost("may update every row of %s, or nearly: its WHERE need not leave any out", name)
	case len(list) > 1 || len(n.TableExprs) > 1:
		w.found.Lost("may update every row of %s: it joins tables, and its WHERE need not leave out rows of each", name)
	default:
		w.found.Add(sallyport.High, "updates rows of %s", name)
	}
	w.nodes(n.Exprs)
	w.rest(n.TableExprs, n.Where, n.OrderBy)
}

func (w *walk) remove(n *sqlparser.Delete) {
	w.with(n.With)
	name := strings.Join(w.targets(n.TableExprs), ", ")
	if len(n.Targets) > 0 {
		var list []string
		for _, t := range n.Targets {
			list = append(list, tableName(t))
		}
		name = strings.Join(list, ", ")
	}
	w.found.Effect(sallyport.EffectDelete)
	switch {
	case n.Where == nil:
		w.found.Lost("deletes every row of %s: it has no WHERE, and the rows cannot be brought back", name)
	case w.either || !w.bounded(n.Where.Expr):
		w.found.Lost("may delete every row of %s, or nearly: its WHERE need not leave any out, and the rows cannot be brought back", name)
	default:
		w.found.Lost("deletes rows of %s: they cannot be brought back", name)
	}
	w.rest(n.TableExprs, n.Where, n.OrderBy)
}

func (w *walk) rest(tables []sqlparser.TableExpr, where *sqlparser.Where, order sqlparser.OrderBy) {
	for _, t := range tables {
		w.nodes(t)
	}
	if where != nil {
		w.nodes(where)
	}
	w.nodes(order)
}

func (w *walk) with(n *sqlparser.With) {
	if n != nil {
		w.nodes(n)
	}
}

// targets are the tables of an UPDATE or DELETE, noted as changed.
func (w *walk) targets(list []sqlparser.TableExpr) []string {
	var out []string
	for _, e := range list {
		_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) {
			switch n := n.(type) {
			case *sqlparser.AliasedTableExpr:
				if t, ok := n.Expr.(sqlparser.TableName); ok && !w.ctes[strings.ToLower(tableName(t))] {
					out = append(out, w.written(t))
				}
				return false, nil
			case sqlparser.Expr:
				return false, nil
			}
			return true, nil
		}, e)
	}
	return out
}

// definition judges the statements that create, alter or drop. It reports false
// for what it does not know.
func (w *walk) definition(tree sqlparser.Statement) bool {
	w.lenient = true
	switch n := tree.(type) {
	case *sqlparser.CreateTable:
		w.createTable(n)
	case *sqlparser.CreateView:
		w.creates("creates or replaces view %s", n.ViewName)
		w.nodes(n.Select)
	case *sqlparser.AlterView:
		w.creates("replaces view %s", n.ViewName)
		w.nodes(n.Select)
	case *sqlparser.CreateDatabase:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Object(n.DBName.String())
		w.found.Add(sallyport.High, "creates database %s", n.DBName.String())
	case *sqlparser.AlterDatabase:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Object(n.DBName.String())
		w.found.Add(sallyport.High, "alters database %s", n.DBName.String())
	case *sqlparser.RenameTable:
		for _, p := range n.TablePairs {
			w.creates("renames table %s", p.FromTable)
			w.written(p.ToTable)
		}
	case *sqlparser.AlterTable:
		w.alterTable(n)
	case *sqlparser.CreateProcedure:
		w.found.Effect(sallyport.EffectExecute)
		w.planted(n)
	default:
		return w.drops(tree)
	}
	return true
}

func (w *walk) creates(format string, t sqlparser.TableName) {
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, format, w.written(t))
}

func (w *walk) drops(tree sqlparser.Statement) bool {
	w.found.Effect(sallyport.EffectDestroy)
	switch n := tree.(type) {
	case *sqlparser.DropTable:
		for _, t := range n.FromTables {
			w.found.Lost("drops table %s: its rows cannot be brought back", w.written(t))
		}
	case *sqlparser.DropView:
		for _, t := range n.FromTables {
			w.found.Lost("drops view %s: it cannot be brought back", w.written(t))
		}
	case *sqlparser.DropDatabase:
		w.found.Object(n.DBName.String())
		w.found.Part("", "database", n.DBName.String())
		w.found.Lost("drops database %s: nothing in it can be brought back", n.DBName.String())
	case *sqlparser.DropProcedure:
		w.found.Lost("drops procedure %s: it cannot be brought back", w.object(n.Name))
	case *sqlparser.TruncateTable:
		w.found.Lost("empties table %s: its rows cannot be brought back", w.written(n.Table))
	case *sqlparser.PurgeBinaryLogs:
		w.found.Lost("deletes binary logs: what they record cannot be brought back")
	default:
		return false
	}
	return true
}

func (w *walk) createTable(n *sqlparser.CreateTable) {
	w.creates("creates table %s", n.Table)
	if n.TableSpec != nil {
		for _, o := range n.TableSpec.Options {
			switch option := strings.ToLower(o.Name); option {
			case "engine":
				if !engines[strings.ToLower(o.String)] && (o.Value == nil || !engines[strings.ToLower(o.Value.Val)]) {
					w.unknown("creates a table of an engine that may reach outside the database")
				}
			case "connection", "data directory", "index directory":
				w.found.Add(sallyport.Critical, "creates a table that lies elsewhere: %s", option)
			}
		}
	}
	if n.Select != nil {
		w.nodes(n.Select)
	}
	w.nodes(n)
}

var engines = set(`innodb myisam aria memory heap archive csv blackhole rocksdb ndb ndbcluster mrg_myisam merge`)

// lasting are the engines that keep every row, also when the server restarts.
var lasting = set(`innodb myisam aria rocksdb ndb ndbcluster`)

func (w *walk) alterTable(n *sqlparser.AlterTable) {
	name := w.written(n.Table)
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, "alters %s", name)
	for _, o := range n.AlterOptions {
		switch o := o.(type) {
		case *sqlparser.DropColumn:
			w.found.Effect(sallyport.EffectDestroy)
			w.found.Lost("drops column %s of %s: its values cannot be brought back", o.Name.Name.String(), name)
		case *sqlparser.DropKey:
			w.found.Lost("drops a key or constraint of %s: it cannot be brought back by the same hand", name)
		case *sqlparser.ModifyColumn, *sqlparser.ChangeColumn:
			w.found.Lost("redefines a column of %s: what the new type cannot hold is lost", name)
		case *sqlparser.AlterCharset:
			w.found.Lost("converts the texts of %s: what the character set cannot hold is lost", name)
		case sqlparser.TableOptions:
			for _, option := range o {
				if strings.EqualFold(option.Name, "engine") && !lasting[strings.ToLower(option.String)] {
					w.found.Effect(sallyport.EffectDestroy)
					w.found.Lost("moves %s to engine %s, which may keep none of its rows", name, option.String)
				}
			}
		case *sqlparser.TablespaceOperation:
			w.found.Effect(sallyport.EffectDestroy)
			w.found.Lost("discards or imports the file of %s", name)
		}
	}
	if p := n.PartitionSpec; p != nil {
		switch p.Action {
		case sqlparser.DropAction, sqlparser.TruncateAction, sqlparser.DiscardAction, sqlparser.ReorganizeAction, sqlparser.ExchangeAction, sqlparser.CoalesceAction:
			w.found.Effect(sallyport.EffectDestroy)
			w.found.Lost("drops, empties or exchanges partitions of %s", name)
		default: // the others keep every row
		}
	}
	w.nodes(n)
}

// planted judges a procedure when it is made: what it does when it is called is
// not seen any more then.
func (w *walk) planted(n *sqlparser.CreateProcedure) {
	w.object(n.Name)
	w.found.Add(sallyport.Critical, "plants procedure %s, whose effect cannot be told", tableName(n.Name))
	_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) {
		switch n.(type) {
		case *sqlparser.Delete, *sqlparser.DropTable, *sqlparser.DropDatabase, *sqlparser.TruncateTable, *sqlparser.DropView:
			w.found.Lost("plants a procedure that drops, truncates or deletes")
			return false, nil
		}
		return true, nil
	}, n)
}
