package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

const good = `name: order
version: "2"
steps:
- id: create
  tool: crm__create
  arguments: {name: {$ref: inputs.name}, tags: [a, 1.50, true, null]}
  compensate:
    tool: crm__delete
    arguments: {id: {$ref: steps.create.structuredContent.id, pattern: "[0-9]+"}}
    idempotent: true
    timeout: 10s
    retry: {attempts: 5, backoff: 2s}
- id: pay
  tool: bank__pay
  arguments: {for: {$ref: steps.create.structuredContent.id, type: integer}}
  point_of_no_return: true
  compensate: none
- {id: tell, tool: mail__send, timeout: 1m, retry: {attempts: 3}}
`

func TestParse(t *testing.T) {
	p, err := Parse("order.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "order" || p.Version != "2" || len(p.Steps) != 3 || !p.Steps[1].NoReturn || !p.Steps[1].None || p.Steps[0].Undo.Attempts != 5 {
		t.Errorf("%+v", p)
	}
	if got, want := string(p.Steps[0].Do.Args), `{"name":{"$ref":"inputs.name"},"tags":["a",1.50,true,null]}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	raw, err := JSON("order.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	q, err := Parse("plan", raw)
	if err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	for i := range q.Steps {
		q.Steps[i].Line = p.Steps[i].Line
	}
	if fmt.Sprint(p) == fmt.Sprint(q) || len(q.Steps) == 3 && string(p.Steps[0].Undo.Args) == string(q.Steps[0].Undo.Args) {
		return
	}
	t.Errorf("as JSON it is another plan:\n%+v\n%+v", p, q)
}

func TestRefuses(t *testing.T) {
	step := func(s string) string { return "name: p\nsteps:\n- {id: a, tool: t, " + s + "}\n" }
	for _, tt := range []struct{ plan, want string }{
		{"", "the plan is empty"},
		{"name: p", "no steps"},
		{"steps: [{id: a, tool: t}]", "no name"},
		{"name: p\nsteps: []", "no steps"},
		{"name: p\nsteps: a", "no steps"},
		{"name: p\nbogus: 1\nsteps: [{id: a, tool: t}]", `p.yaml:2: a plan has no key "bogus"`},
		{"name: p\nname: q\nsteps: [{id: a, tool: t}]", `p.yaml:2: the key "name" is there twice`},
		{`{"name":"p","name":"q","steps":[]}`, "not JSON"},
		{`{"name":"p","steps":[{"id":"a","tool":"t"}]} x`, "more than one value"},
		{"name: p\nsteps:\n- {id: a, tool: t}\n- {id: a, tool: t}", `p.yaml:4: the id "a" is there twice`},
		{"name: p\nsteps:\n- {tool: t}", "p.yaml:3: a step needs an id"},
		{"name: p\nsteps:\n- {id: a}", `step "a" names no tool`},
		{"name: p\nsteps:\n- {id: 'a b', tool: t}", "unexpected value"},
		{"name: p\nsteps:\n- {id: a, tool: t, arguments: {x: {$ref: steps.b.content.0}}}\n- {id: b, tool: t}", `p.yaml:3: step "a" refers to step "b"`},
		{step("arguments: {x: {$ref: steps.a.content}}"), "which is not before it"},
		{step("arguments: {x: {$ref: result.content}}"), "is for compensations"},
		{step("arguments: {x: {$ref: secrets.key}}"), "leads nowhere"},
		{step("arguments: {x: {$ref: steps}}"), "leads nowhere"},
		{step("arguments: {x: {$ref: 'inputs.a b'}}"), "not words joined by dots"},
		{step("arguments: {x: {$ref: inputs.a, extra: 1}}"), "no key"},
		{step("arguments: {x: {$ref: inputs.a, type: object}}"), "unexpected type"},
		{step("arguments: {x: {$ref: inputs.a, pattern: '('}}"), "cannot be used"},
		{step("arguments: {x: {$ref: inputs.a, pattern: '[0-9]+)|(?:.*'}}"), "cannot be used"},
		{step("arguments: {x: {$ref: inputs.a, type: integer, pattern: a}}"), "cannot be used"},
		{step("arguments: {$ref: inputs.all}"), "must be a block of keys"},
		{step("arguments: [1]"), "must be a block of keys"},
		{step("arguments: {x: 0x10}"), "not one in JSON"},
		{step("timeout: 30"), "length of time"},
		{step("timeout: 2h"), "at most 1h"},
		{step("retry: {attempts: 99}"), "unexpected value"},
		{step("retry: {attempts: 0}"), "unexpected value"},
		{step("point_of_no_return: yes please"), "expected true or false"},
		{step("compensate: {arguments: {}}"), "compensate needs the tool"},
		{step("compensate: nothing"), "must be a block of keys"},
		{step("arguments: {x: *anchor}"), ""},
		{"name: p\nsteps:\n" + strings.Repeat("- {id: a, tool: t}\n", 51), "51 steps"},
		{strings.Repeat("[", 200), ""},
		{"name: " + strings.Repeat("a", MaxBytes), "more than"},
		{"name: p\n---\nname: q", "2 documents"},
	} {
		_, err := Parse("p.yaml", []byte(tt.plan))
		if err == nil || !strings.Contains(err.Error()+hintOf(err), tt.want) || sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%.80q: %v, want %q", tt.plan, err, tt.want)
		}
	}
}

func hintOf(err error) string {
	if e := (*sallyport.Error)(nil); errors.As(err, &e) {
		return " " + e.Hint
	}
	return ""
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{good, `{"name":"p","steps":[{"id":"a","tool":"t"}]}`, "name: p\nsteps:\n- {id: a, tool: t, compensate: none}", "- : {", "{\"a\":\"\\ud800\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		p, err := Parse("p", text)
		if err != nil {
			return
		}
		raw, err := JSON("p", text)
		if err != nil {
			t.Fatalf("it parses, and has no JSON: %v", err)
		}
		again, err := Parse("p", raw)
		if err != nil || len(again.Steps) != len(p.Steps) || again.Name != p.Name {
			t.Fatalf("%v: %q became %q", err, text, raw)
		}
		for i, s := range p.Steps {
			if string(s.Do.Args) != string(again.Steps[i].Do.Args) || !json.Valid(s.Do.Args) {
				t.Fatalf("%s became %s", s.Do.Args, again.Steps[i].Do.Args)
			}
		}
	})
}

// fits is the fence around what results say.
func TestFits(t *testing.T) {
	for _, tt := range []struct {
		ref, value string
		ok         bool
	}{
		{`{"$ref":"steps.a.x"}`, `"anything"`, true},
		{`{"$ref":"steps.a.x"}`, `{"a":1}`, false},
		{`{"$ref":"steps.a.x"}`, `null`, false},
		{`{"$ref":"steps.a.x","type":"integer"}`, `12`, true},
		{`{"$ref":"steps.a.x","type":"integer"}`, `1.5`, false},
		{`{"$ref":"steps.a.x","type":"integer"}`, `1e3`, false},
		{`{"$ref":"steps.a.x","type":"integer"}`, `"12"`, false},
		{`{"$ref":"steps.a.x","type":"boolean"}`, `true`, true},
		{`{"$ref":"steps.a.x","pattern":"[a-z]+"}`, `"abc"`, true},
		{`{"$ref":"steps.a.x","pattern":"[a-z]+"}`, `"abc\nrm"`, false},
		{`{"$ref":"steps.a.x","pattern":"a|b"}`, `"b"`, true},
		{`{"$ref":"steps.a.x","pattern":"a|b"}`, `"bx"`, false},
		{`{"$ref":"steps.a.x","pattern":"^[a-z]+$"}`, `"abc"`, true},
		{`{"$ref":"steps.a.x","pattern":"[^/]*","max_length":3}`, `"abcd"`, false},
	} {
		n, err1 := (source{}).readJSON([]byte(tt.ref))
		r, err2 := (source{}).ref(n)
		v, err3 := (source{}).readJSON([]byte(tt.value))
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		if err := r.fits(v); (err == nil) != tt.ok {
			t.Errorf("%s takes %s: %v", tt.ref, tt.value, err)
		}
	}
}
