package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/redact/visible"
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
				if diff, err := c.Diff("s__a"); err != nil || !strings.Contains(diff.Lines, tt.diff) {
					t.Errorf("diff = %q, %v; want a line with %q", diff.Lines, err, tt.diff)
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
			if diff, _ := c.Diff("s__a"); diff.Lines != "" {
				t.Errorf("diff after approval = %q", diff.Lines)
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
		if err != nil || !strings.Contains(diff.Lines, `\u`) || visible.Index(diff.Lines) >= 0 {
			t.Errorf("%s: diff = %q, %v; want escapes", name, diff.Lines, err)
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
