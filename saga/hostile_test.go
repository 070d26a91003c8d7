package saga_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/saga/plan"
)

// An attacker's plan: a harmless step, a destructive "compensation", and a step
// that always fails. The compensation is judged and approved with the plan.
func TestTO38_DestructiveCompensation(t *testing.T) {
	w := newWorld(t)
	w.risk["delete_all"] = sallyport.Risk{Level: sallyport.Critical, Irreversible: true, Reasons: []string{"deletes everything"}}
	w.plan["do fail"] = fails
	h := w.live(0, false)
	defer h.end()
	req := h.request(`
name: harmless
steps:
- {id: create, tool: do, arguments: {what: create}, compensate: {tool: delete_all}}
- {id: fail, tool: do, arguments: {what: fail}}
`)
	_, err := h.front.Call(t.Context(), req)
	e, ours := errors.AsType[*sallyport.Error](err)
	if !ours || e.Code != sallyport.Pending {
		t.Fatalf("nobody was asked: %v", err)
	}
	w.want()
	tk, err := h.db.Ticket(t.Context(), "t", e.Ticket)
	if err != nil || !tk.Risk.Irreversible || !strings.Contains(fmt.Sprint(tk.Risk.Reasons), "undo of create (delete_all): deletes everything") {
		t.Errorf("%v; the ticket says %q", err, tk.Risk.Reasons)
	}
	h.decide(e.Ticket, false)
	req.Ticket = e.Ticket
	if _, err := h.front.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Rejected {
		t.Errorf("after the rejection: %v", err)
	}
	w.want()
}

// The arguments of a compensation come from what an upstream answered: only a
// value that the saga made, in the declared form, is taken on its word.
func TestTO38_ArgumentsFromAResult(t *testing.T) {
	const ref = `{$ref: steps.create.structuredContent.id, pattern: "rec-[0-9]+", max_length: 12}`
	for _, tt := range []struct {
		name, tool, ref, id string
		asked               bool
	}{
		{"an id as declared", "do", ref, "rec-17", false},
		{"everything", "do", ref, "*", true},
		{"half of it fits", "do", ref, "rec-17 OR 1=1", true},
		{"too long", "do", ref, "rec-1234567890", true},
		{"nothing is declared", "do", `{$ref: steps.create.structuredContent.id}`, "rec-17", true},
		{"only a type", "do", `{$ref: steps.create.structuredContent.id, type: string}`, "all", true},
		{"not made, only read", "read", ref, "rec-17", true},
		{"from its own result", "do", `{$ref: result.structuredContent.id, pattern: "rec-[0-9]+"}`, "rec-17", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.risk["read"] = sallyport.Risk{Level: sallyport.Low}
			answer := func(int, sallyport.Job) (sallyport.Output, error) {
				id, _ := json.Marshal(tt.id)
				return sallyport.Output{Content: json.RawMessage(`{"content":[],"structuredContent":{"id":` + string(id) + `}}`)}, nil
			}
			w.plan["do create"], w.plan["read create"], w.plan["do fail"] = answer, answer, fails
			h := w.live(0, false)
			defer h.end()
			id := h.start(fmt.Sprintf(`
name: templated
steps:
- {id: create, tool: %s, arguments: {what: create}, compensate: {tool: undo, arguments: {what: %s}}}
- {id: fail, tool: do, arguments: {what: fail}}
`, tt.tool, tt.ref))
			if !tt.asked {
				h.until(id, sallyport.SagaCompensated)
				w.want("undo " + tt.id)
				return
			}
			s := h.until(id, sallyport.SagaAwaiting)
			w.want()
			tk, err := h.db.Ticket(t.Context(), "t", h.waitsFor(s))
			if err != nil || tk.Binding.Tool != "undo" || !strings.Contains(string(tk.Binding.Args), strings.Trim(tt.id, "*")) || tk.Binding.Plan != s.Digest {
				t.Errorf("%v %+v", err, tk.Binding)
			}
			h.decide(tk.ID, false)
			s = h.until(id, sallyport.SagaUndoFailed)
			w.want()
			if !strings.Contains(s.Reason, "rejected") {
				t.Errorf("%s", s.Reason)
			}
		})
	}
}

