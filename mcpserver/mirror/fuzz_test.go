package mirror

import (
	"encoding/json"
	"net/http"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/param"
	"sallyport.dev/sallyport/wire"
)

// What the gateway as a client writes into Mcp-Param-* headers, the gateway as a server
// takes; and it takes no other value, none that is missing, and none that was sent twice.
func FuzzParamHeaders(f *testing.F) {
	const schema = `{"properties":{"s":{"type":"string","x-mcp-header":"S"},"o":{"properties":{"n":{"type":"integer","x-mcp-header":"n"}}},"b":{"type":"boolean","x-mcp-header":"B~1"}}}`
	for _, args := range []string{
		`{"s":"é \u0000","o":{"n":42.0},"b":true}`, `{"s":"=?base64?eA==?=","o":{"n":9007199254740993}}`, `{"s":null,"o":[],"b":"true"}`,
		`{"s":" x","o":{"n":1e400}}`, `{"s":"","o":{"n":-0}}`, `{"s":7,"o":{"n":"7"},"b":1}`,
	} {
		f.Add(schema, args, "x")
	}
	f.Add(`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`, `{"a":"1"}`, "1")
	f.Fuzz(func(t *testing.T, schema, args, other string) {
		if wire.Validate([]byte(schema)) != nil || wire.Validate([]byte(args)) != nil || !wire.IsObject(json.RawMessage(schema)) || !wire.IsObject(json.RawMessage(args)) {
			return
		}
		c := New()
		c.Learn("", []sallyport.Tool{{Name: "t", Definition: json.RawMessage(`{"inputSchema":` + schema + `}`)}})
		known, _ := c.Get("", "t")
		written, err := param.Headers(json.RawMessage(schema))
		if err != nil {
			return // such a tool is not listed
		}
		if len(written) != len(known) {
			t.Fatalf("%d headers are written, %d are checked", len(written), len(known))
		}
		for i, p := range known {
			checkOne(t, p, written[i], json.RawMessage(args), other)
		}
	})
}

func checkOne(t *testing.T, p Header, w param.Header, args json.RawMessage, other string) {
	arg := wire.Path(args, p.path...)
	value, ok := w.Value(args)
	text, isText := wire.String(arg)
	check := func(values ...string) error { return p.Check(http.Header{p.header: values}, args) }
	_, safe := safeInteger(string(arg))
	switch {
	case arg == nil || wire.IsNull(arg):
		if ok || check() != nil || check("x") == nil {
			t.Errorf("nothing at %v: %q", p.path, value)
		}
		return
	case p.kind == "string" && isText, p.kind == "boolean" && (string(arg) == "true" || string(arg) == "false"), p.kind == "integer" && safe && len(arg) <= 20:
		if err := check(value); !ok || err != nil {
			t.Errorf("%s as %q: %v", arg, value, err)
		}
	}
	if check() == nil || ok && check(value, value) == nil {
		t.Errorf("%s: missing or twice, and taken", arg)
	}
	if p.kind == "string" && (!isText || text != other) && check(wire.EncodeHeader(other)) == nil {
		t.Errorf("%s: %q is taken", arg, other)
	}
	if p.kind == "boolean" && other != string(arg) && check(other) == nil {
		t.Errorf("%s: %q is taken", arg, other)
	}
}
