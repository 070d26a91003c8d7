package litesql

import (
	"strings"

	"sallyport.dev/sallyport"
)

// comparesTexts finds "x" = 'x': where no column is called x, SQLite takes "x"
// for a text, and the comparison holds for every row.
func comparesTexts(list []token) bool {
	texts := map[string]bool{}
	for _, t := range list {
		if t.kind == text {
			texts[strings.ToLower(t.value)] = true
		}
	}
	for _, t := range list {
		if t.kind == quoted && texts[strings.ToLower(t.value)] {
			return true
		}
	}
	return false
}

// joins tells whether an UPDATE reads other tables: FROM, outside parentheses.
func joins(list []token) bool {
	depth := 0
	for _, t := range list {
		switch {
		case t.op("("):
			depth++
		case t.op(")"):
			depth--
		case depth == 0 && t.is("from"):
			return true
		}
	}
	return false
}

// qualified tells whether the WHERE of an UPDATE names its own table's columns
// with the table: orders.id.
func qualified(list []token) bool {
	target, where := "", false
	for i, t := range list {
		switch {
		case target == "" && i > 0 && t.kind <= quoted && !t.is("or") && !list[i-1].is("or") && (list[i-1].is("update") || i > 2 && list[i-3].is("update") && list[i-2].is("or")):
			target = t.value
			if i+2 < len(list) && list[i+1].op(".") {
				target, i = list[i+2].value, i+2
			}
			if i+2 < len(list) && list[i+1].is("as") {
				target = list[i+2].value
			}
		case t.is("where"):
			where = true
		case where && i+1 < len(list) && list[i+1].op(".") && strings.EqualFold(t.value, target):
			return true
		}
	}
	return false
}

// trigger judges what a trigger would do when it fires. SQLite compiles its
// body only then.
func (w *walk) trigger(sql string) {
	list := tokens(sql)
	for i, t := range list {
		if t.is("begin") {
			list = list[i+1:]
			break
		}
	}
	for len(list) > 0 {
		body := first(list)
		list = list[min(len(body)+1, len(list)):]
		switch {
		case has(body, "delete", "from") || has(body, "or", "replace") || has(body, "replace", "into"):
			w.found.Add(sallyport.Critical, "plants a trigger that deletes rows later")
		case has(body, "update") || has(body, "do", "update"):
			where, ok := condition(sql, body)
			if !ok || w.judge.Bounded == nil || !ofThisRow(body) && !w.judge.Bounded(where) {
				w.found.Add(sallyport.Critical, "plants a trigger that updates every row of a table later")
			}
		}
	}
}

// ofThisRow finds  WHERE id = new.id  without an OR: a trigger that acts on the
// rows that go with its own.
func ofThisRow(list []token) bool {
	where, found := false, false
	for i, t := range list {
		switch {
		case t.is("where"):
			where = true
		case where && (t.is("or") || t.is("not") || t.is("case")):
			return false
		case where && i >= 2 && (t.is("new") || t.is("old")) && (list[i-1].op("=") || list[i-1].op("==")) && list[i-2].kind <= quoted:
			own := i >= 4 && list[i-3].op(".") && (list[i-4].is("new") || list[i-4].is("old"))
			found = found || !own
		}
	}
	return found
}
