package lint_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/catalog/lint"
)

const good = "Looks an order up and returns its lines."

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		description, schema string
		want                []string // paths
	}{
		"good": {good, `{"type":"object","required":["id"],"additionalProperties":false,"properties":{
			"id":{"type":"string","maxLength":20,"description":"number of the order"},
			"n":{"type":"integer","minimum":1,"maximum":9,"description":"lines"},
			"state":{"enum":["open","closed"],"description":"only these"},
			"tags":{"type":"array","maxItems":3,"items":{"type":"string","maxLength":9},"description":"labels"},
			"at":{"$ref":"#/$defs/at"},
			"where":{"type":"object","additionalProperties":false,"description":"place","properties":{"city":{"type":"string","maxLength":80,"description":"name"}}}
			},"$defs":{"at":{"type":"string","maxLength":25,"description":"time"}}}`, nil},
		"no arguments":         {good, `{"type":"object","additionalProperties":false}`, nil},
		"no description":       {"", `{"type":"object","additionalProperties":false}`, []string{"description"}},
		"short description":    {"Runs it.", `{"type":"object","additionalProperties":false}`, []string{"description"}},
		"not an object":        {good, `{"type":"string","additionalProperties":false}`, []string{""}},
		"open":                 {good, `{"type":"object"}`, []string{""}},
		"no schema":            {good, ``, []string{"input_schema"}},
		"required not said":    {good, `{"type":"object","additionalProperties":false,"properties":{"a":{"type":"boolean","description":"x"}}}`, []string{"/required"}},
		"required is unknown":  {good, `{"type":"object","additionalProperties":false,"required":["b"],"properties":{"a":{"type":"boolean","description":"x"}}}`, []string{"/required"}},
		"property bare":        {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a/b":{}}}`, []string{"/properties/a~1b", "/properties/a~1b"}},
		"property true":        {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":true}}`, []string{"/properties/a"}},
		"string unbounded":     {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":{"type":["string","null"],"description":"x"}}}`, []string{"/properties/a"}},
		"number half bounded":  {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":{"type":"number","minimum":0,"description":"x"}}}`, []string{"/properties/a"}},
		"array unbounded":      {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":{"type":"array","description":"x"}}}`, []string{"/properties/a", "/properties/a"}},
		"items":                {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":{"type":"array","maxItems":2,"items":{"type":"string"},"description":"x"}}}`, []string{"/properties/a/items"}},
		"inner object open":    {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":{"type":"object","description":"x"}}}`, []string{"/properties/a"}},
		"branch unbounded":     {good, `{"type":"object","additionalProperties":false,"required":[],"properties":{"a":{"description":"x","anyOf":[{"type":"string"},{"type":"null"}]}}}`, []string{"/properties/a/anyOf/0"}},
		"definition unbounded": {good, `{"type":"object","additionalProperties":false,"$defs":{"x":{"type":"string"}}}`, []string{"/$defs/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range lint.Check(sallyport.Tool{
				Name: "x", Description: c.description, InputSchema: json.RawMessage(c.schema), Code: &sallyport.Script{Language: "python", Source: "1"},
			}) {
				if got = append(got, p.Path); p.What == "" || p.Hint == "" {
					t.Errorf("%+v does not say what, or what to do", p)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestFieldsPointAtProperties(t *testing.T) {
	tool := sallyport.Tool{Description: good, InputSchema: json.RawMessage(
		`{"type":"object","additionalProperties":false,"required":["sql"],"properties":{"sql":{"type":"string","maxLength":9,"description":"x"}}}`)}
	tool.Manifest.Fields = []sallyport.RiskField{{Path: "/sql", Kind: "sql"}}
	if p := lint.Check(tool); len(p) > 0 {
		t.Errorf("%+v", p)
	}
	tool.Manifest.Fields[0].Path = "/query"
	if p := lint.Check(tool); len(p) != 2 || p[0].Path != "fields" || p[1].Path != "fields" { // and /sql is declared no longer
		t.Errorf("%+v", p)
	}
}

// What stands beside the declared arguments makes calls high: lint says so first.
func TestArgumentsBesideFields(t *testing.T) {
	tool := sallyport.Tool{Description: good, InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["sql"],"properties":{
		"sql":{"type":"string","maxLength":9,"description":"x"},"then":{"type":"string","maxLength":9,"description":"x"},
		"env":{"type":"object","additionalProperties":false,"description":"x"},"limit":{"type":"integer","minimum":1,"maximum":9,"description":"x"},
		"format":{"enum":["csv","json"],"description":"x"},"note":{"type":"string","maxLength":9,"description":"x"}}}`)}
	if p := lint.Check(tool); len(p) > 0 {
		t.Errorf("nothing is declared: %+v", p)
	}
	tool.Manifest.Fields = []sallyport.RiskField{{Path: "/sql", Kind: "sql"}, {Path: "/note", Kind: "inert"}}
	if p := lint.Check(tool); len(p) != 2 || !strings.HasPrefix(p[0].What, "/env ") || !strings.HasPrefix(p[1].What, "/then ") {
		t.Errorf("%+v, want /env and /then", p)
	}
	tool.Manifest.Fields = append(tool.Manifest.Fields, sallyport.RiskField{Path: "/then", Kind: "shell"}, sallyport.RiskField{Path: "/env/PATH", Kind: "inert"})
	if p := lint.Check(tool); slices.ContainsFunc(p, func(p lint.Problem) bool { return strings.Contains(p.What, "among them") }) {
		t.Errorf("all are declared: %+v", p)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{}`, `{"type":"object","properties":{"a":{"anyOf":[{"items":{}}]}}}`, `[1]`, `{"properties":{"":{"type":["array",1]}}}`} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, schema string) {
		lint.Check(sallyport.Tool{InputSchema: json.RawMessage(schema)}) // must not panic
	})
}
