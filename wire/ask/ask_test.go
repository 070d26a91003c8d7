package ask_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

func TestAbilities(t *testing.T) {
	for in, want := range map[string]sallyport.Abilities{
		`{"elicitation":{}}`:                   {Form: true},
		`{"elicitation":{"form":{},"url":{}}}`: {Form: true, URL: true},
		`{"elicitation":{"url":{}}}`:           {URL: true},
		`{"sampling":{}}`:                      {Sampling: true},
		`{"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true}}`: {Sampling: true, Tools: true, Context: true, Roots: true},
		`{"elicitation":true,"sampling":null,"roots":[]}`:                     {},
		`{}`: {}, ``: {}, `[]`: {},
	} {
		got := ask.Abilities(json.RawMessage(in))
		if got != want {
			t.Errorf("%s: %+v", in, got)
		}
		if back := ask.Abilities(ask.Capabilities(got)); back != got || wire.Validate(ask.Capabilities(got)) != nil {
			t.Errorf("%s becomes %s", in, ask.Capabilities(got))
		}
	}
}

func TestReadRequired(t *testing.T) {
	many := `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}`
	for i := range ask.MaxQuestions {
		many += `,"` + strings.Repeat("x", i+1) + `":{"method":"roots/list"}`
	}
	for in, wrong := range map[string]bool{
		`{"resultType":"input_required","requestState":"\u00e9"}`:                                  false,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}`:            false,
		`{"resultType":"input_required","inputRequests":{}}`:                                       false,
		`{"resultType":"input_required"}`:                                                          true,
		`{"resultType":"input_required","requestState":7}`:                                         true,
		`{"resultType":"input_required","inputRequests":[]}`:                                       true,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}}`:            true,
		`{"resultType":"input_required","inputRequests":{"a":{}}}`:                                 true,
		`{"resultType":"input_required","inputRequests":{"a":7}}`:                                  true,
		`{"resultType":"input_required","inputRequests":{"":{"method":"roots/list"}}}`:             true,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list","params":7}}}`: true,
		many + `}}`: true,
	} {
		if _, ok, err := ask.ReadRequired(json.RawMessage(in)); !ok || (err != nil) != wrong {
			t.Errorf("%.200s: %v, %v", in, ok, err)
		}
	}
	if _, ok, err := ask.ReadRequired(json.RawMessage(`{"resultType":"complete","inputRequests":7}`)); ok || err != nil {
		t.Errorf("another type: %v, %v", ok, err)
	}
}

// The state goes back as it was written; there is none where there was none.
func TestRetryHasTheExactState(t *testing.T) {
	r, _, err := ask.ReadRequired(json.RawMessage(`{"resultType":"input_required","inputRequests":{"k\u00e9y":{"method":"roots/list"}},"requestState":"s\u00e9 <\/>"}`))
	if err != nil {
		t.Fatal(err)
	}
	got := string(r.AppendRetry(nil, []sallyport.Answer{{Result: json.RawMessage(`{"roots":[]}`)}}))
	if got != `,"inputResponses":{"kéy":{"roots":[]}},"requestState":"s\u00e9 <\/>"` {
		t.Errorf("%s", got)
	}
	r.State = nil
	if got := string(r.AppendRetry(nil, nil)); got != "" {
		t.Errorf("%s", got)
	}
}

func TestResponses(t *testing.T) {
	for in, ok := range map[string]bool{`{}`: true, `{"a":{}}`: true, `{"a":7}`: false, `null`: false, `[]`: false, `{"a":null}`: false} {
		if _, err := ask.Responses(json.RawMessage(in)); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func FuzzAsk(f *testing.F) {
	f.Add(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","elicitationId":"e"}}},"requestState":"s"}`)
	f.Add(`{"elicitation":{"form":{}},"sampling":{"tools":{}}}`)
	f.Fuzz(func(t *testing.T, in string) {
		if wire.Validate([]byte(in)) != nil {
			return
		}
		raw := json.RawMessage(in)
		if c := ask.Capabilities(ask.Abilities(raw)); wire.Validate(c) != nil {
			t.Errorf("%s", c)
		}
		_, _ = ask.Responses(raw)
		r, ok, err := ask.ReadRequired(raw)
		if !ok || err != nil {
			return
		}
		answers := make([]sallyport.Answer, len(r.Questions))
		for i, q := range r.Questions {
			answers[i].Result = json.RawMessage(`{}`)
			for _, p := range []json.RawMessage{ask.ForModern(q), ask.ForLegacy(q, wire.Version2025_06_18), ask.ForLegacy(q, wire.Version2025_11_25)} {
				if p != nil && wire.Validate(p) != nil {
					t.Errorf("%s", p)
				}
			}
		}
		if b := append(r.AppendRetry([]byte(`{"x":1`), answers), '}'); wire.Validate(b) != nil {
			t.Errorf("%s", b)
		}
		if b := ask.Result(r.Questions, "s"); wire.Validate(b) != nil {
			t.Errorf("%s", b)
		}
	})
}

// A question without parameters has empty ones: go-sdk's clients read no other.
func TestQuestionWithoutParameters(t *testing.T) {
	got := string(ask.Result([]sallyport.Question{{Key: "q", Method: sallyport.AskRoots}}, "s"))
	if got != `{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list","params":{}}},"requestState":"s"}` {
		t.Error(got)
	}
	var res sdk.CallToolResult
	if err := json.Unmarshal([]byte(got), &res); err != nil || len(res.InputRequests) != 1 {
		t.Errorf("read by go-sdk: %v, %v", res.InputRequests, err)
	}
}
