package wire_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/wire"
)

// What is nested too deep goes, whatever stands around it; what is left is one message.
func TestParseAnswer(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n) + strings.Repeat("]}", n) }
	const gone = `"left out: nested too deep, or not strict JSON"`
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"},{"name":"b","name":"c"},{"x":"` + "\xff" + `"},{"name":"d"}],"n":1.0}}`: `{"tools":[{"name":"a"},` + gone + `,` + gone + `,{"name":"d"}],"n":1.0}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":"x\ud83d","b":"\uDE00y","c":"\ud83d\ude00","d":"\\\\ud83d","e":"\ud83d\ud83d\ude00"}}`:    `{"a":"x\ufffd","b":"\ufffdy","c":"\ud83d\ude00","d":"\\\\ud83d","e":"\ufffd\ud83d\ude00"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":[{"x":1,"x":2},1],"b":[2,{"y":1,"y":2}]}}`:                                                `{"a":[` + gone + `,1],"b":[2,` + gone + `]}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}`:                                                                                    `{"a":1.0}`,
		`{"jsonrpc":"2.0","id":1,"result":["[{",` + deep(20_000) + `,"]}\\\"[",7]}`:                                                      `["[{",` + strings.Repeat(`{"a":[`, 71) + `"left out: nested too deep, or not strict JSON"` + strings.Repeat("]}", 71) + `,"]}\\\"[",7]`,
	} {
		m, err := wire.ParseAnswer([]byte(in))
		if err != nil || string(m.Result) != want || (m.Pruned != nil) != strings.Contains(want, "left out") {
			t.Errorf("%.100s: %v, pruned %v: %.300s", in, err, m.Pruned, m.Result)
		}
	}
	for _, in := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":` + deep(300) + `}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":` + deep(300) + `}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"x":` + deep(300) + `,"y":1,"y":2}}`, strings.Repeat("[", 300), `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 300),
	} {
		if m, err := wire.ParseAnswer([]byte(in)); err == nil {
			t.Errorf("%.100s: taken as %.100s", in, m.Result)
		}
	}
}

// What is read of an answer is strict JSON, whatever came; what was strict is as it was.
func FuzzParseAnswer(f *testing.F) {
	f.Add(strings.Repeat("[", 200) + strings.Repeat("]", 200))
	f.Add(`{"a":"[\\"{\ud83d","b":[{"x":1,"x":2},{}]}`)
	f.Fuzz(func(t *testing.T, in string) {
		raw := `{"jsonrpc":"2.0","id":1,"result":` + in + `}`
		m, err := wire.ParseAnswer([]byte(raw))
		if err == nil && m.Result != nil && wire.Validate(m.Result) != nil {
			t.Errorf("%q becomes %q", in, m.Result)
		}
		if strict, wrong := wire.ParseMessage([]byte(raw)); wrong == nil && (err != nil || string(strict.Result) != string(m.Result) || m.Pruned != nil) {
			t.Errorf("%q becomes %q, %v", in, m.Result, err)
		}
	})
}
