package mysql

import (
	"strings"

	"sallyport.dev/sallyport"
)

// A leading says what a statement that vitess does not parse is about.
type leading struct {
	effect string
	lost   bool
	reason string
}

// leadings, by their first words. All of them are critical: what they do is
// told by words, not proven.
var leadings = map[string]leading{
	"grant":             {sallyport.EffectPrivileges, false, "grants privileges"},
	"revoke":            {sallyport.EffectPrivileges, false, "revokes privileges"},
	"create user":       {sallyport.EffectPrivileges, false, "creates an account"},
	"alter user":        {sallyport.EffectPrivileges, false, "alters an account"},
	"rename user":       {sallyport.EffectPrivileges, false, "renames an account"},
	"drop user":         {sallyport.EffectPrivileges, true, "drops an account: it cannot be brought back"},
	"create role":       {sallyport.EffectPrivileges, false, "creates a role"},
	"drop role":         {sallyport.EffectPrivileges, true, "drops a role: it cannot be brought back"},
	"set password":      {sallyport.EffectPrivileges, false, "sets a password"},
	"set role":          {sallyport.EffectPrivileges, false, "changes on whose behalf the session acts"},
	"set default":       {sallyport.EffectPrivileges, false, "changes an account's default role"},
	"handler":           {sallyport.EffectRead, false, "opens or reads a table past the optimizer, which stays open"},
	"xa":                {sallyport.EffectWrite, false, "prepares or settles a distributed transaction: what is in it is unknown"},
	"do":                {sallyport.EffectExecute, false, "evaluates functions for what they do"},
	"create function":   {sallyport.EffectExecute, false, "plants a function, whose effect cannot be told"},
	"create aggregate":  {sallyport.EffectExecute, false, "plants a function, whose effect cannot be told"},
	"create trigger":    {sallyport.EffectExecute, false, "plants a trigger, which acts on later statements"},
	"create event":      {sallyport.EffectExecute, false, "plants an event, which acts later"},
	"alter event":       {sallyport.EffectExecute, false, "alters an event, which acts later"},
	"create definer":    {sallyport.EffectExecute, false, "plants code that runs with another's privileges"},
	"install":           {sallyport.EffectExecute, false, "installs a plugin: its code runs in the server"},
	"uninstall":         {sallyport.EffectDestroy, true, "removes a plugin"},
	"drop":              {sallyport.EffectDestroy, true, "drops something: it cannot be brought back"},
	"delete":            {sallyport.EffectDelete, true, "deletes rows: they cannot be brought back"},
	"update":            {sallyport.EffectWrite, true, "may update every row of a table"},
	"truncate":          {sallyport.EffectDelete, true, "empties a table: its rows cannot be brought back"},
	"replace":           {sallyport.EffectDelete, true, "replaces rows: those that clash are deleted"},
	"reset":             {sallyport.EffectDestroy, true, "resets logs or replication: what they record cannot be brought back"},
	"purge":             {sallyport.EffectDestroy, true, "deletes logs: what they record cannot be brought back"},
	"shutdown":          {sallyport.EffectDestroy, true, "stops the server"},
	"restart":           {sallyport.EffectDestroy, true, "stops the server"},
	"clone":             {sallyport.EffectDestroy, true, "replaces the server's data"},
	"import":            {sallyport.EffectWrite, false, "imports tables from files"},
	"start":             {sallyport.EffectWrite, false, "starts replication or a transaction"},
	"stop":              {sallyport.EffectWrite, false, "stops replication"},
	"change":            {sallyport.EffectNetwork, false, "changes from whom the server replicates"},
	"load":              {sallyport.EffectWrite, false, "loads rows from a file"},
	"analyze":           {sallyport.EffectWrite, false, "runs a statement to analyse it, or writes statistics"},
	"signal":            {sallyport.EffectExecute, false, "raises a condition"},
	"begin not atomic":  {sallyport.EffectExecute, false, "runs a block of code, whose effect cannot be told"},
	"execute immediate": {sallyport.EffectExecute, false, "executes a statement that is made at run time"},
	"exec":              {sallyport.EffectExecute, false, "runs a procedure of another dialect"},
	"execute":           {sallyport.EffectExecute, false, "executes something prepared elsewhere"},
}

