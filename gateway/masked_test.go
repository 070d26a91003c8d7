package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway/gatewaytest"
)

// hunter masks one word wherever it stands.
type hunter struct{ gatewaytest.Plain }

func (hunter) Text(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
func (hunter) JSON(v json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(string(v), "hunter2", "***"))
}

// FO-43: nothing that the caller wrote gets into the record unmasked.
func TestRecordIsMasked(t *testing.T) {
	for name, change := range map[string]func(*world, *sallyport.Request){
		"arguments":    func(_ *world, r *sallyport.Request) { r.Operation.Args = json.RawMessage(`{"p":"hunter2"}`) },
		"key":          func(_ *world, r *sallyport.Request) { r.Key = "hunter2" },
		"unknown tool": func(_ *world, r *sallyport.Request) { r.Operation.Target = "hunter2" },
		"long name, masked before it is cut": func(_ *world, r *sallyport.Request) {
			r.Operation.Target = strings.Repeat("x", 124) + "hunter2"
		},
		"ticket's id": func(_ *world, r *sallyport.Request) { r.Ticket = "hunter2" },
		"saga's id":   func(_ *world, r *sallyport.Request) { r.Saga = "hunter2" },
		"unlisted resource": func(w *world, r *sallyport.Request) {
			w.tools["hunter2"] = sallyport.Tool{Name: "hunter2", Status: sallyport.ToolActive, Origin: sallyport.Origin{Backend: "fake", Server: "s", Name: "hunter2"}}
			r.Operation.Target = "hunter2"
		},
		"risk": func(w *world, _ *sallyport.Request) {
			w.risk = sallyport.Risk{Level: sallyport.High, Reasons: []string{"reads hunter2"}, Objects: []string{"hunter2"}}
		},
		"ticket": func(w *world, r *sallyport.Request) {
			w.risk = sallyport.Risk{Level: sallyport.Critical, Reasons: []string{"reads hunter2"}, Objects: []string{"hunter2"}}
			r.Key = "hunter2"
		},
	} {
		w := newWorld(t)
		w.Sanitiser = hunter{}
		req := sallyport.Request{Credential: "token-of-ada", Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: "echo", Args: json.RawMessage(`{}`)}}
		change(w, &req)
		_, _ = w.Call(t.Context(), req)
		if len(w.entries) == 0 {
			t.Errorf("%s: nothing was recorded", name)
		}
		for _, e := range w.entries {
			if strings.Contains(string(e.Payload), "hunter2") || strings.Contains(string(e.Payload), "xxhunt") {
				t.Errorf("%s: %s entry holds the secret: %s", name, e.Kind, e.Payload)
			}
		}
		if w.risk.Reasons != nil && w.risk.Reasons[0] != "reads hunter2" {
			t.Errorf("%s: masking changed the verdict itself", name)
		}
	}
}
