package typings

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

func TestOf(t *testing.T) {
	for want, tool := range map[string]sallyport.Tool{
		"/** Adds. Twice. */\ntools.math.add(arguments: { a: number; b?: number; }): Promise<{ sum: number; }>": {
			Name: "math__add", Description: "other",
			Definition: json.RawMessage(`{"description":"Adds. Twice.","inputSchema":{"type":"object","properties":{"b":{"type":"number"},"a":{"type":"integer"}},"required":["a"]},
				"outputSchema":{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}}`),
		},
		`tools["my-server"]["do-it"](arguments?: Record<string, any>): Promise<string | object>`: {
			Name: "my-server__do-it", InputSchema: json.RawMessage(`{"type":"object"}`),
		},
		`tools.bare(arguments?: { "a b"?: "x" | 1 | null; list?: string[]; }): Promise<string | object>`: {
			Name: "s__bare", Alias: "bare", InputSchema: json.RawMessage(`{"properties":{"a b":{"enum":["x",1,null]},"list":{"type":"array","items":{"type":"string"}}}}`),
		},
		`tools.t(arguments?: { map?: Record<string, number>; node?: { next?: any; value?: string | null; }; }): Promise<string | object>`: {
			Name: "t", InputSchema: json.RawMessage(`{"type":"object","$defs":{"none":{}},"properties":{"map":{"type":"object","additionalProperties":{"type":"number"}},
				"node":{"type":"object","properties":{"value":{"anyOf":[{"type":"string"},{"type":"null"}]},"next":{"$ref":"#/$defs/none"}}}}}`),
		},
		"/** Ends * / here: tools.x() */\ntools.x(arguments?: object): Promise<string | object>": {
			Name: "x", Description: "Ends */ here: tools.x()", InputSchema: json.RawMessage(`[`),
		},
	} {
		if got := Of(tool).Declaration; got != want {
			t.Errorf("%s:\n got %s\nwant %s", tool.Name, got, want)
		}
	}
}

// A schema that refers to itself, or of any breadth, makes a declaration of a
// bounded size.
func TestBounded(t *testing.T) {
	wide := &strings.Builder{}
	wide.WriteString(`{"type":"object","properties":{"a":{}`)
	for range 20_000 {
		wide.WriteString(`,"` + strings.Repeat("p", 1+wide.Len()%50) + `":{"$ref":"#"}`)
	}
	wide.WriteString(`}}`)
	for name, schema := range map[string]string{
		"itself": `{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"},"d":{"$ref":"#"},"e":{"$ref":"#"},"f":{"$ref":"#"}}}`,
		"loop":   `{"$ref":"#"}`, "wide": wide.String(), "outside": `{"$ref":"http://example.com/x"}`,
	} {
		f := Of(sallyport.Tool{Name: "t", Description: strings.Repeat("é", 5000), InputSchema: json.RawMessage(schema)})
		if len(f.Declaration) > maxType+2*maxDoc || len(f.About) > 2*maxAbout {
			t.Errorf("%s: %d bytes: %.200s", name, len(f.Declaration), f.Declaration)
		}
	}
}
