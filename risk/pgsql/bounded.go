package pgsql

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sallyport.dev/sallyport/risk/narrow"
)

// bounded tells whether a WHERE clause names, in each of its alternatives, a
// condition that leaves rows out: a column compared with a value, a list, a
// narrow range. 1=1, id=id, id<>0, id>0, x IS NOT NULL, LIKE '%' and the like do
// not. It knows nothing of the rows, so it doubts; whoever approves has to know.
func bounded(v any) bool {
	n, _ := v.(node)
	for kind, body := range n {
		b, _ := body.(node)
		switch kind {
		case "BoolExpr":
			return boundedLogic(b)
		case "A_Expr":
			return boundedComparison(b)
		case "NullTest":
			return str(b, "nulltesttype") == "IS_NULL" && plainColumn(b["arg"])
		case "BooleanTest":
			t := str(b, "booltesttype")
			return (t == "IS_TRUE" || t == "IS_FALSE" || t == "IS_UNKNOWN") && columnName(b["arg"]) != nil
		case "ColumnRef", "CurrentOfExpr":
			return true
		case "SubLink":
			return boundedSubquery(b)
		case "FuncCall":
			return boundedCall(b)
		}
	}
	return false
}

func boundedLogic(n node) bool {
	args, _ := n["args"].([]any)
	switch str(n, "boolop") {
	case "AND_EXPR":
		var ranges narrow.Ranges
		for _, a := range args {
			if bounded(a) {
				return true
			}
			oneSided(&ranges, a)
		}
		return ranges.Bounded()
	case "OR_EXPR":
		for _, a := range args {
			if !bounded(a) {
				return false
			}
		}
		return len(args) > 0
	}
	// NOT of a column that is a condition itself; NOT of anything else is wide.
	return len(args) == 1 && len(columnName(args[0])) > 0
}

// oneSided notes  column < value  and the like.
func oneSided(r *narrow.Ranges, v any) {
	n, _ := v.(node)
	e := sub(n, "A_Expr")
	op := strings.Join(names(e["name"]), ".")
	column, value := e["lexpr"], e["rexpr"]
	if !plainColumn(column) {
		column, value, op = value, column, narrow.Mirrored(op)
	}
	if c := columnName(column); len(c) > 0 {
		if text, ok := constant(value); ok {
			r.Add(c[len(c)-1], op, text)
		}
	}
}

// constant is a value that is the same for every row, as text; narrow.Unknown
// where only the call knows it.
func constant(v any) (string, bool) {
	n, _ := v.(node)
	if text, ok := literal(v); ok {
		return text, true
	}
	if f, ok := number(v); ok {
		return strconv.FormatFloat(f, 'f', -1, 64), true
	}
	return narrow.Unknown, n["ParamRef"] != nil
}

// boundedCall judges a function that is a condition itself.
func boundedCall(n node) bool {
	parts := names(n["funcname"])
	args, _ := n["args"].([]any)
	if parts[len(parts)-1] != "starts_with" || len(args) != 2 {
		return false
	}
	text, ok := literal(args[1])
	return ok && text != "" && plainColumn(args[0])
}

// boundedSubquery judges IN (SELECT …) and EXISTS. The query has to draw its few
// rows from one table: from two, a condition on one leaves all of the other.
func boundedSubquery(n node) bool {
	q := sub(n, "subselect", "SelectStmt")
	from, _ := q["fromClause"].([]any)
	if q == nil || len(from) != 1 || sub(nodeOf(from[0]), "RangeVar") == nil {
		return false
	}
	switch str(n, "subLinkType") {
	case "ANY_SUBLINK":
		if !plainColumn(n["testexpr"]) && sub(nodeOf(n["testexpr"]), "RowExpr") == nil || outerColumn(q, n["testexpr"]) {
			return false
		}
		limit, ok := number(q["limitCount"])
		return ok && limit <= 10_000 || bounded(q["whereClause"])
	case "EXISTS_SUBLINK": // says something of a row only if it looks at that row
		return (q["limitCount"] != nil || bounded(q["whereClause"])) && correlated(q["whereClause"])
	}
	return false
}

