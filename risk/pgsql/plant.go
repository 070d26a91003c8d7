package pgsql

import (
	"strings"

	"sallyport.dev/sallyport"
)

// Code that a statement leaves in the server runs later, and a function may
// have the name of one of PostgreSQL's own: lower(integer) beside lower(text).
// So what is planted is judged when it is planted.

// createFunction judges a function or procedure by its body.
func (w *walk) createFunction(n node) {
	w.found.Effect(sallyport.EffectExecute)
	w.found.Add(sallyport.High, "creates or replaces a function")
	language, body, hasBody := "sql", "", false
	options, _ := n["options"].([]any)
	for _, o := range options {
		e, _ := o.(node)
		def := sub(e, "DefElem")
		switch str(def, "defname") {
		case "language":
			language = strings.ToLower(str(sub(def, "arg", "String"), "sval"))
		case "as":
			if parts := names(sub(def, "arg", "List")["items"]); len(parts) == 1 {
				body, hasBody = parts[0], true
			}
		}
	}
	w.loosely(node{"sql_body": n["sql_body"], "parameters": n["parameters"]})
	switch {
	case n["sql_body"] != nil:
	case language == "sql" && hasBody:
		w.found.Merge(w.nest(body).Risk)
	case takesAway.MatchString(body):
		w.found.Lost("plants a function that drops, truncates or deletes")
	default:
		w.found.Add(sallyport.Critical, "plants a function in language %s, whose effect cannot be told", language)
	}
}

// planted judges what makes the server call a function later: a trigger, an
// operator, an aggregate, a cast.
func (w *walk) planted(kind string, n node) {
	var calls [][]string
	switch kind {
	case "CreateTrigStmt":
		calls = append(calls, names(n["funcname"]))
	case "CreateCastStmt":
		calls = append(calls, names(sub(n, "func")["objname"]))
	default:
		definition, _ := n["definition"].([]any)
		for _, d := range definition {
			e, _ := d.(node)
			def := sub(e, "DefElem")
			switch strings.ToLower(str(def, "defname")) {
			case "sfunc", "finalfunc", "combinefunc", "serialfunc", "deserialfunc", "msfunc", "minvfunc", "mfinalfunc",
				"function", "procedure", "restrict", "join", "input", "output", "receive", "send", "typmod_in", "typmod_out", "analyze",
				"subscript", "start", "gettoken", "end", "headline", "lextypes", "init", "lexize":
				calls = append(calls, names(sub(def, "arg", "TypeName")["names"]))
			}
		}
	}
	for _, parts := range calls {
		if len(parts) == 2 && parts[0] == "pg_catalog" {
			parts = parts[1:]
		}
		name := strings.Join(parts, ".")
		_, known := w.catalogue.functions[name]
		switch {
		case name == "":
		case dropping.MatchString(name):
			w.found.Lost("makes the server call %s, which by its name takes something away", name)
		case !known:
			w.found.Add(sallyport.Critical, "makes the server call %s later, which is not PostgreSQL's own: what it does is unknown", name)
		}
	}
}
