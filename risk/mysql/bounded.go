package mysql

import (
	"strconv"
	"strings"

	"vitess.io/vitess/go/vt/sqlparser"

	"sallyport.dev/sallyport/risk/narrow"
)

// bounded tells whether a WHERE names, in each of its alternatives, a condition
// that leaves rows out. It knows nothing of the rows, so it doubts: what might
// hold for every row does not count. MySQL turns texts into numbers (name = 0
// holds for every name without digits) and numbers into conditions (WHERE id).
func (w *walk) bounded(e sqlparser.Expr) bool {
	var ranges narrow.Ranges
	switch e := e.(type) {
	case *sqlparser.AndExpr:
		return w.bounded(e.Left) || w.bounded(e.Right) || w.between(&ranges, e) && ranges.Bounded()
	case *sqlparser.OrExpr:
		return w.bounded(e.Left) && w.bounded(e.Right)
	case *sqlparser.ComparisonExpr:
		return w.boundedComparison(e)
	case *sqlparser.BetweenExpr:
		from, fromOK := constant(e.From)
		to, toOK := constant(e.To)
		return e.IsBetween && w.key(e.Left) && fromOK && toOK && near(from, to)
	case *sqlparser.IsExpr:
		return e.Right == sqlparser.IsNullOp && w.key(e.Left)
	case *sqlparser.ExistsExpr:
		return false
	}
	return false
}

// near is a narrow range without the zero that every text turns into.
func near(from, to string) bool {
	low, err := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	return narrow.Range(from, to) && !(err == nil && err2 == nil && low <= 0 && high >= 0)
}

func zero(v string) bool {
	f, err := strconv.ParseFloat(v, 64)
	return err == nil && f <= 0
}

// between collects the one-sided ranges of a list of AND.
func (w *walk) between(r *narrow.Ranges, e sqlparser.Expr) bool {
	switch e := e.(type) {
	case *sqlparser.AndExpr:
		left, right := w.between(r, e.Left), w.between(r, e.Right)
		return left || right
	case *sqlparser.ComparisonExpr:
		column, op, value := e.Left, e.Operator.ToString(), e.Right
		if !w.key(column) {
			column, op, value = e.Right, narrow.Mirrored(op), e.Left
		}
		if v, ok := constant(value); ok && w.key(column) && !zero(v) {
			r.Add(sqlparser.String(column), op, v)
			return true
		}
	}
	return false
}

