package mirror

import "testing"

func TestParamHeaders(t *testing.T) {
	for schema, want := range map[string]int{
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"properties":{"c":{"type":"integer","x-mcp-header":"c"}}}}}`: 2,
		`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`:                                                                0,
		`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`:                                                                 0,
		`{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`:                                                              0,
		`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`:                                                                  0,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`:                       0,
		`{"properties":{"a":true,"b":false,"c":null}}`:                                                                             0,
		`{"items":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`:                                                      0,
		`true`: 0,
		``:     0,
	} {
		if got := headersOf([]byte(schema)); len(got) != want {
			t.Errorf("headersOf(%s) = %v, want %d", schema, got, want)
		}
	}
}

func TestSameInteger(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"42", "42", true}, {"42.0", "42", true}, {"4.2e1", "42", true}, {"-7", "-7", true}, {"42", "43", false},
		{"42.5", "42.5", false}, {"", "0", false}, {"0x2a", "42", false}, {"NaN", "NaN", false}, {"Inf", "Inf", false},
		{"9007199254740991", "9007199254740991", true}, {"9007199254740993", "9007199254740993", false}, {"1e400", "1e400", false},
		{"+42", "42", false}, {"042", "42", false}, {"42.", "42", false}, {"4_2", "42", false}, {" 42", "42", false}, {"42 ", "42", false}, {".42e2", "42", false}, {"-0", "0", true},
	} {
		if got := sameInteger(tt.a, tt.b); got != tt.same {
			t.Errorf("sameInteger(%s, %s) = %v", tt.a, tt.b, got)
		}
	}
}