// A value that is not a plain one is never taken from a result.
func TestTO38_ObjectsFromAResult(t *testing.T) {
	w := newWorld(t)
	w.plan["do create"] = func(int, sallyport.Job) (sallyport.Output, error) {
		return sallyport.Output{Content: json.RawMessage(`{"content":[],"structuredContent":{"id":{"$gt":""}}}`)}, nil
	}
	h := w.live(0, false)
	defer h.end()
	id := h.start(`
name: objects
steps:
- {id: create, tool: do, arguments: {what: create}, compensate: none}
- {id: use, tool: do, arguments: {what: {$ref: steps.create.structuredContent.id}}, compensate: none}
`)
	s := h.until(id, sallyport.SagaCompensated)
	w.want()
	if !strings.Contains(s.Failure, "only plain values") {
		t.Errorf("%s", s.Failure)
	}
}

// A step that acts on a value from a result is covered by the plan's approval
// only where the plan declared what may come.
func TestTO38_ForwardFromAResult(t *testing.T) {
	for ref, covered := range map[string]bool{
		`{$ref: steps.create.structuredContent.id, pattern: "rec-[0-9]+"}`: true,
		`{$ref: steps.create.structuredContent.id}`:                        false,
	} {
		w := newWorld(t)
		w.risk["delete_all"] = sallyport.Risk{Level: sallyport.Critical, Irreversible: true}
		w.plan["do create"] = func(int, sallyport.Job) (sallyport.Output, error) {
			return sallyport.Output{Content: json.RawMessage(`{"content":[],"structuredContent":{"id":"rec-1"}}`)}, nil
		}
		h := w.live(0, false)
		req := h.request(fmt.Sprintf(`
name: forward
steps:
- {id: create, tool: do, arguments: {what: create}, compensate: none}
- {id: drop, tool: delete_all, arguments: {what: %s}, compensate: none}
`, ref))
		_, err := h.front.Call(t.Context(), req)
		e, ours := errors.AsType[*sallyport.Error](err)
		if !ours || e.Code != sallyport.Pending {
			t.Fatalf("%v", err)
		}
		h.decide(e.Ticket, true)
		req.Ticket = e.Ticket
		res, err := h.front.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		id := idIn(t, res)
		if covered {
			h.until(id, sallyport.SagaSucceeded)
			w.want("delete_all rec-1")
		} else {
			h.until(id, sallyport.SagaAwaiting)
			w.want()
		}
		h.end()
	}
}

// Who may not see a tool learns nothing of it from a plan.
func TestUnknownToolInAPlan(t *testing.T) {
	w := newWorld(t)
	h := w.live(0, false)
	defer h.end()
	for _, tool := range []string{"nothing", plan.ToolRun} {
		_, err := h.front.Call(t.Context(), h.request("name: p\nsteps:\n- {id: a, tool: "+tool+"}\n"))
		if code := sallyport.CodeOf(err); err == nil || code != sallyport.NotFound && code != sallyport.Invalid {
			t.Errorf("%s: %v", tool, err)
		}
	}
	w.want()
}

// An approved plan whose tools are not there yet, as after a start, is not
// refused for good: the approval waits for them.
func TestTO23_PlanBeforeItsToolsAreTold(t *testing.T) {
	w := newWorld(t)
	w.risk["do"] = sallyport.Risk{Level: sallyport.Critical, Reasons: []string{"cannot be told"}}
	h := w.live(0, false)
	t.Cleanup(h.end)
	req := h.request(planOf("a", "b"))
	_, err := h.front.Call(t.Context(), req)
	e, ours := errors.AsType[*sallyport.Error](err)
	if !ours || e.Code != sallyport.Pending {
		t.Fatalf("not asked: %v", err)
	}
	h.decide(e.Ticket, true)
	req.Ticket = e.Ticket
	hide := func(hidden bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hidden = hidden
	}
	hide(true)
	if _, err := h.front.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("without its tools: %v", err)
	}
	if tk, err := h.db.Ticket(t.Context(), "t", e.Ticket); err != nil || tk.State != sallyport.TicketApproved {
		t.Errorf("the ticket is %s, %v", tk.State, err)
	}
	hide(false)
	res, err := h.front.Call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	h.until(idIn(t, res), sallyport.SagaSucceeded)
	h.want("do a", "do b")
}
