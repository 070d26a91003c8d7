package older

import (
	"encoding/json"
	"testing"
)

func TestStructuredContentIsAnObject(t *testing.T) {
	for _, c := range []struct {
		word     func(json.RawMessage) json.RawMessage
		in, want string
	}{
		{Tool, `{"name":"a","description":"\"outputSchema\""}`, ""},
		{Tool, `{"name":"a","outputSchema":{"type":"object"}}`, ""},
		{Tool, `{"name":"a","outputSchema":{"type":"array"}}`, `{"name":"a"}`},
		{Tool, `{"name":"a","outputSchema":{"anyOf":[{"type":"object"}]}}`, `{"name":"a"}`},
		{Tool, `{"name":"a","outputSchema":{"type":["object","null"]}}`, `{"name":"a"}`},
		{Result, `{"content":[]}`, ""},
		{Result, `{"content":[],"structuredContent":{"result":[1]}}`, ""},
		{Result, `{"content":[],"structuredContent":null}`, `{"content":[]}`},
		{Result, `{"content":[{"type":"text","text":"x"}],"structuredContent":[1]}`, `{"content":[{"type":"text","text":"x"}],"structuredContent":{"result":[1]}}`},
		{Result, `{"content":[],"structuredContent":"a"}`, `{"content":[{"type":"text","text":"\"a\""}],"structuredContent":{"result":"a"}}`},
		{Result, `{"content":[],"structuredContent":9007199254740993}`, `{"content":[{"type":"text","text":"9007199254740993"}],"structuredContent":{"result":9007199254740993}}`},
	} {
		if c.want == "" {
			c.want = c.in
		}
		if got := c.word(json.RawMessage(c.in)); string(got) != c.want {
			t.Errorf("%s becomes %s, want %s", c.in, got, c.want)
		}
	}
}