// unparsed judges a statement that vitess does not parse: critical, high where
// only another than the usual reading does not parse, and the words say the rest.
func (w *walk) unparsed(s statement) {
	if w.why != "" { // the server may well refuse it, too
		w.found.Effect(sallyport.EffectOpaque)
		w.found.Add(sallyport.High, "the parser cannot read the SQL%s", w.why)
		w.leading(s)
		w.suspect(s)
		return
	}
	w.unknown("the parser cannot read the SQL, so what it does is unknown")
	w.leading(s)
	w.suspect(s)
	if len(s) == 3 && s[0].is("execute") && s[1].is("immediate") && s[2].kind == text {
		r, _ := w.judge.judge(s[2].value, w.nested+1)
		w.found.Merge(r)
	}
}

func (w *walk) leading(s statement) {
	for n := min(3, len(s)); n > 0; n-- {
		words := make([]string, n)
		for i := range n {
			words[i] = strings.ToLower(s[i].value)
		}
		l, ok := leadings[strings.Join(words, " ")]
		if !ok {
			continue
		}
		w.found.Effect(l.effect)
		if l.lost {
			w.found.Lost("%s", l.reason)
		} else {
			w.found.Add(sallyport.Critical, "%s", l.reason)
		}
		return
	}
}

// looks tells the statements that vitess does not parse, and that only show
// something: HELP, CHECKSUM TABLE, CHECK TABLE, SHOW COUNT(*) WARNINGS.
func (s statement) looks() bool {
	switch {
	case s[0].is("help"):
		return len(s) == 2 && s[1].kind != operator
	case s[0].is("show") && len(s) == 6 && s[1].is("count"):
		return s[2].op("(") && s[3].op("*") && s[4].op(")") && (s[5].is("warnings") || s[5].is("errors"))
	case len(s) > 2 && (s[0].is("checksum") || s[0].is("check")) && (s[1].is("table") || s[1].is("tables")):
		return s[2:].tables()
	}
	return false
}

// tables tells a list of tables, with the words that may follow it.
func (s statement) tables() bool {
	for n := len(s); n > 1 && s[n-2].kind != operator && checks[strings.ToLower(s[n-1].value)]; n = len(s) {
		s = s[:n-1]
	}
	for i, t := range s { // a name, a comma or a point, a name …
		if i%2 == 0 && t.kind != word && t.kind != name || i%2 == 1 && !t.op(",") && !t.op(".") {
			return false
		}
	}
	return len(s)%2 == 1
}

var checks = set(`quick fast medium extended changed`)

// withoutSounds writes LIKE for SOUNDS LIKE, in a query that only reads.
func (s statement) withoutSounds() statement {
	if !s[0].is("select") || !s.has("sounds", "like") {
		return s
	}
	var out statement
	for i, t := range s {
		if !t.is("sounds") || i+1 == len(s) || !s[i+1].is("like") {
			out = append(out, t)
		}
	}
	return out
}

// withoutColons writes = for the := by which SET gives a variable its value.
func (s statement) withoutColons() statement {
	if !s[0].is("set") {
		return s
	}
	out := make(statement, len(s))
	depth := 0
	for i, t := range s {
		switch {
		case t.op("("):
			depth++
		case t.op(")"):
			depth--
		case t.op(":=") && depth == 0:
			t.value = "="
		}
		out[i] = t
	}
	return out
}

// swallowed judges the statements of which vitess keeps no more than the first words.
func (w *walk) swallowed(s statement) {
	switch {
	case s == nil:
		w.unknown("explains a statement that the analyser does not know")
	case s[0].is("repair") || s[0].is("optimize"):
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "rewrites tables: %s", strings.ToUpper(s[0].value))
	default:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.Critical, "loads rows from a file of the server or of the client")
		w.suspect(s)
	}
}

// suspect looks at a statement that was not parsed for what it seems to take
// away. What is here only raises a verdict that is critical already.
func (w *walk) suspect(s statement) {
	for i := 0; i+1 < len(s); i++ {
		t, next := s[i], s[i+1]
		switch {
		case t.is("drop") && next.kind <= name, t.is("truncate") && next.kind <= name, t.is("delete") && next.kind == word,
			t.is("replace") && next.is("into"), t.is("or") && next.is("replace") && s.has("table"), t.is("replace") && s[0].is("load"),
			t.is("into") && (next.is("outfile") || next.is("dumpfile")):
			w.found.Effect(sallyport.EffectDelete)
			w.found.Lost("seems to drop, delete or overwrite: %s %s", strings.ToUpper(t.value), next.value)
			return
		}
	}
}
