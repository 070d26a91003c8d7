package risk_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func payTool(reversible bool) sallyport.Tool {
	return fieldTool(
		sallyport.RiskField{Path: "/amount", Kind: "amount", Reversible: reversible},
		sallyport.RiskField{Path: "/payments/*/amount", Kind: "amount", Reversible: reversible},
		sallyport.RiskField{Path: "/currency", Kind: "currency"},
		sallyport.RiskField{Path: "/to", Kind: "recipient"},
	)
}

var mailTool = fieldTool(
	sallyport.RiskField{Path: "/to", Kind: "recipient"},
	sallyport.RiskField{Path: "/cc", Kind: "recipient"},
	sallyport.RiskField{Path: "/bcc", Kind: "recipient"},
	sallyport.RiskField{Path: "/subject", Kind: "subject"},
	sallyport.RiskField{Path: "/body", Kind: "body"},
	sallyport.RiskField{Path: "/files", Kind: "attachment"},
)

// disguise gives a document other names, another order, other nesting, and
// wraps it in strings of JSON.
var disguise = map[string]func(t *testing.T, doc any) any{
	"renamed": func(_ *testing.T, doc any) any {
		return rename(doc, func(i int) string { return fmt.Sprintf("k%02d", i) })
	},
	"renamed the other way round": func(_ *testing.T, doc any) any {
		return rename(doc, func(i int) string { return fmt.Sprintf("z%02d", 99-i) })
	},
	"nested":      func(_ *testing.T, doc any) any { return map[string]any{"a": map[string]any{"b": doc}} },
	"in a list":   func(_ *testing.T, doc any) any { return map[string]any{"list": []any{doc}} },
	"in a string": func(t *testing.T, doc any) any { return map[string]any{"p": string(mustJSON(t, doc))} },
	"in a string, twice": func(t *testing.T, doc any) any {
		return map[string]any{"p": string(mustJSON(t, string(mustJSON(t, doc))))}
	},
	"texts in strings": func(t *testing.T, doc any) any { return quoteTexts(t, doc) },
}

func rename(v any, name func(int) string) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = rename(e, name)
		}
		return out
	case map[string]any:
		out, i := map[string]any{}, 0
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[name(i)] = rename(v[k], name)
			i++
		}
		return out
	}
	return v
}

func quoteTexts(t *testing.T, v any) any {
	switch v := v.(type) {
	case string:
		return string(mustJSON(t, v))
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = quoteTexts(t, e)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = quoteTexts(t, e)
		}
		return out
	}
	return v
}

// TO-27: recipients in a list are told apart, so that each can be counted, however the
// number of each is written; more than can be told is critical.
func TestTO27_RecipientsInAList(t *testing.T) {
	e := engine(t)
	pay := func(to any) sallyport.Risk {
		b, err := json.Marshal(map[string]any{"amount": 999, "currency": "EUR", "to": to})
		if err != nil {
			t.Fatal(err)
		}
		return e.Args(payTool(true), b)
	}
	for want, to := range map[string]any{"DE89370400440532013000": "de89 3704 0044 0532 0130 00", "x1, DE89370400440532013000": []string{"x1", "DE89 3704 0044 0532 0130 00"}} {
		if r := pay(to); r.Level != sallyport.High || len(r.Amounts) != 1 || r.Amounts[0].Recipient != want {
			t.Errorf("%v: %+v, want %q", to, r, want)
		}
	}
	if r := pay([]string{strings.Repeat("a", 150), strings.Repeat("b", 150), "c"}); r.Level != sallyport.Critical {
		t.Errorf("names that are cut before they are counted: %v", r)
	}
}

// The verdict is that of the effect: whatever the tool and its arguments are
// called, in whatever order and nesting they stand, and wrapped in JSON.
func TestNeitherNamesNorShapeMatter(t *testing.T) {
	e := engine(t)
	names := []string{"read_only_query", "delete_everything", "x"}
	for i, c := range corpus(t, "undeclared") {
		d := json.NewDecoder(strings.NewReader(c.text))
		d.UseNumber()
		var doc any
		if err := d.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		for how, f := range disguise {
			tool := undeclared
			tool.Name, tool.Origin.Name = names[i%3], names[(i+1)%3]
			r := e.Args(tool, mustJSON(t, f(t, doc)))
			if got := verdict(r); got != c.verdict {
				t.Errorf("undeclared.txt:%d, %s: %s is %s, want %s: %q", c.line, how, mustJSON(t, f(t, doc)), got, c.verdict, r.Reasons)
			}
		}
	}
}

