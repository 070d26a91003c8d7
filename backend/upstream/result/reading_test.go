package result_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/wire"
)

func TestReading(t *testing.T) {
	for _, tt := range []struct {
		kind     sallyport.Kind
		in, want string // "" if it cannot be used
	}{
		{sallyport.ReadResource, `{"contents":[{"uri":"x:1","text":"t","n":1.0},{"uri":"x:2","blob":"AA=="}],"ttlMs":1,"_meta":{"k":1}}`,
			`{"content":[{"type":"resource","resource":{"uri":"x:1","text":"t","n":1.0}},{"type":"resource","resource":{"uri":"x:2","blob":"AA=="}}],"_meta":{"k":1}}`},
		{sallyport.ReadResource, `{"contents":[{"uri":"x:1","text":"t","blob":null,"mimeType":null,"_meta":null,"x":null}],"_meta":null}`,
			`{"content":[{"type":"resource","resource":{"uri":"x:1","text":"t","x":null}}]}`},
		{sallyport.GetPrompt, `{"description":null,"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"x:1","text":"null","blob":null},"annotations":{"audience":null}}}]}`,
			`{"content":[{"type":"resource","resource":{"uri":"x:1","text":"null"},"annotations":{}}],"structuredContent":{"roles":["user"]}}`},
		{sallyport.ReadResource, `{"contents":[{"uri":"x:1","text":null,"blob":null}]}`, ``},
		{sallyport.ReadResource, `{"contents":[]}`, `{"content":[]}`},
		{sallyport.ReadResource, `{"contents":[{"uri":"x:1"}]}`, ``},
		{sallyport.ReadResource, `{"contents":[{"uri":"x:1","text":"t","blob":"AA=="}]}`, ``},
		{sallyport.ReadResource, `{"contents":[{"text":"t"}]}`, ``},
		{sallyport.ReadResource, `{"contents":[7]}`, ``},
		{sallyport.ReadResource, `{"contents":{}}`, ``},
		{sallyport.ReadResource, `{"resultType":"input_required","contents":[]}`, ``},
		{sallyport.ReadResource, `[]`, ``},
		{sallyport.GetPrompt, `{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"q","n":1.0}},{"role":"assistant","content":{"type":"resource_link","uri":"x:1"}}]}`,
			`{"content":[{"type":"text","text":"q","n":1.0},{"type":"resource_link","uri":"x:1"}],"structuredContent":{"roles":["user","assistant"],"description":"d"}}`},
		{sallyport.GetPrompt, `{"messages":[]}`, `{"content":[],"structuredContent":{"roles":[]}}`},
		{sallyport.GetPrompt, `{"messages":[{"role":"system","content":{"type":"text","text":"q"}}]}`, ``},
		{sallyport.GetPrompt, `{"messages":[{"role":"user","content":[]}]}`, ``},
		{sallyport.GetPrompt, `{"messages":[{"role":"user"}]}`, ``},
		{sallyport.GetPrompt, `{}`, ``},
		{sallyport.Complete, `{"completion":{"values":["a"],"total":1.0,"hasMore":null,"x":1}}`, `{"content":[],"structuredContent":{"completion":{"values":["a"],"total":1.0}}}`},
		{sallyport.Complete, `{"completion":{"values":[1]}}`, ``},
		{sallyport.Complete, `{"completion":{}}`, ``},
	} {
		out, err := result.Reading(tt.kind, json.RawMessage(tt.in))
		if (err == nil) != (tt.want != "") || string(out.Content) != tt.want {
			t.Errorf("%s %s: %s, %v", tt.kind, tt.in, out.Content, err)
		}
		if err == nil && wire.Validate(out.Content) != nil {
			t.Errorf("%s is not JSON", out.Content)
		}
	}
	many := `{"completion":{"values":["x"` + strings.Repeat(`,"x"`, 150) + `]}}`
	out, err := result.Reading(sallyport.Complete, json.RawMessage(many))
	if n := strings.Count(string(out.Content), `"x"`); err != nil || n != 100 {
		t.Errorf("%d values, %v", n, err)
	}
}

// FO-24: what a server writes as null because it is not there is not there; what must
// be is missing.
func TestFO24NullsInResults(t *testing.T) {
	for in, want := range map[string]string{
		`{"isError":null,"_meta":null,"content":[{"type":"text","text":"a","annotations":null,"own":null}, {"type":"text","text":"b"}],"structuredContent":{"a":null}}`: `{"content":[{"type":"text","text":"a","own":null},{"type":"text","text":"b"}],"structuredContent":{"a":null}}`,
		`{"content":[ {"type":"text","text":"null"} ]}`: `{"content":[ {"type":"text","text":"null"} ]}`,
	} {
		if out := result.Output(json.RawMessage(in)); string(out.Content) != want || out.IsError || out.Unclear {
			t.Errorf("%s: %s", in, out.Content)
		}
	}
	for _, in := range []string{`{"content":null}`, `{"content":[null]}`, `{"content":[{"type":null}]}`, `{"content":[{"type":"text","text":null}]}`} {
		if out := result.Output(json.RawMessage(in)); !out.IsError {
			t.Errorf("%s passes: %s", in, out.Content)
		}
	}
}

func FuzzReading(f *testing.F) {
	f.Add(0, `{"contents":[{"uri":"x:1","text":"t"}]}`)
	f.Add(1, `{"messages":[{"role":"user","content":{"type":"text","text":"q"}}]}`)
	f.Add(2, `{"completion":{"values":["a"]}}`)
	kinds := []sallyport.Kind{sallyport.ReadResource, sallyport.GetPrompt, sallyport.Complete}
	f.Fuzz(func(t *testing.T, kind int, in string) {
		if wire.Validate([]byte(in)) != nil {
			return
		}
		out, err := result.Reading(kinds[uint(kind)%3], json.RawMessage(in))
		if err == nil && (wire.Validate(out.Content) != nil || wire.Member(out.Content, "content") == nil) {
			t.Fatalf("%s gives %s", in, out.Content)
		}
	})
}