func (w *walk) boundedComparison(e *sqlparser.ComparisonExpr) bool {
	left, right := e.Left, e.Right
	if e.Modifier != sqlparser.Missing {
		return false
	}
	switch e.Operator {
	case sqlparser.EqualOp, sqlparser.NullSafeEqualOp:
		return w.key(left) && w.value(right, left) || w.key(right) && w.value(left, right) || w.rows(left, right)
	case sqlparser.InOp:
		switch list := right.(type) {
		case sqlparser.ValTuple:
			for _, v := range list {
				if !w.value(v, left) {
					return false
				}
			}
			return w.key(left) && len(list) > 0
		case *sqlparser.Subquery:
			return w.key(left) && w.boundedQuery(list.Select, left)
		}
	case sqlparser.LikeOp:
		pattern, ok := right.(*sqlparser.Literal)
		escape := `\`
		if e.Escape != nil {
			l, isLiteral := e.Escape.(*sqlparser.Literal)
			if !isLiteral {
				return false
			}
			escape = l.Val
		}
		return ok && w.key(left) && narrow.Like(pattern.Val, escape)
	case sqlparser.RegexpOp:
		pattern, ok := right.(*sqlparser.Literal)
		return ok && w.key(left) && narrow.Regexp(pattern.Val)
	default: // ranges with one open end, and what leaves out single values
	}
	return false
}

// rows judges (a, b) = (1, 2).
func (w *walk) rows(left, right sqlparser.Expr) bool {
	columns, ok := left.(sqlparser.ValTuple)
	values, ok2 := right.(sqlparser.ValTuple)
	if !ok || !ok2 || len(columns) != len(values) {
		return false
	}
	for i := range columns {
		if w.key(columns[i]) && w.value(values[i], columns[i]) {
			return true
		}
	}
	return false
}

// boundedQuery judges the query of IN: one table, and few of its rows.
func (w *walk) boundedQuery(q sqlparser.TableStatement, key sqlparser.Expr) bool {
	s, ok := q.(*sqlparser.Select)
	if !ok || len(s.From) != 1 || s.SelectExprs == nil || len(s.SelectExprs.Exprs) != 1 {
		return false
	}
	if t, ok := s.From[0].(*sqlparser.AliasedTableExpr); !ok {
		return false
	} else if _, ok := t.Expr.(sqlparser.TableName); !ok {
		return false
	}
	column, ok := s.SelectExprs.Exprs[0].(*sqlparser.AliasedExpr)
	if !ok || !w.key(column.Expr) || sameBare(column.Expr, key) {
		return false
	}
	return s.Where != nil && w.bounded(s.Where.Expr)
}

// sameBare finds  id IN (SELECT id FROM other …): where other has no column id,
// it is the outer one, and every row matches.
func sameBare(inner, outer sqlparser.Expr) bool {
	a, ok := inner.(*sqlparser.ColName)
	b, ok2 := outer.(*sqlparser.ColName)
	return ok && ok2 && a.Qualifier.IsEmpty() && a.Name.Equal(b.Name)
}

// key is a column, or a column seen through a function that keeps rows apart.
func (w *walk) key(e sqlparser.Expr) bool {
	switch e := e.(type) {
	case *sqlparser.ColName:
		return !e.Qualifier.IsEmpty() || !w.names[e.Name.Lowered()]
	case *sqlparser.FuncExpr:
		return (narrow.Key(e.Name.String()) || e.Name.Lowered() == "year") && len(e.Exprs) > 0 && w.key(e.Exprs[0])
	case *sqlparser.CollateExpr:
		return w.key(e.Expr)
	case *sqlparser.JSONExtractExpr:
		return w.key(e.JSONDoc)
	case *sqlparser.JSONUnquoteExpr:
		return w.key(e.JSONValue)
	case *sqlparser.BinaryExpr:
		return false
	}
	return false
}

// value is something that a key can be compared with: the same for every row,
// and not what other values turn into. "x" is a text or a name, by the server's
// settings; as a name it is good unless it is the key's own.
func (w *walk) value(e, key sqlparser.Expr) bool {
	if c, ok := e.(*sqlparser.ColName); ok && c.Qualifier.IsEmpty() && w.names[c.Name.Lowered()] {
		k, ok := key.(*sqlparser.ColName)
		return !ok || !k.Name.Equal(c.Name)
	}
	if l, ok := e.(*sqlparser.Literal); ok && l.Type == sqlparser.StrVal {
		return true
	}
	v, ok := constant(e)
	if !ok {
		return false
	}
	f, err := strconv.ParseFloat(v, 64)
	return err != nil || f != 0
}

// constant is a value that is the same for every row, as text; narrow.Unknown
// where it is not known.
func constant(e sqlparser.Expr) (string, bool) {
	switch e := e.(type) {
	case *sqlparser.Literal:
		return e.Val, e.Type != sqlparser.HexNum && e.Type != sqlparser.BitNum
	case *sqlparser.Argument:
		return narrow.Unknown, true
	case sqlparser.BoolVal:
		return map[bool]string{true: "1", false: "0"}[bool(e)], true
	case *sqlparser.NullVal:
		return narrow.Unknown, true
	case *sqlparser.UnaryExpr:
		v, ok := constant(e.Expr)
		switch {
		case e.Operator == sqlparser.UMinusOp:
			return "-" + strings.TrimPrefix(v, "-"), ok
		case e.Operator == sqlparser.UPlusOp:
			return v, ok
		}
	case *sqlparser.CurTimeFuncExpr:
		return narrow.Unknown, true
	case *sqlparser.IntroducerExpr:
		return constant(e.Expr)
	}
	return "", false
}
