package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// shaped is a world whose tool is shown as "say" with a fixed argument, beside the
// tools that search.
func shaped(t *testing.T) *world {
	w := newWorld(t)
	e := w.tools["echo"]
	e.Alias, e.Fixed = "say", json.RawMessage(`{"from":"desk"}`)
	w.tools["echo"], w.tools["say"] = e, e
	w.tools[ApprovalResult] = sallyport.Tool{Name: ApprovalResult, Status: sallyport.ToolActive}
	w.tools[sallyport.CallTools] = sallyport.Tool{Name: sallyport.CallTools, Status: sallyport.ToolActive}
	return w
}

func named(target, args string) sallyport.Request {
	r := call(args)
	r.Operation.Target = target
	return r
}

// The ticket, its hash, the intent and the backend have the whole call under the
// tool's own name, however it was called.
func TestTicketsBindFixedArguments(t *testing.T) {
	const whole = `{"from":"desk","to":"ann"}`
	var hash string
	for _, req := range []sallyport.Request{named("echo", `{"to":"ann"}`), named("say", `{"to":"ann"}`), named(sallyport.CallTools, `{"name":"say","arguments":{"to":"ann"}}`), named(sallyport.CallTools, `{"arguments":{"to":"ann"},"name":"echo"}`)} {
		for _, again := range []string{"key", "ticket", "approval_result"} {
			w := shaped(t)
			w.risk.Irreversible = true
			req := req
			req.Key = "k"
			id := pend(t, w, req)
			b := w.ledger.tickets[id].Binding
			if b.Tool != "echo" || string(b.Args) != whole {
				t.Fatalf("%s: the ticket binds %s %s", req.Operation.Target, b.Tool, b.Args)
			}
			if h := w.ledger.tickets[id].Hash; hash == "" {
				hash = h
			} else if h != hash {
				t.Errorf("%s: another hash", req.Operation.Target)
			}
			w.ledger.decide(id, sallyport.TicketApproved)
			switch again {
			case "ticket":
				req.Key, req.Ticket = "", id
			case "approval_result":
				req = named(ApprovalResult, `{"ticket":"`+id+`"}`)
			}
			if _, err := w.Call(t.Context(), req); err != nil || len(w.ran) != 1 || string(w.ran[0].Args) != whole || w.ran[0].Tool.Name != "echo" {
				t.Errorf("%s, then by %s: %v, ran %+v", req.Operation.Target, again, err, w.ran)
			}
			if r := w.last(t); r.Target != "echo" || string(r.Args) != whole {
				t.Errorf("on record: %s %s", r.Target, r.Args)
			}
		}
	}
}

// Another fixed value since is another call: nothing runs on the old approval.
func TestFixedArgumentsThatChange(t *testing.T) {
	for _, again := range []string{"ticket", "approval_result", "key"} {
		w := shaped(t)
		w.risk.Irreversible = true
		req := named("say", `{"to":"ann"}`)
		req.Key = "k"
		id := pend(t, w, req)
		w.ledger.decide(id, sallyport.TicketApproved)
		for _, name := range []string{"echo", "say"} {
			e := w.tools[name]
			e.Fixed = json.RawMessage(`{"from":"boss"}`)
			w.tools[name] = e
		}
		switch again {
		case "ticket":
			req.Key, req.Ticket = "", id
		case "approval_result":
			req = named(ApprovalResult, `{"ticket":"`+id+`"}`)
		}
		if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Conflict || len(w.ran) != 0 {
			t.Errorf("by %s: %v, ran %d", again, err, len(w.ran))
		}
	}
}

// A profile that gives another value while a call is on its way stops it.
func TestFixedArgumentsThatChangeOnTheWay(t *testing.T) {
	w := shaped(t)
	w.risk.Level = sallyport.High
	w.Ledger = changing{w.ledger, func() {
		e := w.tools["echo"]
		e.Fixed = json.RawMessage(`{"from":"boss"}`)
		w.tools["echo"] = e
		w.gen++
	}}
	if _, err := w.Call(t.Context(), named("say", `{"to":"ann"}`)); sallyport.CodeOf(err) != sallyport.Denied || len(w.ran) != 0 {
		t.Errorf("%v, ran %d", err, len(w.ran))
	}
}

