package pgsql

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// bounded tells whether a WHERE clause names, in each of its alternatives, a
// condition that leaves rows out: a column compared with a value, a list, a
// range. 1=1, id=id, id<>0, x IS NOT NULL, LIKE '%' and the like do not.
// It knows nothing of the rows; whoever approves has to.
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
			return str(b, "nulltesttype") == "IS_NULL" && hasColumn(b["arg"])
		case "BooleanTest":
			t := str(b, "booltesttype")
			return (t == "IS_TRUE" || t == "IS_FALSE" || t == "IS_UNKNOWN") && plainColumn(b["arg"])
		case "ColumnRef", "CurrentOfExpr":
			return true
		case "SubLink":
			return boundedSubquery(b)
		case "FuncCall":
			return hasColumn(b) && !emptyText(b["args"])
		}
	}
	return false
}

func boundedLogic(n node) bool {
	args, _ := n["args"].([]any)
	switch str(n, "boolop") {
	case "AND_EXPR":
		for _, a := range args {
			if bounded(a) {
				return true
			}
		}
		return false
	case "OR_EXPR":
		for _, a := range args {
			if !bounded(a) {
				return false
			}
		}
		return len(args) > 0
	}
	// NOT of a column that is a condition itself; NOT of anything else is wide.
	return len(args) == 1 && plainColumn(args[0])
}

func boundedSubquery(n node) bool {
	q := sub(n, "subselect", "SelectStmt")
	if q == nil {
		return false
	}
	narrow := q["limitCount"] != nil || bounded(q["whereClause"])
	switch str(n, "subLinkType") {
	case "ANY_SUBLINK":
		return narrow
	case "EXISTS_SUBLINK": // says something of a row only if it looks at that row
		return narrow && correlated(q["whereClause"])
	}
	return false
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
	op := strings.Join(names(n["name"]), ".")
	switch str(n, "kind") {
	case "AEXPR_IN":
		return op == "=" && plainColumn(left) && !hasColumn(right)
	case "AEXPR_BETWEEN", "AEXPR_BETWEEN_SYM":
		return plainColumn(left) && !hasColumn(right)
	case "AEXPR_NOT_DISTINCT":
		return plainColumn(left) && !hasColumn(right) || plainColumn(right) && !hasColumn(left)
	case "AEXPR_OP_ANY":
		return op == "=" && plainColumn(left) && !hasColumn(right)
	case "AEXPR_LIKE", "AEXPR_ILIKE", "AEXPR_SIMILAR":
		if f := sub(nodeOf(right), "FuncCall"); str(n, "kind") == "AEXPR_SIMILAR" && f != nil {
			if args, _ := f["args"].([]any); len(args) > 0 { // the parser wraps the pattern in similar_to_escape
				right = args[0]
			}
		}
		pattern, known := literal(right)
		return !strings.HasPrefix(op, "!") && plainColumn(left) && !hasColumn(right) && (!known || strings.Trim(pattern, "%_") != "")
	case "AEXPR_OP":
		if plainColumn(left) && !hasColumn(right) {
			return narrow(op, right)
		}
		if plainColumn(right) && !hasColumn(left) {
			return narrow(mirrored(op), left)
		}
	}
	return false
}

func nodeOf(v any) node { n, _ := v.(node); return n }

// emptyText finds ” among the arguments of a function: starts_with(x, ”).
func emptyText(args any) bool {
	list, _ := args.([]any)
	return slices.ContainsFunc(list, func(a any) bool { text, ok := literal(a); return ok && text == "" })
}

func mirrored(op string) string {
	switch op {
	case "<":
		return ">"
	case ">":
		return "<"
	case "<=":
		return ">="
	case ">=":
		return "<="
	}
	return op
}

// narrow judges column op value.
func narrow(op string, value any) bool {
	f, isNumber := number(value)
	text, isText := literal(value)
	switch op {
	case "<>", "!=", "!~~", "!~", "!~~*", "!~*":
		return false
	case ">", ">=":
		return !(isNumber && f <= 1) && !(isText && text == "")
	case "<", "<=":
		return !(isNumber && f >= 1e6)
	case "~", "~*":
		return !isText || strings.Trim(text, ".*^$+?()[]") != ""
	}
	return true
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
		return plainColumn(sub(n, "TypeCast")["arg"])
	case n["FuncCall"] != nil:
		f := sub(n, "FuncCall")
		parts := names(f["funcname"])
		switch parts[len(parts)-1] {
		case "lower", "upper", "trim", "btrim", "date", "date_trunc", "left", "substr", "substring", "md5", "extract", "date_part":
			return hasColumn(f["args"])
		}
	case n["A_Expr"] != nil:
		e := sub(n, "A_Expr")
		op := strings.Join(names(e["name"]), "")
		return (op == "->>" || op == "->" || op == "#>>" || op == "#>") && plainColumn(e["lexpr"])
	case n["RowExpr"] != nil:
		return hasColumn(n["RowExpr"])
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
func (p *Parser) Bounded(where string) bool {
	raw, err := p.machine.tree("SELECT 1 WHERE " + where)
	if err != nil {
		return false
	}
	var t tree
	if json.Unmarshal(raw, &t) != nil || len(t.Stmts) != 1 {
		return false
	}
	q := sub(t.Stmts[0].Stmt, "SelectStmt")
	return q != nil && bounded(q["whereClause"])
}
