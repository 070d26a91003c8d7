package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sallyport.dev/sallyport"
)

// maxWitnesses bounds what one ticket looks at.
const maxWitnesses = 8

// witness reads one look at a call's target. Whether its tool exists and is
// read-only is judged when it is taken: tools come and go.
func (d document) witness(to *[]sallyport.Witness) setter {
	return func(n ast.Node) error {
		var w sallyport.Witness
		err := d.object(n, "an entry of witness", fields{
			"name": d.text(&w.Name), "tool": d.text(&w.Tool), "select": d.text(&w.Select), "binds": d.text(&w.Binds),
			"arguments": func(n ast.Node) (err error) {
				w.Args, err = d.objectJSON(n)
				return err
			},
		})
		switch {
		case err != nil:
			return err
		case w.Name == "" || len(w.Name) > 64:
			return d.errorf(n, "for example name: rows", "an entry of witness needs a name of at most 64 characters")
		case w.Tool == "":
			return d.errorf(n, "add tool:", "the witness %s needs the read-only tool that looks", w.Name)
		case slices.ContainsFunc(*to, func(o sallyport.Witness) bool { return o.Name == w.Name }):
			return d.errorf(n, "give each its own name", "the witness %s is there twice", w.Name)
		case len(*to) == maxWitnesses:
			return d.errorf(n, "keep those that matter", "a tool has at most %d witnesses", maxWitnesses)
		}
		for key, p := range map[string]string{"select": w.Select, "binds": w.Binds} {
			if p != "" && !strings.HasPrefix(p, "/") {
				return d.errorf(n, "for example /structuredContent/rows", "%s must be a JSON Pointer, not %.60q", key, p)
			}
		}
		if err := references(w.Args); err != nil {
			return d.errorf(n, `write {"$arg": "/path"}`, "the arguments of the witness %s: %v", w.Name, err)
		}
		*to = append(*to, w)
		return nil
	}
}

// estimate reads how a database is asked for the rows that a call would touch.
// Whether the tool is there, and of the same server, is judged when it is asked.
func (d document) estimate(to **sallyport.Estimate) setter {
	return func(n ast.Node) error {
		var e sallyport.Estimate
		err := d.object(n, "estimate", fields{
			"tool": d.text(&e.Tool), "argument": d.text(&e.Argument),
			"arguments": func(n ast.Node) (err error) {
				e.Args, err = d.objectJSON(n)
				return err
			},
		})
		switch {
		case err != nil:
			return err
		case e.Tool == "":
			return d.errorf(n, "add tool:", "estimate needs the tool of the same server that takes queries")
		case e.Argument == "" || strings.HasPrefix(e.Argument, "/"):
			return d.errorf(n, "for example argument: sql", "estimate needs the name of that tool's argument that carries SQL")
		}
		if err := references(e.Args); err != nil {
			return d.errorf(n, `write {"$arg": "/path"}`, "the arguments of estimate: %v", err)
		}
		*to = &e
		return nil
	}
}

// references checks every {"$arg": "/pointer"} in a witness's arguments.
func references(v json.RawMessage) error {
	var members map[string]json.RawMessage
	var items []json.RawMessage
	switch {
	case json.Unmarshal(v, &members) == nil:
		ref, there := members["$arg"]
		var pointer string
		if there && (len(members) != 1 || json.Unmarshal(ref, &pointer) != nil || pointer != "" && !strings.HasPrefix(pointer, "/")) {
			return fmt.Errorf("$arg must stand alone and name an argument by JSON Pointer")
		}
		for _, m := range members {
			if err := references(m); err != nil {
				return err
			}
		}
	case json.Unmarshal(v, &items) == nil:
		for _, m := range items {
			if err := references(m); err != nil {
				return err
			}
		}
	}
	return nil
}
