package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// sources are what references can be replaced by before a plan runs.
type sources struct {
	inputs    json.RawMessage
	undo      bool            // it is a compensation
	arguments json.RawMessage // of the step that it undoes, as a template
}

// expand fills inputs in, and in a compensation the step's own arguments. What
// is left refers to results.
func expand(args json.RawMessage, from sources) (json.RawMessage, error) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	n, err := template(args)
	if err != nil {
		return nil, err
	}
	out, err := n.fill(func(_ string, r node) (node, error) { return from.value(r) })
	if err != nil {
		return nil, err
	}
	return sallyport.Canonical(out.json(nil))
}

func (f sources) value(r node) (node, error) {
	v, err := source{"arguments"}.ref(r)
	if err != nil {
		return r, err
	}
	switch v.path[0] {
	case "inputs":
		raw, ok := follow(f.inputs, v.path[1:])
		if !ok {
			return r, fmt.Errorf("there is no %s", v)
		}
		got, err := source{"inputs"}.readJSON(raw)
		if err == nil && (v.declared() || got.kind != '{' && got.kind != '[') {
			err = v.fits(got)
		}
		if err == nil && holdsRef(got) {
			err = fmt.Errorf("%s holds a reference: inputs are plain values", v)
		}
		return got, err
	case "result":
		if !f.undo {
			return r, fmt.Errorf("%s is for compensations", v)
		}
	case "arguments":
		n, err := template(f.arguments)
		if err != nil || !f.undo {
			return r, fmt.Errorf("%s is for compensations", v)
		}
		got, ok := n.at(v.path[1:])
		if !ok {
			return r, fmt.Errorf("its compensation needs %s, which the step does not have", v)
		}
		return got, nil
	}
	return r, nil
}

func holdsRef(n node) (found bool) {
	n.each(func(node) { found = true })
	return found
}

// renamed is the reference with another path.
func (n node) renamed(path string) node {
	out := node{kind: '{', line: n.line}
	for _, m := range n.members {
		if m.name == refKey {
			m.value = node{kind: '"', text: path}
		}
		out.members = append(out.members, m)
	}
	return out
}

// at follows a path through a template. What stands there may be a reference.
func (n node) at(path []string) (node, bool) {
	for i, p := range path {
		if isRef(n) { // into what comes only later: refer to it there
			inner, err := source{}.ref(n)
			if err != nil {
				return n, false
			}
			return n.renamed(inner.String() + "." + strings.Join(path[i:], ".")), true
		}
		switch next := n.member(p); {
		case next != nil:
			n = *next
		case n.kind == '[':
			item, ok := index(n.items, p)
			if !ok {
				return n, false
			}
			n = item
		default:
			return n, false
		}
	}
	return n, true
}

func index(items []node, p string) (node, bool) {
	for i := range items {
		if fmt.Sprint(i) == p {
			return items[i], true
		}
	}
	return node{}, false
}

// A Filling is a template with every value in its place.
type Filling struct {
	Args    json.RawMessage // canonical
	Strayed string          // why these arguments need a human of their own, "" if they do not
	Open    bool            // a value came from a reference that declares nothing
}

// Fill replaces what is left by results of the saga's steps. In a
// compensation a value must have been made by the saga and be of the declared
// form, else a human sees it first; forward, only the declared form counts.
func Fill(s sallyport.Saga, i int, undo bool) (Filling, error) {
	var f Filling
	c := s.Steps[i].Do
	if undo {
		c = *s.Steps[i].Undo
	}
	n, err := template(c.Args)
	if err != nil {
		return f, unreadable("the arguments of "+c.Tool, err)
	}
	stray := func(why string) {
		if f.Strayed == "" {
			f.Strayed = why
		}
	}
	out, err := n.fill(func(_ string, r node) (node, error) {
		v, err := source{"arguments"}.ref(r)
		if err != nil {
			return r, err
		}
		got, err := resultOf(s, i, v)
		if err != nil {
			return r, err
		}
		if got.kind != '"' && got.kind != '0' && got.kind != 't' {
			return r, fmt.Errorf("%s is %s, and only plain values are taken from results", v, got.what())
		}
		f.Open = f.Open || !v.declared()
		if err := v.fits(got); err != nil {
			stray(err.Error())
		} else if undo {
			if why := foreign(s.Steps, i, v); why != "" {
				stray(fmt.Sprintf("%s, %s, would steer what is undone", v, why))
			}
		}
		return got, nil
	})
	if err != nil {
		return f, err
	}
	f.Args, err = sallyport.Canonical(out.json(nil))
	return f, err
}

// resultOf finds a value in the result of a step; i is the step that refers.
func resultOf(s sallyport.Saga, i int, r ref) (node, error) {
	from, path := stepOf(s.Steps, i, r)
	if from < 0 {
		return node{}, fmt.Errorf("%s leads nowhere", r)
	}
	step := s.Steps[from]
	if raw, ok := follow(step.Result, path); ok && len(step.Result) > 0 {
		return source{"result"}.readJSON(raw)
	}
	return node{}, fmt.Errorf("the result of step %q has no %s", step.ID, strings.Join(path, "."))
}

// stepOf is the step whose result a reference of step i leads to, and the path
// in it; -1 if there is none.
func stepOf(steps []sallyport.SagaStep, i int, r ref) (int, []string) {
	if r.path[0] == "result" {
		return i, r.path[1:]
	}
	if r.path[0] != "steps" {
		return -1, nil
	}
	return slices.IndexFunc(steps, func(s sallyport.SagaStep) bool { return s.ID == r.path[1] }), r.path[2:]
}

// Text is the first text of a result, "" if there is none.
func Text(result json.RawMessage) string {
	raw, ok := follow(result, []string{"content", "0", "text"})
	if !ok {
		return ""
	}
	n, err := (source{}).readJSON(raw)
	if err != nil || n.kind != '"' {
		return ""
	}
	return n.text
}