// outerColumn finds  id IN (SELECT id FROM other …): where other has no column
// id, it is the outer one, and every row matches.
func outerColumn(q node, test any) bool {
	targets, _ := q["targetList"].([]any)
	if len(targets) != 1 {
		return false
	}
	inner, outer := columnName(sub(nodeOf(targets[0]), "ResTarget")["val"]), columnName(test)
	return len(inner) == 1 && len(outer) > 0 && inner[0] == outer[len(outer)-1]
}

// correlated tells whether a condition compares a column of one table with one
// of another.
func correlated(v any) bool {
	n, _ := v.(node)
	if logic := sub(n, "BoolExpr"); str(logic, "boolop") == "AND_EXPR" {
		args, _ := logic["args"].([]any)
		return slices.ContainsFunc(args, correlated)
	}
	e := sub(n, "A_Expr")
	if strings.Join(names(e["name"]), ".") != "=" {
		return false
	}
	left, right := columnName(e["lexpr"]), columnName(e["rexpr"])
	return len(left) > 0 && len(right) > 0 && !slices.Equal(left[:len(left)-1], right[:len(right)-1])
}

func columnName(v any) []string {
	n, _ := v.(node)
	return names(sub(n, "ColumnRef")["fields"])
}

// targetNames are the names that a statement's WHERE may call its table by.
func targetNames(n node) []string {
	relation := sub(n, "relation")
	if alias := str(sub(relation, "alias"), "aliasname"); alias != "" {
		return []string{alias}
	}
	return []string{str(relation, "relname")}
}

// joined tells whether a condition, of those that hold together, says which rows
// of one of the tables are meant.
func joined(v any, tables []string) bool {
	n, _ := v.(node)
	if logic := sub(n, "BoolExpr"); str(logic, "boolop") == "AND_EXPR" {
		args, _ := logic["args"].([]any)
		return slices.ContainsFunc(args, func(a any) bool { return joined(a, tables) })
	}
	return (correlated(v) || bounded(v)) && mentions(v, tables)
}

// mentions tells whether a condition has a column of one of the tables.
func mentions(v any, tables []string) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if mentions(e, tables) {
				return true
			}
		}
	case node:
		if c := columnName(v); len(c) > 1 && slices.Contains(tables, c[len(c)-2]) {
			return true
		}
		for _, e := range v {
			if mentions(e, tables) {
				return true
			}
		}
	}
	return false
}