// Declared arguments are found by their pointer, whatever they are called.
func TestNamesOfDeclaredArgumentsDoNotMatter(t *testing.T) {
	e := engine(t)
	for _, c := range corpus(t, "messages") {
		var doc map[string]any
		if err := json.Unmarshal([]byte(c.text), &doc); err != nil {
			t.Fatal(err)
		}
		tool := mailTool
		tool.Manifest.Fields = slices.Clone(mailTool.Manifest.Fields)
		moved := map[string]any{}
		for i, f := range tool.Manifest.Fields {
			if v, ok := doc[f.Path[1:]]; ok {
				moved[fmt.Sprintf("q%d", i)] = v
			}
			tool.Manifest.Fields[i].Path = fmt.Sprintf("/in/q%d", i)
		}
		if got := verdict(e.Args(tool, mustJSON(t, map[string]any{"in": moved}))); got != c.verdict {
			t.Errorf("messages.txt:%d, moved: %s, want %s", c.line, got, c.verdict)
		}
	}
}

// What a server's schema says about an argument raises a verdict, never lowers
// it, and a default counts where the argument is absent.
func TestSchemaRaises(t *testing.T) {
	e := engine(t)
	for _, tt := range []struct{ name, schema, args, want string }{
		{"an enum of methods", `{"properties":{"a":{"enum":["GET","DELETE"]}}}`, `{"a":"DELETE"}`, "irreversible"},
		{"the harmless one of them", `{"properties":{"a":{"enum":["GET","DELETE"]}}}`, `{"a":"GET"}`, "high"},
		{"an enum of verbs", `{"properties":{"a":{"enum":["list","delete"]}}}`, `{"a":"delete"}`, "critical"},
		{"an enum of colours", `{"properties":{"a":{"enum":["red","blue"]}}}`, `{"a":"red"}`, "high"},
		{"a default method", `{"properties":{"m":{"type":"string","default":"DELETE"},"u":{"format":"uri"}}}`, `{"u":"https://a.example/x"}`, "irreversible"},
		{"the default is not taken", `{"properties":{"m":{"default":"DELETE"},"u":{"format":"uri"}}}`, `{"m":"GET","u":"https://a.example/x"}`, "high"},
		{"a default statement", `{"properties":{"q":{"default":"DROP TABLE orders"}}}`, `{}`, "irreversible"},
		{"an address by format", `{"properties":{"a":{"format":"uri"}}}`, `{"a":"file:///etc/passwd"}`, "critical"},
		{"data by format", `{"properties":{"a":{"format":"uri"}}}`, `{"a":"data:text/plain;base64,aGVsbG8="}`, "high"},
		{"by reference", `{"$defs":{"u":{"format":"uri"}},"properties":{"a":{"$ref":"#/$defs/u"}}}`, `{"a":"gopher://x/1"}`, "critical"},
		{"in a list", `{"properties":{"a":{"items":{"format":"uri"}}}}`, `{"a":["https://a.example","file:///etc/passwd"]}`, "critical"},
		{"in a branch", `{"oneOf":[{"properties":{"a":{"format":"uri"}}}]}`, `{"a":"file:///x"}`, "critical"},
		{"SQL by media type", `{"properties":{"a":{"contentMediaType":"application/sql"}}}`, `{"a":"TRUNCATE orders"}`, "irreversible"},
		{"a script by media type", `{"properties":{"a":{"contentMediaType":"application/x-sh"}}}`, `{"a":"frobnicate --all"}`, "critical"},
		{"a schema in a circle", `{"$ref":"#"}`, `{"a":"x"}`, "high"},
		{"no schema at all", `[]`, `{"a":"x"}`, "high"},
	} {
		tool := undeclared
		tool.InputSchema = json.RawMessage(tt.schema)
		r := e.Args(tool, []byte(tt.args))
		if got := verdict(r); got != tt.want {
			t.Errorf("%s: %s is %s, want %s: %q", tt.name, tt.args, got, tt.want, r.Reasons)
		}
		without := e.Args(undeclared, []byte(tt.args))
		if without.Level > r.Level || without.Irreversible && !r.Irreversible {
			t.Errorf("%s: the schema lowers %s to %s", tt.name, without.Level, r.Level)
		}
	}
}
