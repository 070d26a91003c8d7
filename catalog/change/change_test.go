package change

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func pinned(tool string) json.RawMessage {
	return json.RawMessage(`{"instructions":"","tool":` + tool + `}`)
}

func withInput(schema string) json.RawMessage {
	return pinned(`{"name":"a","inputSchema":` + schema + `}`)
}

func withOutput(schema string) json.RawMessage {
	return pinned(`{"name":"a","inputSchema":{},"outputSchema":` + schema + `}`)
}

func TestInputChanges(t *testing.T) {
	const c, b, w = Compatible, Breaking, Wording
	for _, tt := range []struct {
		before, after string
		want          Kind
	}{
		{`{"type":"object"}`, `{"type":"object","description":"x"}`, w},
		{`{"properties":{"description":{"type":"string"}}}`, `{"properties":{"description":{"type":"integer"}}}`, b},
		{`{"properties":{"title":{}}}`, `{"properties":{}}`, b},
		{`{"type":"object"}`, `{"type":"object","properties":{"q":{"type":"string"}}}`, c},
		{`{"type":"object","additionalProperties":false}`, `{"type":"object","properties":{"q":{}},"additionalProperties":false}`, c},
		{`{"type":"object"}`, `{"type":"object","properties":{"q":{}},"required":["q"]}`, b},
		{`{"properties":{"q":{}},"required":["q"]}`, `{"properties":{"q":{}}}`, c},
		{`{"properties":{"q":{}}}`, `{"properties":{}}`, b},
		{`{"type":"object"}`, `{"type":"object","additionalProperties":false}`, b},
		{`{"additionalProperties":false}`, `{}`, c},
		{`{"properties":{"q":{"type":"integer"}}}`, `{"properties":{"q":{"type":"number"}}}`, c},
		{`{"properties":{"q":{"type":"number"}}}`, `{"properties":{"q":{"type":"integer"}}}`, b},
		{`{"properties":{"q":{"type":"string"}}}`, `{"properties":{"q":{"type":["string","null"]}}}`, c},
		{`{"properties":{"q":{}}}`, `{"properties":{"q":{"type":"string"}}}`, b},
		{`{"properties":{"q":{"enum":["a"]}}}`, `{"properties":{"q":{"enum":["a","b"]}}}`, c},
		{`{"properties":{"q":{"enum":["a","b"]}}}`, `{"properties":{"q":{"enum":["a"]}}}`, b},
		{`{"properties":{"q":{"enum":["a","b"]}}}`, `{"properties":{"q":{"type":"string"}}}`, c},
		{`{"properties":{"q":{"const":"a"}}}`, `{"properties":{"q":{"enum":["a","b"]}}}`, c},
		{`{"properties":{"q":{"maxLength":5}}}`, `{"properties":{"q":{"maxLength":6}}}`, c},
		{`{"properties":{"q":{"maxLength":6}}}`, `{"properties":{"q":{"maxLength":5}}}`, b},
		{`{"properties":{"q":{"minimum":0}}}`, `{"properties":{"q":{"minimum":1}}}`, b},
		{`{"properties":{"q":{"maximum":9007199254740993}}}`, `{"properties":{"q":{"maximum":9007199254740992}}}`, b},
		{`{"properties":{"q":{}}}`, `{"properties":{"q":{"maxItems":5}}}`, b},
		{`{"properties":{"q":{"pattern":"a"}}}`, `{"properties":{"q":{"pattern":"b"}}}`, b},
		{`{"properties":{"q":{"pattern":"a"}}}`, `{"properties":{"q":{}}}`, c},
		{`{"properties":{"q":{"default":"x"}}}`, `{"properties":{"q":{"default":"y"}}}`, b},
		{`{"properties":{"q":{"anyOf":[{"type":"string"}]}}}`, `{"properties":{"q":{"anyOf":[{"type":"integer"},{"type":"string"}]}}}`, c},
		{`{"properties":{"q":{"anyOf":[{"type":"integer"},{"type":"string"}]}}}`, `{"properties":{"q":{"anyOf":[{"type":"string"}]}}}`, b},
		{`{"properties":{"q":{"type":"string"}}}`, `{"properties":{"q":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, c},
		{`{"properties":{"q":{"type":"array","items":{"type":"string"}}}}`, `{"properties":{"q":{"type":"array","items":{"type":["string","null"]}}}}`, c},
		{`{"properties":{"q":{"items":{"type":"string"}}}}`, `{"properties":{"q":{"items":{"type":"integer"}}}}`, b},
		{`{"properties":{"q":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}`, `{"properties":{"q":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"integer"}}}`, b},
		{`{"properties":{"q":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"integer"}}}`, `{"properties":{"q":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"number"}}}`, c},
		{`{"properties":{"q":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"integer"}}}`, `{"properties":{"q":{"$ref":"#/$defs/a"},"r":{}},"$defs":{"a":{"type":"integer"}}}`, c},
		{`{"$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/a"}}}},"$ref":"#/$defs/a"}`, `{"$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/a"},"m":{"type":"string"}}}},"$ref":"#/$defs/a"}`, c},
		{`{"$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/a"}}}},"$ref":"#/$defs/a"}`, `{"$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/a"}},"required":["n"]}},"$ref":"#/$defs/a"}`, b},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"if":{"required":["a"]},"then":{"required":["c"]}}`, b},
		{`{"properties":{"q":true}}`, `{"properties":{"q":false}}`, b},
		{`{"properties":{"q":false}}`, `{"properties":{"q":true}}`, c},
		{`{"properties":{"q":{"not":{"type":"string"}}}}`, `{"properties":{"q":{"not":{"type":"integer"}}}}`, b},
		{`{"properties":{"q":{"minimum":1,"exclusiveMinimum":false}}}`, `{"properties":{"q":{"minimum":1,"exclusiveMinimum":true}}}`, b},
		{`{"type":"object","x-vendor":1}`, `{"type":"object","x-vendor":2}`, b},
	} {
		v := Compare(withInput(tt.before), withInput(tt.after))
		if v.Kind != tt.want || (len(v.Reasons) == 0) != (tt.want == w) {
			t.Errorf("%s\n-> %s\n= %s %q, want %s", tt.before, tt.after, v.Kind, v.Reasons, tt.want)
		}
	}
}

