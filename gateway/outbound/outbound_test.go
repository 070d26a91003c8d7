package outbound_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/outbound"
)

// A word is an inspector that knows one secret.
type word string

func (w word) Secrets(args json.RawMessage) ([]sallyport.Part, bool) {
	if strings.Contains(string(args), string(w)) {
		return []sallyport.Part{{Path: "/a", Label: "secret", Text: "word"}}, true
	}
	return nil, true
}

func TestWithholdTakesOutWhatHoldsSecrets(t *testing.T) {
	for _, tt := range []struct{ args, path, want string }{
		{`{"a":"s","b":1.50}`, "/a", `{"a":"[withheld: holds a secret]","b":1.50}`},
		{`{"a":["x","s"]}`, "/a/1", `{"a":["x","[withheld: holds a secret]"]}`},
		{`{"a/b":"s"}`, "/a~1b", `{"a/b":"[withheld: holds a secret]"}`},
		{`{"a":"{\"b\":\"s\"}"}`, "/a/b", `{"a":"[withheld: holds a secret]"}`}, // within a text
		{`{"a":"s"}`, "/other", `{"withheld":"holds a secret"}`},
		{`{"a":["s"]}`, "/a/7", `{"withheld":"holds a secret"}`},
		{`{"a":"s"}`, "", `{"withheld":"holds a secret"}`},
		{`{"a":`, "/a", `{"withheld":"holds a secret"}`},
	} {
		got := outbound.Withhold(json.RawMessage(tt.args), []sallyport.Part{{Path: tt.path}})
		if string(got) != tt.want {
			t.Errorf("%s at %q: %s, want %s", tt.args, tt.path, got, tt.want)
		}
	}
	if got := outbound.Withhold(json.RawMessage(`{"a":"s"}`), nil); string(got) != `{"a":"s"}` {
		t.Errorf("without secrets: %s", got)
	}
}

func TestLeakingKnowsWhatStaysInside(t *testing.T) {
	args := json.RawMessage(`{"a":"hunter"}`)
	code := &sallyport.Script{}
	for _, tt := range []struct {
		name string
		tool sallyport.Tool
		want int
	}{
		{"a server's", sallyport.Tool{Origin: sallyport.Origin{Backend: "upstream"}}, 1},
		{"the gateway's own", sallyport.Tool{Origin: sallyport.Origin{Backend: "builtin"}}, 0},
		{"code that reaches nothing", sallyport.Tool{Code: code}, 0},
		{"code that reaches something", sallyport.Tool{Code: code, Manifest: sallyport.Manifest{Egress: []string{"x.example:443"}}}, 1},
		{"one that is meant to have them", sallyport.Tool{Manifest: sallyport.Manifest{MayReceive: []string{"secrets"}}}, 0},
	} {
		if got := outbound.Leaking(word("hunter"), tt.tool, args); len(got) != tt.want {
			t.Errorf("%s: %v, want %d", tt.name, got, tt.want)
		}
	}
}

func TestHighlightQuotesNoSecret(t *testing.T) {
	was := sallyport.Risk{Level: sallyport.High, Reasons: []string{"sends hunter", "sends"}}
	got := outbound.Highlight(word("hunter"), was, []sallyport.Part{{Path: "/a", Text: "word"}})
	if got.Level != sallyport.Critical || strings.Join(got.Reasons, "|") != "secrets would leave: word at /a|[withheld: holds a secret]|sends" || was.Reasons[0] != "sends hunter" {
		t.Errorf("%+v of %+v", got, was)
	}
}