func boundedComparison(n node) bool {
	left, right := n["lexpr"], n["rexpr"]
	op := strings.TrimPrefix(strings.Join(names(n["name"]), "."), "pg_catalog.")
	switch str(n, "kind") {
	case "AEXPR_IN", "AEXPR_OP_ANY":
		return op == "=" && plainColumn(left) && !hasColumn(right)
	case "AEXPR_BETWEEN", "AEXPR_BETWEEN_SYM":
		return plainColumn(left) && boundedRange(right)
	case "AEXPR_NOT_DISTINCT":
		return plainColumn(left) && !hasColumn(right) || plainColumn(right) && !hasColumn(left)
	case "AEXPR_LIKE", "AEXPR_ILIKE":
		return !strings.HasPrefix(op, "!") && plainColumn(left) && like(right)
	case "AEXPR_SIMILAR":
		if f := sub(nodeOf(right), "FuncCall"); f != nil { // the parser wraps the pattern in similar_to_escape
			args, _ := f["args"].([]any)
			pattern, ok := literal(first(args))
			return !strings.HasPrefix(op, "!") && ok && len(args) == 1 && plainColumn(left) && narrow.Regexp(strings.TrimRight(pattern, "%"))
		}
	case "AEXPR_OP":
		if plainColumn(left) && !hasColumn(right) {
			return narrowOperator(op, left, right)
		}
		return op == "=" && plainColumn(right) && !hasColumn(left) && narrowOperator(op, right, left)
	}
	return false
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func boundedRange(v any) bool {
	items, _ := sub(nodeOf(v), "List")["items"].([]any)
	if len(items) != 2 {
		return false
	}
	from, ok := constant(items[0])
	to, ok2 := constant(items[1])
	return ok && ok2 && narrow.Range(from, to)
}

// like judges the pattern of LIKE; with ESCAPE, the parser wraps it in like_escape.
func like(v any) bool {
	escape := `\`
	if f := sub(nodeOf(v), "FuncCall"); f != nil {
		args, _ := f["args"].([]any)
		if len(args) != 2 {
			return false
		}
		text, ok := literal(args[1])
		if !ok {
			return false
		}
		v, escape = args[0], text
	}
	pattern, ok := literal(v)
	return ok && narrow.Like(pattern, escape)
}

func nodeOf(v any) node { n, _ := v.(node); return n }

// narrowOperator judges  column op value. Ranges with one open end may hold every row.
func narrowOperator(op string, column, value any) bool {
	text, isText := literal(value)
	switch op {
	case "=":
		return !isText || text != "" || len(columnName(column)) > 0 // left(x, 0) = ''
	case "~~", "~~*":
		return isText && narrow.Like(text, `\`)
	case "~", "~*":
		return isText && narrow.Regexp(text)
	case "^@", "@>", "@@": // not ?, for every row may have the key
		return isText && strings.Trim(text, "{}[] ") != ""
	}
	return false
}

func number(v any) (float64, bool) {
	n, _ := v.(node)
	if e := sub(n, "A_Expr"); e != nil && e["lexpr"] == nil && strings.Join(names(e["name"]), "") == "-" {
		f, ok := number(e["rexpr"])
		return -f, ok
	}
	c := sub(n, "A_Const")
	if i, ok := c["ival"].(node); ok {
		f, _ := i["ival"].(float64)
		return f, true
	}
	if s, ok := c["fval"].(node); ok {
		f, err := strconv.ParseFloat(str(s, "fval"), 64)
		return f, err == nil
	}
	return 0, false
}

// plainColumn is a column, or one seen through a cast, a function of it alone
// or a JSON path: something whose value says which row it is.
func plainColumn(v any) bool {
	n, _ := v.(node)
	switch {
	case n["ColumnRef"] != nil:
		return true
	case n["TypeCast"] != nil:
		parts := names(sub(n, "TypeCast", "typeName")["names"])
		return parts[len(parts)-1] != "bool" && plainColumn(sub(n, "TypeCast")["arg"])
	case n["FuncCall"] != nil:
		return plainCall(sub(n, "FuncCall"))
	case n["A_Expr"] != nil:
		e := sub(n, "A_Expr")
		op := strings.Join(names(e["name"]), "")
		return (op == "->>" || op == "->" || op == "#>>" || op == "#>") && plainColumn(e["lexpr"])
	case n["RowExpr"] != nil:
		args, _ := sub(n, "RowExpr")["args"].([]any)
		return slices.ContainsFunc(args, plainColumn)
	}
	return false
}

// plainCall is a function of a column that keeps rows apart.
func plainCall(f node) bool {
	parts := names(f["funcname"])
	args, _ := f["args"].([]any)
	switch name := parts[len(parts)-1]; name {
	case "left", "substr", "substring":
		return plainColumn(first(args))
	case "extract", "date_part", "date_trunc":
		field, _ := literal(first(args))
		switch strings.ToLower(field) {
		case "year", "quarter", "month", "week", "day", "doy", "dow", "isodow", "hour", "minute", "epoch":
			return len(args) == 2 && plainColumn(args[1])
		}
	default:
		return narrow.Key(name) && plainColumn(first(args))
	}
	return false
}

func hasColumn(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if hasColumn(e) {
				return true
			}
		}
	case node:
		for k, e := range v {
			if k == "ColumnRef" || hasColumn(e) {
				return true
			}
		}
	}
	return false
}

// Bounded tells whether a WHERE clause, given as text, leaves rows out. It is
// for analysers of other dialects; what does not parse is not bounded.
func (p *Parser) Bounded(ctx context.Context, where string) bool {
	raw, err := p.machine.tree(ctx, "SELECT 1 WHERE "+where)
	if err != nil {
		return false
	}
	var t tree
	if json.Unmarshal(raw, &t) != nil || len(t.Stmts) != 1 {
		return false
	}
	q := sub(t.Stmts[0].Stmt, "SelectStmt")
	return q != nil && !truthy(q["whereClause"]) && bounded(q["whereClause"])
}

// truthy tells whether a condition has a column that is a condition itself: to
// other dialects that is a number which is not zero.
func truthy(v any) bool {
	n, _ := v.(node)
	if n["ColumnRef"] != nil {
		return true
	}
	args, _ := sub(n, "BoolExpr")["args"].([]any)
	return slices.ContainsFunc(args, truthy)
}
