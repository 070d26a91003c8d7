package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sallyport.dev/sallyport/wire"
)

func TestParseMessage(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for _, tt := range []struct {
		in   string
		want string // re-encoded; "" if refused
		code int
	}{
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, want: `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{in: ` {"method":"ping" , "id" : "a\u0062", "jsonrpc":"2.0","params":null,"x":1} `, want: `{"jsonrpc":"2.0","id":"a\u0062","method":"ping"}`},
		{in: `{"jsonrpc":"2.0","method":"tools\/c\u0061ll","params":{ "b":1e400,"a":[-0, 1.0] }}`, want: `{"jsonrpc":"2.0","method":"tools/call","params":{ "b":1e400,"a":[-0, 1.0] }}`},
		{in: `{"jsonrpc":"2.0","id":9007199254740993,"result":{"n":18446744073709551615}}`, want: `{"jsonrpc":"2.0","id":9007199254740993,"result":{"n":18446744073709551615}}`},
		{in: `{"jsonrpc":"2.0","id":"","error":{"code":-32601,"message":"no","data":[1.50]}}`, want: `{"jsonrpc":"2.0","id":"","error":{"code":-32601,"message":"no","data":[1.50]}}`},
		{in: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`, want: `{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}`},

		{in: `{"jsonrpc":"2.0","id":null,"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":true,"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"method":""}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"method":7}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"1.0","id":1,"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"id":1,"method":"ping"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"error":"x"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, code: wire.CodeInvalidRequest},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, code: wire.CodeInvalidParams},
		{in: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, code: wire.CodeInvalidRequest},
		{in: `"ping"`, code: wire.CodeInvalidRequest},
		{in: ``, code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0"`, code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}`, code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":{"b":1,"\u0062":2}}}`, code: wire.CodeParse},
		{in: "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, code: wire.CodeParse},
		{in: "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}`, code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping"} // x`, code: wire.CodeParse},
		{in: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + deep + `}}`, code: wire.CodeParse},
		{in: "{\x00\"\x00j\x00", code: wire.CodeParse},
	} {
		m, err := wire.ParseMessage([]byte(tt.in))
		if tt.want == "" {
			e, ok := errors.AsType[*wire.Error](err)
			if !ok || e.Code != tt.code {
				t.Errorf("ParseMessage(%.80q) = %v, want code %d", tt.in, err, tt.code)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseMessage(%.80q): %v", tt.in, err)
		} else if got := string(m.Append(nil)); got != tt.want {
			t.Errorf("ParseMessage(%.80q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestParseMessageKeepsTheIDOfABadRequest(t *testing.T) {
	m, err := wire.ParseMessage([]byte(`{"jsonrpc":"2.0","id":"x","method":7}`))
	if err == nil || string(m.ID) != `"x"` {
		t.Errorf("id %s, error %v", m.ID, err)
	}
}

func TestIDKey(t *testing.T) {
	same := func(a, b string) bool {
		return wire.IDKey(json.RawMessage(a)) == wire.IDKey(json.RawMessage(b))
	}
	if same(`1`, `"1"`) || same(`"1"`, `"001"`) || !same(`"a"`, `"\u0061"`) {
		t.Error("1 and \"1\" must differ, \"a\" and its escape must not")
	}
}

func TestAppendLine(t *testing.T) {
	m := wire.Message{ID: json.RawMessage("1"), Method: "m", Params: json.RawMessage("{\n\t\"a\":\r\n\"\\n\"}")}
	got := string(m.AppendLine(nil))
	if want := "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{ \t\"a\":  \"\\n\"}}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whatever parses is strict JSON, encodes to one message, and parses again to
// the same parts.
func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":1e400}}}`,
		`{"jsonrpc":"2.0","id":"a","result":{"a":[1,2,{"b":null}]}}`,
		`{"jsonrpc":"2.0","error":{"code":-1,"message":"\ud83d\ude00"}}`,
		`[{}]`, `{"a":1,"a":2}`, "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := wire.ParseMessage(in)
		if err != nil {
			return
		}
		if !json.Valid(in) {
			t.Fatalf("accepted %q", in)
		}
		line := m.AppendLine(nil)
		if strings.Count(string(line), "\n") != 1 {
			t.Fatalf("not one line: %q", line)
		}
		again, err := wire.ParseMessage(m.Append(nil))
		if err != nil || string(again.Append(nil)) != string(m.Append(nil)) {
			t.Fatalf("%q → %q, %v", in, again.Append(nil), err)
		}
	})
}
