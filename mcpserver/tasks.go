package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/gateway"
	"sallyport.dev/sallyport/mcpserver/refusal"
	"sallyport.dev/sallyport/mcpserver/task"
	"sallyport.dev/sallyport/wire"
)

// A call that waits for a human is a task (extension io.modelcontextprotocol/tasks,
// SEP-2663) for those clients that take tasks: they are not kept waiting, and
// come back with the task's id, to any gateway, as often as they like. The task
// is the ticket: nothing is stored beside it, and each use of an id is
// authenticated, and answered to the ticket's own agent only.

const tasksExtension = "io.modelcontextprotocol/tasks"

// takesTasks reports whether the client declared the extension on this request.
func (x *exchange) takesTasks() bool {
	return x.modern && wire.IsObject(wire.Path(x.meta, wire.MetaClientCapabilities, "extensions", tasksExtension))
}

// becomeTask answers a call with a task.
func (x *exchange) becomeTask(e *sallyport.Error) {
	t := task.Task{Ticket: e.Ticket, Made: time.Now().Truncate(time.Millisecond)}
	b := append(t.Append([]byte(`{"resultType":"task",`), "working", e.Message, t.Made), `,"_meta":{"`+wire.MetaCallID+`":`...)
	b = append(wire.AppendString(b, e.CallID), `,"`+wire.MetaServerInfo+`":`...)
	b = append(append(b, x.s.info...), "}}"...)
	x.reply.finish(http.StatusOK, wire.AppendResult(nil, x.msg.ID, b), true)
}

// waits returns the refusal that says that a call waits for a human.
func waits(err error) (*sallyport.Error, bool) {
	e, ok := errors.AsType[*sallyport.Error](err)
	return e, ok && e.Code == sallyport.Pending && e.Ticket != ""
}

// ownTask reads the task that a request is about.
func (x *exchange) ownTask() (t task.Task, ok bool) {
	if !x.takesTasks() {
		x.fail(http.StatusBadRequest, &wire.Error{
			Code: wire.CodeMissingCapability, Message: "missing client capability: declare the extension " + tasksExtension,
			Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
		})
		return t, false
	}
	id, _ := wire.String(wire.Member(x.msg.Params, "taskId"))
	if t, ok = task.Read(id); !ok {
		x.fail(http.StatusOK, badParams("unknown task %q", clip(id)))
	}
	return t, ok
}

// getTask tells how a task is. Once the call is approved, asking runs it: to its
// end, even if the client goes away meanwhile and asks again.
func (x *exchange) getTask() {
	t, ok := x.ownTask()
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.r.Context()))
	defer cancel()
	x.reply = newReply(x, hears{level: -1}, func() {})
	res, err := x.s.gateway.Call(ctx, sallyport.Request{
		Credential: x.credential, Profile: x.profile, Door: "mcp", Size: x.size, Notify: x.reply.notify,
		Operation: sallyport.Operation{Kind: sallyport.CallTool, Target: gateway.ApprovalResult, Args: []byte(`{"ticket":` + string(wire.Quote(t.Ticket)) + `}`)},
	})
	x.reply.settle()
	status, message, content := "completed", "", []byte(res.Content)
	if err != nil {
		e := x.safe(err)
		switch {
		case e.Code == sallyport.Pending || e.Code == sallyport.InFlight:
			status, message = "working", e.Message
		case !late(e):
			x.refuseAs(e)
			return
		}
		content, res.CallID = refusal.Result(e), e.CallID
	}
	out := t.Append([]byte(`{"resultType":"complete",`), status, message, time.Now())
	if status == "completed" {
		meta := wire.Member(content, "_meta")
		if content, err = x.marks().Meta(content, meta, res.CallID); err != nil {
			x.refuse(&sallyport.Error{Code: sallyport.Internal, Step: sallyport.Respond, CallID: res.CallID, Err: err})
			return
		}
		out = append(append(out, `,"result":`...), content...)
	}
	out = append(append(out, `,"_meta":{"`+wire.MetaServerInfo+`":`...), x.s.info...)
	x.reply.finish(http.StatusOK, wire.AppendResult(nil, x.msg.ID, append(out, "}}"...)), true)
}

// cancelTask takes the question back, if nobody has answered it yet.
func (x *exchange) cancelTask() {
	t, ok := x.ownTask()
	if !ok {
		return
	}
	err := x.s.gateway.Withdraw(x.r.Context(), sallyport.Request{Credential: x.credential, Profile: x.profile, Door: "mcp", Ticket: t.Ticket})
	if err != nil {
		x.refuse(err)
		return
	}
	x.result([]byte(`{"resultType":"complete"}`))
}

// updateTask: a task here waits for an approver, and never for its client.
func (x *exchange) updateTask() {
	if _, ok := x.ownTask(); !ok {
		return
	}
	if _, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile); err != nil {
		x.refuse(err)
		return
	}
	x.fail(http.StatusOK, badParams("the task asks its client nothing: read it with tasks/get"))
}
