package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

const original = `{"name":"a","title":"A","description":"Reads.","icons":[],"annotations":{"destructiveHint":true},` +
	`"inputSchema":{"type":"object","properties":{"p":{"type":"string","default":"x"}}},"outputSchema":{"type":"object"}}`

func TestTO01_ChangedDefinitionIsQuarantined(t *testing.T) {
	changes := []struct{ name, old, new, diff string }{
		{"description", `Reads.`, `Reads!`, `~ /tool/description: "Reads." -> "Reads!"`},
		{"default", `"x"`, `"y"`, `~ /tool/inputSchema/properties/p/default: "x" -> "y"`},
		{"parameter", `{"p":`, `{"q":{},"p":`, `+ /tool/inputSchema/properties/q: {}`},
		{"annotation", `destructiveHint`, `readOnlyHint`, `- /tool/annotations/destructiveHint: true`},
		{"output", `"outputSchema":{"type":"object"}`, `"outputSchema":{}`, `- /tool/outputSchema/type: "object"`},
		{"title", `"A"`, `"B"`, `~ /tool/title`},
		{"icon", `[]`, `[{"src":"data:,"}]`, `+ /tool/icons/0: {"src":"data:,"}`},
		{"unknown field", `"title"`, `"x":1,"title"`, `+ /tool/x: 1`},
	}
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			pins := &memory{}
			c := open(t, Options{Pins: pins})
			set(t, c, "s", json.RawMessage(original))
			set(t, c, "s", json.RawMessage(strings.Replace(original, tt.old, tt.new, 1)))
			restarted := open(t, Options{Pins: pins})
			set(t, restarted, "s", json.RawMessage(strings.Replace(original, tt.old, tt.new, 1)))
			for _, c := range []*Catalog{c, restarted} {
				got, err := c.Resolve("", "s__a")
				if err != nil || got.Status != sallyport.ToolQuarantined {
					t.Fatalf("status = %q, %v", got.Status, err)
				}
				if diff, err := c.Diff("s__a"); err != nil || !strings.Contains(diff, tt.diff) {
					t.Errorf("diff = %q, %v; want a line with %q", diff, err, tt.diff)
				}
				if sallyport.CodeOf(c.Approve(t.Context(), "s__a", "another digest")) != sallyport.Conflict {
					t.Error("approved what the operator did not look at")
				}
			}
			shown, _ := c.Resolve("", "s__a")
			if err := c.Approve(t.Context(), "s__a", shown.Digest); err != nil {
				t.Fatal(err)
			}
			if got, _ := c.Resolve("", "s__a"); got.Status != sallyport.ToolActive {
				t.Errorf("status = %q after approval", got.Status)
			}
			if diff, _ := c.Diff("s__a"); diff != "" {
				t.Errorf("diff after approval = %q", diff)
			}
		})
	}
}

func TestTO01_InstructionsCount(t *testing.T) {
	c := open(t, Options{})
	for _, instructions := range []string{"one", "two"} {
		if err := c.SetListing(t.Context(), Listing{Server: "s", Instructions: instructions, Tools: []json.RawMessage{tool("a")}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := c.Resolve("", "s__a"); got.Status != sallyport.ToolQuarantined {
		t.Errorf("status = %q after the instructions changed", got.Status)
	}
}

func TestTO01_OrderOfKeysDoesNotCount(t *testing.T) {
	c := open(t, Options{})
	set(t, c, "s", json.RawMessage(`{"name":"a","description":"é","inputSchema":{"type":"object"}}`))
	set(t, c, "s", json.RawMessage(`{"inputSchema": {"type":"object"}, "description":"\u00e9","name":"a"}`))
	if got, _ := c.Resolve("", "s__a"); got.Status != sallyport.ToolActive {
		t.Errorf("status = %q, %s", got.Status, got.StatusReason)
	}
}

func TestTO04_HiddenCharacters(t *testing.T) {
	bad := map[string]string{
		"zero width":      "a\u200bb",
		"joiner in Latin": "a\u200db",
		"word joiner":     "a\u2060b",
		"tags":            "a\U000e0041\U000e0042",
		"tags after flag": "\U0001f3f4\U000e0041 more \U000e0042",
		"long flag":       "\U0001f3f4" + strings.Repeat("\U000e0041", 20) + "\U000e007f",
		"bidi override":   "a\u202eb",
		"bidi isolate":    "a\u2066b",
		"mark in Latin":   "abcdefghijkl\u200emnopqrstuvw",
		"soft hyphen":     "a\u00adb",
		"hangul filler":   "a\u3164b",
		"variation":       "a\ufe00b",
		"variation sup":   "a\U000e0101b",
		"escape":          "a\x1b[2Jb",
		"C1":              "a\u009bb",
		"backspace":       "a\bb",
		"byte order mark": "a\ufeffb",
		"line separator":  "a\u2028b",
	}
	good := map[string]string{
		"plain": "tab\t, newline\n, CRLF\r\n", "family": "👨‍👩‍👧‍👦", "heart": "❤️‍🔥 1️⃣",
		"flag": "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f!", "persian": "می\u200cخواهم",
		"hebrew": "שלום!", "hindi": "क्\u200dष", "chinese": "汉字",
	}
	for name, text := range bad {
		if hidden(text) == "" {
			t.Errorf("%s: %q passes", name, text)
		}
	}
	for name, text := range good {
		if why := hidden(text); why != "" {
			t.Errorf("%s: %q is refused: %s", name, text, why)
		}
	}
}

func TestTO04_HiddenTextIsQuarantinedOnSight(t *testing.T) {
	where := map[string]string{
		"description": `{"name":"a","description":"a\u200bb","inputSchema":{"type":"object"}}`,
		"title":       `{"name":"a","title":"\u001b[31m","inputSchema":{"type":"object"}}`,
		"parameter":   `{"name":"a","inputSchema":{"type":"object","properties":{"p":{"description":"\u202e"}}}}`,
		"member name": `{"name":"a","inputSchema":{"type":"object","properties":{"p\u200b":{}}}}`,
		"enum":        `{"name":"a","inputSchema":{"type":"object","properties":{"p":{"enum":["x\u2060"]}}}}`,
	}
	for name, raw := range where {
		pins := &memory{}
		c := open(t, Options{Pins: pins})
		set(t, c, "s", json.RawMessage(raw))
		got, _ := c.Resolve("", "s__a")
		if got.Status != sallyport.ToolQuarantined || !strings.Contains(got.StatusReason, "hidden character") || len(pins.pins) != 0 {
			t.Errorf("%s: status %q, reason %q, %d pins", name, got.Status, got.StatusReason, len(pins.pins))
		}
		diff, err := c.Diff("s__a")
		if err != nil || !strings.Contains(diff, `\u`) || hidden(diff) != "" {
			t.Errorf("%s: diff = %q, %v; want escapes", name, diff, err)
		}
		// A human who saw it may still let it in.
		if err := c.Approve(t.Context(), "s__a", got.Digest); err != nil {
			t.Fatal(err)
		}
		set(t, c, "s", json.RawMessage(raw))
		if got, _ := c.Resolve("", "s__a"); got.Status != sallyport.ToolActive {
			t.Errorf("%s: status %q after approval", name, got.Status)
		}
	}
}
