package catalog

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestFO27_NumbersAreJudgedExactly(t *testing.T) {
	c, err := compile([]byte(`{"type":"object","properties":{"n":{"maximum":9007199254740992},"i":{"type":"integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for args, ok := range map[string]bool{
		`{"n":9007199254740992}`:     true,
		`{"n":9007199254740993}`:     false, // equal to the maximum as a float
		`{"i":1.0}`:                  true,
		`{"i":0.1}`:                  false,
		`{"i":1e400}`:                true,
		`{"i":-0}`:                   true,
		`{"i":18446744073709551615}`: true,
		`{"i":1e999999999}`:          false,
		`{"i":1e-999999999}`:         false,
		`{"s":"1e999999999"}`:        true,
		`{"s":"\"1e999999999"}`:      true,
	} {
		if err := c.validate([]byte(args)); (err == nil) != ok {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestFO28_OddSchemasAreTaken(t *testing.T) {
	odd := []struct{ schema, good, bad string }{
		{`{"type":"object","properties":{"a":true,"b":false,"c":{}}}`, `{"a":1,"c":[]}`, `{"b":1}`},
		{`{}`, `{"a":1}`, ``},
		{`{"type":"object","properties":{"a":{"type":["string","null"]}}}`, `{"a":null}`, `{"a":1}`},
		{`{"type":"object","properties":{"a":{"type":"string","nullable":true}}}`, `{"a":"x"}`, `{"a":1}`},
		{`{"type":"object","additionalProperties":{"type":"integer"}}`, `{"a":1}`, `{"a":"x"}`},
		{`{"type":"object","additionalProperties":false}`, `{}`, `{"a":1}`},
		{`{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{"b":1}`, `{"c":1}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"items":[{"type":"string"}]}}}`, `{"a":["x",1]}`, `{"a":[1]}`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`, `{"a":2}`, `{"a":1}`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object","required":["a"]}`, `{"a":1}`, `{}`},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"prefixItems":[{"type":"string"}]}}}`, `{"a":["x"]}`, `{"a":[1]}`},
		{`{"$schema":"https://example.com/mine","type":"object","required":["a"]}`, `{}`, ``},
		{`{"type":"object","properties":{"a":{"items":[{"type":"string"}]}}}`, `{"a":["x",1]}`, `{"a":[1]}`},
		{`{"type":"object","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`, `{"a":2}`, `{"a":1}`},
		{`{"type":"object","properties":null,"required":null}`, `{"a":1}`, `[]`},
		{`{"type":["object","null"],"properties":{"a":{"type":"string","enum":null}}}`, `{"a":"x"}`, `{"a":1}`},
		{`{"$schema":null,"type":"object","required":["a"]}`, `{"a":1}`, `{}`},
		{`{"type":"object","properties":{"a":{"pattern":"^(?!x)"}}}`, `{"a":"x"}`, `{"a":1,"a2":2}`[:0]},
		{`{"type":"object","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"}},"additionalProperties":false}},"properties":{"t":{"$ref":"#/$defs/t"}}}`,
			`{"t":{"l":{"l":{"r":{}}}}}`, `{"t":{"l":{"x":1}}}`},
	}
	for _, tt := range odd {
		c, err := compile([]byte(tt.schema))
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
			continue
		}
		if err := c.validate([]byte(tt.good)); err != nil {
			t.Errorf("%s refuses %s: %v", tt.schema, tt.good, err)
		}
		if tt.bad != "" && c.validate([]byte(tt.bad)) == nil {
			t.Errorf("%s accepts %s", tt.schema, tt.bad)
		}
		if tt.bad == "" && tt.schema != `{}` && len(c.warnings) == 0 {
			t.Errorf("%s is not fully validated, and nobody is told", tt.schema)
		}
	}
}

func TestTO06_NothingIsFetched(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	hits := make(chan struct{}, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			hits <- struct{}{}
			_ = conn.Close()
		}
	}()
	for _, ref := range []string{"http://" + l.Addr().String() + "/s.json", "https://" + l.Addr().String() + "/s.json", "file:///etc/hostname", "s.json"} {
		for _, schema := range []string{`{"type":"object","$ref":%q}`, `{"type":"object","properties":{"a":{"allOf":[{"$ref":%q}]}}}`, `{"$id":"http://x.example/","type":"object","$dynamicRef":%q}`} {
			if _, err := compile(fmt.Appendf(nil, schema, ref)); err == nil {
				t.Errorf("%s with %s was accepted", schema, ref)
			} else if !strings.Contains(err.Error(), "refused") {
				t.Errorf("unclear error: %v", err)
			}
		}
	}
	select {
	case <-hits:
		t.Error("a schema made the catalogue connect")
	case <-time.After(50 * time.Millisecond):
	}
	// Positive control: the listener would have noticed.
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = conn.Close()
	}
	select {
	case <-hits:
	case <-time.After(time.Minute):
		t.Error("the listener notices nothing")
	}
}

