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
	"sallyport.dev/sallyport/mcpserver/reply"
	"sallyport.dev/sallyport/mcpserver/task"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// A call that waits for a human, or takes long, is a task (extension
// io.modelcontextprotocol/tasks, SEP-2663) for those clients that take tasks: they are not
// kept waiting, and come back with the task's id, to any gateway, as often as they like.
// Nothing is stored for it: the task is the ticket, or the call under whose key the
// outcome is kept anyway. Each use of an id is authenticated, and answered to the same
// agent only.

const tasksExtension = "io.modelcontextprotocol/tasks"

// takesTasks reports whether the client declared the extension on this request.
func (x *exchange) takesTasks() bool {
	return x.modern && wire.IsObject(wire.Path(x.meta, wire.MetaClientCapabilities, "extensions", tasksExtension))
}

// becomeTask answers a call with a task.
func (x *exchange) becomeTask(of, callID, message string) {
	t := task.Task{Of: of, Made: time.Now().Truncate(time.Millisecond), Code: x.s.opts.TaskCode}
	b := append(t.Append([]byte(`{"resultType":"task",`), task.State{Status: task.Working, Message: message}), `,"_meta":{"`+wire.MetaCallID+`":`...)
	b = append(wire.AppendString(b, callID), `,"`+wire.MetaServerInfo+`":`...)
	b = append(append(b, x.s.info...), "}}"...)
	x.finish(http.StatusOK, wire.AppendResult(nil, x.msg.ID, b), true)
}

// waits returns the refusal that says that a call waits for a human.
func waits(err error) (*sallyport.Error, bool) {
	e, ok := errors.AsType[*sallyport.Error](err)
	return e, ok && e.Code == sallyport.Pending && e.Ticket != ""
}

// needsTasks reports whether the client takes tasks, and refuses where it does not.
func (x *exchange) needsTasks() bool {
	if x.takesTasks() {
		return true
	}
	x.fail(http.StatusBadRequest, &wire.Error{
		Code: wire.CodeMissingCapability, Message: "missing client capability: declare the extension " + tasksExtension,
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	})
	return false
}

// ownTask reads the task that a request is about.
func (x *exchange) ownTask() (t task.Task, ok bool) {
	if !x.needsTasks() {
		return t, false
	}
	id, _ := wire.String(wire.Member(x.msg.Params, "taskId"))
	if t, ok = task.Read(id, x.s.opts.TaskCode); !ok {
		x.fail(http.StatusOK, badParams("unknown task %q", clip(id)))
	}
	return t, ok
}

// visit asks for a task, or has something done to it.
func (x *exchange) visit(ctx context.Context, t task.Task, v sallyport.Visit) (sallyport.Result, error) {
	req := sallyport.Request{Credential: x.credential, Profile: x.profile, Door: "mcp", Size: x.size}
	if !t.IsTicket() {
		if v.Task = t.Of; x.s.opts.Later == nil {
			return sallyport.Result{}, &sallyport.Error{Code: sallyport.NotFound, Step: sallyport.Resolve, Message: "unknown task"}
		}
		return x.s.opts.Later.Later(ctx, req, v)
	}
	req.Operation = sallyport.Operation{Kind: sallyport.CallTool, Target: gateway.ApprovalResult, Args: []byte(`{"ticket":` + string(wire.Quote(t.Of)) + `}`)}
	if req.Tasks = true; x.s.opts.Held != nil {
		return x.s.opts.Held.Begin(ctx, req, x.s.gateway.Call)
	}
	return x.s.gateway.Call(ctx, req)
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
	x.reply = x.newReply(reply.Hears{Level: -1}, func() {})
	res, err := x.visit(ctx, t, sallyport.Visit{})
	x.reply.Settle()
	status, message, content := task.Completed, "", []byte(res.Content)
	switch {
	case err != nil:
		e := x.safe(err)
		if status, message = task.StatusOf(e); status == task.Completed && !late(e) {
			x.refuseAs(e)
			return
		}
		content, res.CallID = refusal.Result(e), e.CallID
	case res.Task != "":
		status, message = task.Working, "the call is running"
	case len(res.Questions) > 0:
		status, message = task.Asks, "the call's server asks for something: answer with tasks/update"
	}
	state := task.State{Status: status, Message: message, Kept: x.s.opts.TasksKept}
	if status == task.Completed || status == task.Cancelled {
		state.Ended = res.At
	}
	out := t.Append([]byte(`{"resultType":"complete",`), state)
	switch status {
	case task.Completed:
		if content, err = x.marks().Meta(content, wire.Member(content, "_meta"), res.CallID); err != nil {
			x.refuse(&sallyport.Error{Code: sallyport.Internal, Step: sallyport.Respond, CallID: res.CallID, Err: err})
			return
		}
		out = append(append(out, `,"result":`...), content...)
	case task.Asks:
		out = ask.AppendRequests(append(out, `,"inputRequests":`...), res.Questions)
	}
	out = append(append(out, `,"_meta":{"`+wire.MetaServerInfo+`":`...), x.s.info...)
	x.finish(http.StatusOK, wire.AppendResult(nil, x.msg.ID, append(out, "}}"...)), true)
}

// cancelTask takes the question back, if nobody has answered it yet, or ends the call.
func (x *exchange) cancelTask() {
	t, ok := x.ownTask()
	if !ok {
		return
	}
	var err error
	if t.IsTicket() {
		err = x.s.gateway.Withdraw(x.r.Context(), sallyport.Request{Credential: x.credential, Profile: x.profile, Door: "mcp", Ticket: t.Of})
	} else {
		_, err = x.visit(x.r.Context(), t, sallyport.Visit{Cancel: true})
	}
	x.acknowledge(err)
}

// acknowledge answers what needs no more than that it came. How the call is, is no
// error of it, but that it may not go on is.
func (x *exchange) acknowledge(err error) {
	if err != nil {
		if e := x.safe(err); !late(e) || e.Code == sallyport.Denied {
			x.refuseAs(e)
			return
		}
	}
	x.result([]byte(`{"resultType":"complete"}`))
}

// updateTask brings answers. A task that waits for an approver asks its client nothing.
func (x *exchange) updateTask() {
	t, ok := x.ownTask()
	if !ok {
		return
	}
	if t.IsTicket() {
		if _, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile); err != nil {
			x.refuse(err)
			return
		}
		x.fail(http.StatusOK, badParams("the task asks its client nothing: read it with tasks/get"))
		return
	}
	answers, err := ask.Responses(wire.Member(x.msg.Params, "inputResponses"))
	if err != nil {
		x.fail(http.StatusOK, badParams("%v", err))
		return
	}
	_, err = x.visit(x.r.Context(), t, sallyport.Visit{Answers: answers})
	x.acknowledge(err)
}