func TestOutputChanges(t *testing.T) {
	for _, tt := range []struct {
		before, after string
		want          Kind
	}{
		{`{"properties":{"a":{"type":"number"}}}`, `{"properties":{"a":{"type":"integer"}}}`, Compatible},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"properties":{"a":{"type":"number"}}}`, Breaking},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{},"b":{}}}`, Compatible},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"properties":{"a":{},"b":{}},"additionalProperties":false}`, Breaking},
		{`{"properties":{"a":{},"b":{}}}`, `{"properties":{"a":{}}}`, Breaking},
		{`{"properties":{"a":{}},"required":["a"]}`, `{"properties":{"a":{}}}`, Breaking},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"required":["a"]}`, Compatible},
		{`{"properties":{"a":{"enum":[1]}}}`, `{"properties":{"a":{"enum":[1,2]}}}`, Breaking},
	} {
		if v := Compare(withOutput(tt.before), withOutput(tt.after)); v.Kind != tt.want {
			t.Errorf("%s\n-> %s\n= %s %q, want %s", tt.before, tt.after, v.Kind, v.Reasons, tt.want)
		}
	}
	none := withInput(`{}`)
	if v := Compare(none, withOutput(`{}`)); v.Kind != Compatible {
		t.Errorf("a new output schema is %v", v)
	}
	if v := Compare(withOutput(`{}`), none); v.Kind != Breaking {
		t.Errorf("a lost output schema is %v", v)
	}
}

