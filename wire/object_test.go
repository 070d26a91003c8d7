package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport/wire"
)

func TestMember(t *testing.T) {
	raw := json.RawMessage(`{ "a" : 1.50 ,"s":"x,}\"]","o":{"a":[{"a":2}]},"\u006eame":"n","e":{},"":null}`)
	for name, want := range map[string]string{
		"a": `1.50`, "s": `"x,}\"]"`, "o": `{"a":[{"a":2}]}`, "name": `"n"`, "e": `{}`, "": `null`, "A": ``, "x": ``,
	} {
		if got := string(wire.Member(raw, name)); got != want {
			t.Errorf("Member(%q) = %s, want %s", name, got, want)
		}
	}
	if got := string(wire.Path(raw, "o", "a")); got != `[{"a":2}]` {
		t.Errorf("Path = %s", got)
	}
	if got := wire.Path(raw, "a", "b"); got != nil {
		t.Errorf("Path into a number = %s", got)
	}
	n := 0
	for e := range wire.Elements(json.RawMessage(`[ 1 , "a,b",{"c":[2]} ]`)) {
		if n += len(e); len(e) == 0 {
			t.Error("empty element")
		}
	}
	if n != len(`1"a,b"{"c":[2]}`) {
		t.Errorf("elements add up to %d bytes", n)
	}
}

func TestSetAndRemove(t *testing.T) {
	for _, tt := range []struct{ in, name, set, removed string }{
		{`{}`, "a", `{"a":9}`, `{}`},
		{` { } `, "a", ` { "a":9} `, ` { } `},
		{`{"a": 1.0 ,"b":2}`, "a", `{"a": 9 ,"b":2}`, `{"b":2}`},
		{`{"b":2 , "a":1}`, "a", `{"b":2 , "a":9}`, `{"b":2}`},
		{`{"b":2,"\u0061":{"a":1},"c":3}`, "a", `{"b":2,"\u0061":9,"c":3}`, `{"b":2,"c":3}`},
		{`{"b":1e400}`, "a", `{"b":1e400,"a":9}`, `{"b":1e400}`},
		{`[1]`, "a", ``, ``},
		{`null`, "a", ``, ``},
		{``, "a", ``, ``},
	} {
		got, err := wire.SetMember(json.RawMessage(tt.in), tt.name, json.RawMessage("9"))
		if string(got) != tt.set || (err != nil) != (tt.set == "") {
			t.Errorf("SetMember(%s) = %s, %v; want %s", tt.in, got, err, tt.set)
		}
		got, err = wire.RemoveMember(json.RawMessage(tt.in), tt.name)
		if string(got) != tt.removed || (err != nil) != (tt.removed == "") {
			t.Errorf("RemoveMember(%s) = %s, %v; want %s", tt.in, got, err, tt.removed)
		}
	}
}

func TestSetPath(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"content":[]}`, `{"content":[],"_meta":{"k":"v"}}`},
		{`{"_meta":null}`, `{"_meta":{"k":"v"}}`},
		{`{"_meta":{"n":9007199254740993, "k":1},"z":1.0}`, `{"_meta":{"n":9007199254740993, "k":"v"},"z":1.0}`},
		{`{"_meta":7}`, ``},
	} {
		got, err := wire.SetPath(json.RawMessage(tt.in), json.RawMessage(`"v"`), "_meta", "k")
		if string(got) != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("SetPath(%s) = %s, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestStrings(t *testing.T) {
	for _, s := range []string{"", "plain", "\"\\\n\x00\u2028é😀", "</script>"} {
		got, ok := wire.String(wire.Quote(s))
		if !ok || got != s {
			t.Errorf("String(Quote(%q)) = %q, %v", s, got, ok)
		}
	}
	if got := string(wire.Quote("a\xffb")); got != "\"a\ufffdb\"" {
		t.Errorf("Quote of invalid UTF-8 = %s", got)
	}
	if _, ok := wire.String(json.RawMessage("1")); ok {
		t.Error("1 is not a string")
	}
}

// The scanner agrees with a full decoder, setters change one member only, and
// nothing panics, not even on garbage.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":[1,2,"\""]},"_meta":{"k":null}}`), "a")
	f.Add([]byte(`{"a`), "b")
	f.Add([]byte(`[}{"`), "b")
	f.Fuzz(func(t *testing.T, in []byte, name string) {
		got, _ := wire.SetMember(in, name, json.RawMessage("0"))
		removed, _ := wire.RemoveMember(in, name)
		for range wire.Elements(in) {
		}
		if wire.Validate(in) != nil || !wire.IsObject(in) || strings.ToValidUTF8(name, "") != name {
			return
		}
		var want, after, without map[string]json.RawMessage
		if err := json.Unmarshal(in, &want); err != nil {
			t.Fatal(err)
		}
		n := 0
		for k, v := range wire.Members(in) {
			if n++; string(want[string(k)]) != string(v) {
				t.Fatalf("%q: member %q is %q, want %q", in, k, v, want[string(k)])
			}
		}
		if n != len(want) {
			t.Fatalf("%q: %d members, want %d", in, n, len(want))
		}
		if wire.Validate(got) != nil || json.Unmarshal(got, &after) != nil || string(after[name]) != "0" {
			t.Fatalf("SetMember(%q, %q) = %q", in, name, got)
		}
		if wire.Validate(removed) != nil || json.Unmarshal(removed, &without) != nil || without[name] != nil {
			t.Fatalf("RemoveMember(%q, %q) = %q", in, name, removed)
		}
		for k, v := range want {
			if k != name && (string(after[k]) != string(v) || string(without[k]) != string(v)) {
				t.Fatalf("member %q changed", k)
			}
		}
	})
}

func BenchmarkValidate1KB(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"text":"` + strings.Repeat("a b ", 220) + `","n":[1,2,3]}}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ParseMessage(raw); err != nil {
			b.Fatal(err)
		}
	}
}