func TestTO06_CostlySchemas(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString(`{"type":"object","$defs":{`)
	for i := range 20 {
		fmt.Fprintf(&bomb, `"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	bomb.WriteString(`"d20":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/d0"}}}`)
	refused := map[string]string{
		"deep":      strings.Repeat(`{"not":`, 2000) + `{}` + strings.Repeat(`}`, 2000),
		"expansion": bomb.String(),
		"loop":      `{"allOf":[{"$ref":"#"}]}`,
		"loop of 2": `{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`,
		"huge":      `{"enum":["` + strings.Repeat("x", maxSchemaBytes) + `"]}`,
	}
	for name, schema := range refused {
		start := time.Now()
		if _, err := compile([]byte(schema)); err == nil || !strings.Contains(err.Error(), "schema_too_complex") {
			t.Errorf("%s: %.100v", name, err)
		}
		if took := time.Since(start); took > time.Minute { // if it were tried, it would never end
			t.Errorf("%s: took %v to refuse", name, took)
		}
	}
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, `"p%d":{"type":"string"},`, i)
	}
	branching := `{"$defs":{"e":{"anyOf":[{"type":"integer"},{"properties":{"x":{"$ref":"#/$defs/e"}}},{"properties":{"x":{"$ref":"#/$defs/e"},"y":{}}}]}},"type":"object","properties":{"x":{"$ref":"#/$defs/e"}}}`
	taken := []struct{ name, schema, args string }{
		{"10,000 properties", `{"type":"object","properties":{` + many.String() + `"z":{}}}`, `{"z":1}`},
		{"nested quantifiers", `{"type":"object","properties":{"a":{"pattern":"^(a+)+$"}}}`, `{"a":"` + strings.Repeat("a", 50_000) + `"}`},
		{"recursion", branching, `{"x":{"x":{"x":1}}}`},
	}
	for _, tt := range taken {
		c, err := compile([]byte(tt.schema))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		start := time.Now()
		if err := c.validate([]byte(tt.args)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: validation took %v", tt.name, took)
		}
	}
	c, err := compile([]byte(branching))
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat(`{"x":`, 60) + `1` + strings.Repeat(`}`, 60)
	start := time.Now()
	if err := c.validate([]byte(deep)); err == nil || !strings.Contains(err.Error(), "schema_too_complex") || time.Since(start) > time.Minute {
		t.Errorf("deep arguments for a schema that contains itself: %v after %v", err, time.Since(start))
	}
}

// TO-06: what one value costs is little, and there are many: counted before it is done.
func TestTO06_ManyArgumentsForWideSchemas(t *testing.T) {
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+format, i)
		}
		return strings.TrimPrefix(b.String(), ",")
	}
	for name, tt := range map[string]struct {
		schema, args string
		ok           bool
	}{
		"a choice for each of many":         {`{"properties":{"a":{"contains":{"anyOf":[` + list(2000, `{"const":%d}`) + `]}}}}`, `{"a":[` + list(3000, "1%d") + `]}`, false},
		"a choice for few":                  {`{"properties":{"a":{"items":{"anyOf":[` + list(2000, `{"const":%d}`) + `]}}}}`, `{"a":[7,8,9]}`, true},
		"a wide choice beside many":         {`{"properties":{"zone":{"oneOf":[` + list(400, `{"const":"z%d"}`) + `]},"rows":{"items":{"type":["integer","null"]}}}}`, `{"zone":"z7","rows":[` + list(50_000, "%d") + `]}`, true},
		"names against many patterns":       {`{"patternProperties":{` + list(3000, `"^x%d":{}`) + `}}`, `{` + list(300, `"x%d":1`) + `}`, false},
		"members that are kept in mind":     {`{"unevaluatedProperties":false,"anyOf":[` + list(2000, `{"properties":{"p%d":{}}}`) + `]}`, `{` + list(2000, `"p%d":1`) + `}`, false},
		"one of very many values, each":     {`{"properties":{"a":{"items":{"enum":[` + list(20_000, `"v%d"`) + `]}}}}`, `{"a":[` + list(5000, `"w%d"`) + `]}`, false},
		"one of very many values":           {`{"properties":{"a":{"enum":[` + list(20_000, `"v%d"`) + `]}}}`, `{"a":"v7"}`, true},
		"many, of a narrow schema":          {`{"properties":{"a":{"items":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}}`, `{"a":[` + list(100_000, "%d") + `]}`, true},
		"a tree, which contains itself":     {`{"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"}}}},"$ref":"#/$defs/t"}`, strings.Repeat(`{"l":`, 100) + `{}` + strings.Repeat(`}`, 100), true},
		"one that asks twice at each level": {`{"$defs":{"t":{"allOf":[{"properties":{"l":{"$ref":"#/$defs/t"}}},{"properties":{"l":{"$ref":"#/$defs/t"}}}]}},"$ref":"#/$defs/t"}`, strings.Repeat(`{"l":`, 100) + `{}` + strings.Repeat(`}`, 100), false},
	} {
		c, err := compile([]byte(tt.schema))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		err = c.validate([]byte(tt.args))
		if tt.ok && err != nil || !tt.ok && (err == nil || !strings.Contains(err.Error(), "schema_too_complex")) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	c := open(t, Options{})
	set(t, c, "s", json.RawMessage(`{"name":"a","inputSchema":{"type":"object","properties":{"list":{"items":{"type":"object","properties":{"n":{"type":"integer"}}}}},"required":["list"]}}`))
	tool, _ := c.Resolve("", "s__a")
	for args, want := range map[string]string{
		`{"list":[{"n":1},{"n":"x"}]}`: "/list/1/n: ",
		`{}`:                           "/: missing property 'list'",
	} {
		if err := c.Validate(tool, json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", args, err, want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`), []byte(`{"a":{}}`))
	f.Add([]byte(`{"$dynamicRef":"#x","$defs":{"a":{"$dynamicAnchor":"x"}}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, schema, args []byte) {
		if _, reason := originName(append(append([]byte(`{"name":"x","inputSchema":`), schema...), '}')); reason != "" || schema[0] != '{' {
			return
		}
		c, err := compile(schema)
		if err != nil || !json.Valid(args) {
			return
		}
		_ = c.validate(args)
	})
}