// A key names one call, whether call_tool brought it or not.
func TestKeysOfInnerCalls(t *testing.T) {
	w := shaped(t)
	w.risk.Level = sallyport.High
	for _, req := range []sallyport.Request{named(sallyport.CallTools, `{"name":"say","arguments":{"to":"ann"}}`), named("echo", `{"to":"ann"}`), named("say", `{ "to" : "ann" }`)} {
		req.Key = "once"
		if res, err := w.Call(t.Context(), req); err != nil || len(w.ran) != 1 || res.Content == nil {
			t.Errorf("%s: %v, ran %d", req.Operation.Target, err, len(w.ran))
		}
	}
	req := named(sallyport.CallTools, `{"name":"say","arguments":{"to":"bob"}}`)
	req.Key = "once"
	if _, err := w.Call(t.Context(), req); sallyport.CodeOf(err) != sallyport.Conflict || len(w.ran) != 1 {
		t.Errorf("other arguments: %v", err)
	}
}

// A call of call_tool that cannot be read is refused, and says what to send.
func TestInnerCallsThatCannotBeRead(t *testing.T) {
	for args, code := range map[string]sallyport.Code{
		`{}`: sallyport.Invalid, `{"name":""}`: sallyport.Invalid, `{"name":["echo"]}`: sallyport.Invalid, `{"name":"echo","arguments":"x"}`: sallyport.Invalid, `[]`: sallyport.Invalid,
		`{"name":"echo","name":"say"}`: sallyport.Invalid, `{"Name":"echo"}`: sallyport.Invalid, `{"name":"echo","ARGUMENTS":{"to":"x"}}`: sallyport.Invalid,
		`{"name":"call_tool","arguments":{"name":"echo"}}`: sallyport.NotFound, `{"name":"approval_result","arguments":{"ticket":"x"}}`: sallyport.NotFound, `{"name":"nobody"}`: sallyport.NotFound,
	} {
		w := shaped(t)
		if _, err := w.Call(t.Context(), named(sallyport.CallTools, args)); sallyport.CodeOf(err) != code || len(w.ran) != 0 {
			t.Errorf("%s: %v", args, err)
		}
	}
	w := shaped(t)
	delete(w.tools, sallyport.CallTools) // the profile has none
	if _, err := w.Call(t.Context(), named(sallyport.CallTools, `{"name":"echo"}`)); sallyport.CodeOf(err) != sallyport.NotFound || len(w.ran) != 0 {
		t.Errorf("where there is no call_tool: %v", err)
	}
}

// What only reads cannot have acted, whatever its backend says.
func TestReadingsDoNotAct(t *testing.T) {
	w := newWorld(t)
	w.run = fails(&sallyport.Error{Code: sallyport.Upstream, Message: "server \"s\" ended", Hint: "the call may have taken effect; look before you call again"})
	_, err := w.Call(t.Context(), call(`{}`))
	if e, ok := errors.AsType[*sallyport.Error](err); !ok || strings.Contains(e.Hint, "effect") || e.Hint == "" {
		t.Errorf("%+v", err)
	}
	w.risk.Level = sallyport.High // the control
	_, err = w.Call(context.Background(), call(`{}`))
	if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.OutcomeUnknown {
		t.Errorf("%+v", err)
	}
}

// An opened ticket is found by who asks and for what, as a call is.
func TestOpenedTicketsAreFound(t *testing.T) {
	w := newWorld(t)
	w.risk.Irreversible = true
	pend(t, w, call(`{}`))
	if !slices.ContainsFunc(w.entries, func(e sallyport.Entry) bool { return e.Kind == sallyport.EntryTicket }) {
		t.Fatal("no ticket on record")
	}
	for _, e := range w.entries {
		if e.Kind == sallyport.EntryTicket && (!strings.Contains(string(e.Payload), `"principal":"ann"`) || !strings.Contains(string(e.Payload), `"target":"echo"`)) {
			t.Errorf("%s", e.Payload)
		}
	}
}
