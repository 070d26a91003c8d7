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

// qualified tells whether the WHERE of an UPDATE says which rows of its own
// table are meant: orders.id = …
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
		case where && i+1 < len(list) && list[i+1].op(".") && strings.EqualFold(t.value, target) && equated(list, i, target):
			return true
		}
	}
	return false
}

// equated tells whether the column whose table's name is list[i] stands beside
// an equals sign, with no column of the same table on its other side.
func equated(list []token, i int, target string) bool {
	equals := func(j int) bool { return j >= 0 && j < len(list) && (list[j].op("=") || list[j].op("==")) }
	if equals(i+3) && i+4 < len(list) {
		return !strings.EqualFold(list[i+4].value, target)
	}
	return equals(i-1) && i > 1 && (i < 4 || !strings.EqualFold(list[i-4].value, target))
}

// chains finds  a = b = c  and  a = b LIKE c: SQLite compares the result of the
// first comparison, where others read something else or nothing.
func chains(list []token) bool {
	counts := []int{0}
	between := false
	for _, t := range list {
		top := len(counts) - 1
		switch {
		case t.op("("):
			counts = append(counts, 0)
		case t.op(")"):
			if top > 0 {
				counts = counts[:top]
			}
		case t.is("and") && between:
			between = false
		case starts(t):
			counts[top] = 0
		case compares(t):
			between = between || t.is("between")
			if counts[top]++; counts[top] > 1 {
				return true
			}
		}
	}
	return false
}

func starts(t token) bool {
	for _, k := range []string{"and", "or", "select", "from", "where", "on", "set", "when", "then", "else", "case", "end", "returning", "by", "having"} {
		if t.is(k) {
			return true
		}
	}
	return t.op(",")
}

func compares(t token) bool {
	for _, k := range []string{"is", "in", "like", "glob", "match", "regexp", "between", "isnull", "notnull"} {
		if t.is(k) {
			return true
		}
	}
	return t.kind == operator && strings.Contains(" = == != <> < > <= >= ", " "+t.value+" ")
}

// planted looks at the functions that a view or trigger would call: SQLite looks
// them up only when it is used.
func (w *walk) planted(list []token) {
	for i := 1; i < len(list); i++ {
		if list[i].op("(") && list[i-1].kind == word && reaches[strings.ToLower(list[i-1].value)] {
			w.found.Add(sallyport.Critical, "plants a call of %s, which leaves the database", list[i-1].value)
		}
	}
}

// reaches are functions of the shell and of common extensions that leave the database.
var reaches = set(`load_extension readfile writefile edit fsdir lsdir zipfile eval shell fts3_tokenizer`)

// trigger judges what a trigger would do when it fires. SQLite compiles its
// body only then.
func (w *walk) trigger(sql string) {
	w.found.Effect(sallyport.EffectExecute)
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