func TestOtherChanges(t *testing.T) {
	before := `{"name":"a","description":"x","title":"t","annotations":{"readOnlyHint":false,"title":"t"},"inputSchema":{}}`
	for edit, want := range map[string]Kind{
		`"x"/"y"`: Wording, `"title":"t","ann/"title":"u","ann`: Wording, `"title":"t"}/"title":"u"}`: Wording,
		`"readOnlyHint":false/"readOnlyHint":true`: Breaking, `"readOnlyHint":false,/`: Breaking, `{"name/{"execution":{},"name`: Breaking,
		`{"name/{"_meta":{},"name`: Wording, `{"name/{"name`: None,
	} {
		from, to, _ := strings.Cut(edit, "/")
		after := strings.Replace(before, from, to, 1)
		if v := Compare(pinned(before), pinned(after)); v.Kind != want {
			t.Errorf("%s: %+v, want %q", edit, v, want)
		}
	}
	for _, routes := range [][2]string{{``, `,"route":{"method":"GET"}`}, {`,"route":{"method":"GET"}`, `,"route":{"method":"DELETE"}`}, {`,"route":{"method":"GET"}`, ``}} {
		if v := Compare([]byte(`{"instructions":"","tool":{}`+routes[0]+`}`), []byte(`{"instructions":"","tool":{}`+routes[1]+`}`)); v.Kind != Breaking {
			t.Errorf("%q: %+v, want breaking", routes, v)
		}
	}
	if v := Compare([]byte(`{"instructions":"a","tool":{}}`), []byte(`{"instructions":"b","tool":{}}`)); v.Kind != Wording {
		t.Errorf("instructions: %+v", v)
	}
	if v := Compare([]byte(`damaged`), pinned(before)); v.Kind != Breaking {
		t.Errorf("a damaged pin: %+v", v)
	}
}

func TestNext(t *testing.T) {
	for _, tt := range []struct {
		from string
		kind Kind
		want string
	}{{"1.2.3", Breaking, "2.0.0"}, {"1.2.3", Compatible, "1.3.0"}, {"1.2.3", Wording, "1.2.4"}, {"1.2.3", None, "1.2.3"}, {"", Breaking, "1.0.0"}, {"1", Wording, "1.0.1"}, {"a.b.c.d", Wording, "0.0.1"}} {
		if got := Next(tt.from, tt.kind); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.from, tt.kind, got, tt.want)
		}
	}
}

func TestLinesShowWhatDiffersInLongTexts(t *testing.T) {
	long := strings.Repeat("word ", 200)
	got := Lines(pinned(`{"description":"`+long+`old`+long+`"}`), pinned(`{"description":"`+long+`\u200bnew`+long+`"}`))
	if len(got) > 500 || !strings.Contains(got, "old") || !strings.Contains(got, "200b") || !strings.Contains(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func TestComparingEnds(t *testing.T) {
	deep := func(leaf string) string {
		s := leaf
		for range 60 {
			s = `{"anyOf":[` + s + `,{"type":"null"}],"properties":{"a":` + strings.Repeat("[", 0) + `{"type":"string"}}}`
		}
		return s
	}
	if v := Compare(withInput(deep(`{"type":"string"}`)), withInput(deep(`{"type":"integer"}`))); v.Kind != Breaking {
		t.Errorf("%v", v)
	}
	var wide strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&wide, `,{"properties":{"p%d":{"$ref":"#/x"}}}`, i)
	}
	v := Compare(withInput(`{"anyOf":[{}`+wide.String()+`]}`), withInput(`{"anyOf":[{"type":"string"}`+wide.String()+`]}`))
	if v.Kind != Breaking {
		t.Errorf("%v", v)
	}
}

func FuzzCompare(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"anyOf":[true,{"enum":[1]}],"maxLength":1e9}`)
	f.Add(`{"$ref":"#/a","a":{"$ref":"#/a"}}`, `{"nullable":true,"type":["x"]}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		if !json.Valid([]byte(before)) || !json.Valid([]byte(after)) {
			return
		}
		if v := Compare(withInput(before), withInput(before)); v.Kind != None {
			t.Errorf("%s differs from itself: %v", before, v)
		}
		Compare(withInput(before), withInput(after))
		Lines(withOutput(before), withOutput(after))
	})
}
