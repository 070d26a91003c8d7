package param_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/backend/upstream/param"
)

func TestHeaders(t *testing.T) {
	schema := `{"type":"object","properties":{
		"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"},
		"o":{"type":"object","properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}`
	headers, err := param.Headers([]byte(schema))
	if err != nil || len(headers) != 3 {
		t.Fatalf("Headers = %v, %v", headers, err)
	}
	for args, want := range map[string]string{
		`{"s":"x","i":5,"o":{"b":true}}`:           "x|5|true",
		`{"s":"é","i":-9007199254740991,"o":{}}`:   "=?base64?w6k=?=|-9007199254740991|-",
		`{"s":null,"i":1.0,"o":{"b":null}}`:        "-|1|-",
		`{"s":" x","i":1e3}`:                       "=?base64?IHg=?=|1000|-",
		`{"s":"=?base64?eA==?=","i":1.5}`:          "=?base64?PT9iYXNlNjQ/ZUE9PT89?=|-|-",
		`{"s":"a\r\nX: y","i":1e999999999,"o":[]}`: "=?base64?YQ0KWDogeQ==?=|-|-",
		`{}`: "-|-|-",
	} {
		var got []string
		for _, h := range headers {
			v, ok := h.Value([]byte(args))
			if !ok {
				v = "-"
			}
			got = append(got, v)
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%s: %s, want %s", args, s, want)
		}
	}
}

func TestHeadersThatAreWrong(t *testing.T) {
	for name, schema := range map[string]string{
		"number":            `{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`,
		"no type":           `{"properties":{"a":{"x-mcp-header":"A"}}}`,
		"twice":             `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
		"at root":           `{"type":"string","x-mcp-header":"A"}`,
		"empty":             `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`,
		"space":             `{"properties":{"a":{"type":"string","x-mcp-header":"A B"}}}`,
		"no text":           `{"properties":{"a":{"type":"string","x-mcp-header":5}}}`,
		"deep":              strings.Repeat(`{"properties":{"a":`, 40) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`}}`, 40),
		"in a list":         `{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`,
		"in a choice":       `{"properties":{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"},{"type":"null"}]}}}`,
		"in a condition":    `{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`,
		"of other names":    `{"patternProperties":{"^a":{"type":"string","x-mcp-header":"A"}}}`,
		"of any name":       `{"additionalProperties":{"type":"string","x-mcp-header":"A"}}`,
		"by reference":      `{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string","x-mcp-header":"A"}}}`,
		"below a list":      `{"properties":{"l":{"items":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}}}`,
		"written otherwise": `{"properties":{"a":{"type":"number","x-mcp-\u0068eader":"A"}}}`,
	} {
		if h, err := param.Headers([]byte(schema)); err == nil {
			t.Errorf("%s: accepted as %v", name, h)
		}
	}
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":"number"}}}`,
		`{"properties":{"x-mcp-header":{"type":"number"},"a":{"default":{"x-mcp-header":5},"enum":[{"x-mcp-header":5}]}},"$defs":{"x-mcp-header":{}}}`, // a name, and data
	} {
		if h, err := param.Headers([]byte(schema)); err != nil || h != nil {
			t.Errorf("a schema without any: %v, %v", h, err)
		}
	}
}
