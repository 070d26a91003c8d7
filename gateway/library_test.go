package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

type libraryFake struct{ whole bool }

func (libraryFake) Find(_ string, shelf sallyport.Shelf, name string) (sallyport.Tool, error) {
	if !strings.HasPrefix(name, string(shelf)) {
		return sallyport.Tool{}, &sallyport.Error{Code: sallyport.NotFound}
	}
	return sallyport.Tool{Shelf: shelf, Name: name, Digest: "d", Status: sallyport.ToolActive, Origin: sallyport.Origin{Backend: "fake", Server: "s", Name: "own " + name}}, nil
}

func (l libraryFake) Shelf(_ string, shelf sallyport.Shelf) ([]sallyport.Tool, bool) {
	if shelf == "" {
		return nil, l.whole
	}
	return []sallyport.Tool{{Shelf: shelf, Name: "a", Status: sallyport.ToolActive}}, l.whole
}

func (libraryFake) Check(_ sallyport.Tool, _ sallyport.Kind, args json.RawMessage) error {
	if strings.Contains(string(args), "bad") {
		return &sallyport.Error{Code: sallyport.Invalid, Message: "bad"}
	}
	return nil
}

func (libraryFake) Address(_ string, _ sallyport.Tool, content json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(string(content), "own ", "exposed "))
}

func reading(kind sallyport.Kind, target, args string) sallyport.Request {
	r := call(args)
	r.Operation.Kind, r.Operation.Target = kind, target
	return r
}

// What is read takes every step, as a call does, and nothing is reserved for it.
func TestReadingTakesThePath(t *testing.T) {
	for _, tt := range []struct {
		kind         sallyport.Kind
		target, args string
		seen         string // arguments of the job
	}{
		{sallyport.ReadResource, "resources:x", `{"ignored":1}`, `{"uri":"own resources:x"}`},
		{sallyport.GetPrompt, "prompts", `{"b":"1", "a":"2"}`, `{"a":"2","b":"1"}`},
		{sallyport.Complete, "prompts", `{"ref":{"type":"ref/prompt"}}`, `{"ref":{"type":"ref/prompt"}}`},
		{sallyport.Complete, "templates", `{"ref":{"type":"ref/resource"}}`, `{"ref":{"type":"ref/resource"}}`},
	} {
		w := newWorld(t)
		w.Library = libraryFake{}
		res, err := w.Call(t.Context(), reading(tt.kind, tt.target, tt.args))
		if err != nil {
			t.Fatal(err)
		}
		r := w.last(t)
		if !slices.Equal(r.Path, sallyport.Steps) || r.Kind != tt.kind || r.Server != "s" || r.Upstream != "own "+tt.target {
			t.Errorf("recorded %+v", r)
		}
		if len(w.ran) != 1 || w.ran[0].Kind != tt.kind || string(w.ran[0].Args) != tt.seen {
			t.Errorf("%s ran as %+v", tt.kind, w.ran)
		}
		if strings.Contains(string(res.Content), "own ") {
			t.Errorf("the server's own address came out: %s", res.Content)
		}
	}
}

func TestReadingStopsAt(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*world)
		req  sallyport.Request
		code sallyport.Code
		last sallyport.Step
	}{
		{"unknown", nil, reading(sallyport.GetPrompt, "nothing", ``), sallyport.NotFound, sallyport.Resolve},
		{"another shelf", nil, reading(sallyport.GetPrompt, "resources:x", ``), sallyport.NotFound, sallyport.Resolve},
		{"a tool's name", nil, reading(sallyport.ReadResource, "echo", ``), sallyport.NotFound, sallyport.Resolve},
		{"approval_result is no prompt", nil, reading(sallyport.GetPrompt, ApprovalResult, `{"ticket":"t"}`), sallyport.NotFound, sallyport.Resolve},
		{"no library", func(w *world) { w.Library = nil }, reading(sallyport.GetPrompt, "prompts", ``), sallyport.NotFound, sallyport.Resolve},
		{"no reference", nil, reading(sallyport.Complete, "prompts", `{"ref":{"type":"ref/tool"}}`), sallyport.Invalid, sallyport.Resolve},
		{"arguments", nil, reading(sallyport.GetPrompt, "prompts", `{"bad":"1"}`), sallyport.Invalid, sallyport.Validate},
		{"a human would be asked", func(w *world) { w.verdict.Demands = []sallyport.Demand{{Policy: "p"}} }, reading(sallyport.GetPrompt, "prompts", ``), sallyport.Denied, sallyport.Authorize},
		{"critical", func(w *world) { w.risk.Level = sallyport.Critical }, reading(sallyport.GetPrompt, "prompts", ``), sallyport.Denied, sallyport.Authorize},
	} {
		w := newWorld(t)
		w.Library = libraryFake{}
		if tt.edit != nil {
			tt.edit(w)
		}
		_, err := w.Call(t.Context(), tt.req)
		path := w.last(t).Path
		if sallyport.CodeOf(err) != tt.code || path[len(path)-2] != tt.last || len(w.ran) != 0 {
			t.Errorf("%s: %v, path %v, ran %d", tt.name, err, path, len(w.ran))
		}
	}
	for _, change := range []func(*sallyport.Request){
		func(r *sallyport.Request) { r.Key = "k" }, func(r *sallyport.Request) { r.Ticket = "t" }, func(r *sallyport.Request) { r.Saga = "s" },
	} {
		w := newWorld(t)
		w.Library = libraryFake{}
		req := reading(sallyport.GetPrompt, "prompts", ``)
		change(&req)
		if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Invalid || len(w.ran) != 0 {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

func TestListsSayWhenTheyAreIncomplete(t *testing.T) {
	for _, whole := range []bool{true, false} {
		w := newWorld(t)
		w.Library = libraryFake{whole: whole}
		for _, shelf := range []sallyport.Shelf{"", sallyport.Resources} {
			if s, err := w.List(t.Context(), "token-of-ann", "", shelf, 0); err != nil || s.Incomplete == whole || len(s.List) != 1 {
				t.Errorf("%q: %+v, %v", shelf, s, err)
			}
		}
	}
}
