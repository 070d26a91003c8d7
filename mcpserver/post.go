package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"sallyport.dev/sallyport/mcpserver/batch"
	"sallyport.dev/sallyport/mcpserver/media"
	"sallyport.dev/sallyport/mcpserver/meta"
	"sallyport.dev/sallyport/mcpserver/reply"
	"sallyport.dev/sallyport/wire"
)

// An exchange is one HTTP request to the endpoint and its answer.
type exchange struct {
	s          *Server
	w          http.ResponseWriter
	r          *http.Request
	profile    string
	credential string
	accept     media.Accepted
	size       int // bytes of the body
	msg        wire.Message
	meta       json.RawMessage // params._meta, or nil
	modern     bool
	session    *session     // of the earlier revisions
	reply      *reply.Reply // once a call runs
	over       func()       // ends what began with callContext, nil if nothing did
}

// post takes one message in. Everything up to reading the body is cheap.
func (x *exchange) post() {
	if !x.authorize() || !x.checkMediaTypes() {
		return
	}
	body, ok := x.readBody()
	if !ok {
		return
	}
	msg, err := wire.ParseMessage(body)
	x.msg = msg
	if batch.Is(body) && x.several(body) {
		return
	}
	x.take(err)
}

// take takes x.msg in, or the error that it could not be read with.
func (x *exchange) take(err error) {
	msg := &x.msg
	if err != nil {
		e, ok := errors.AsType[*wire.Error](err)
		if !ok {
			e = invalidRequest("%v", err)
		}
		x.fail(http.StatusBadRequest, e)
		return
	}
	if msg.IsResponse() {
		x.respond()
		return
	}
	if len(msg.ID) > meta.Most { // it is kept, and comes back in each answer
		msg.ID = nil
		x.fail(http.StatusBadRequest, invalidRequest("the id is longer than %d bytes", meta.Most))
		return
	}
	x.meta = wire.Member(msg.Params, "_meta")
	if x.isModern() {
		x.modern = true
		if !x.checkModern() {
			return
		}
	} else if !x.openLegacy() {
		return
	}
	x.dispatch()
}

func (x *exchange) checkMediaTypes() bool {
	h := x.r.Header
	if enc := strings.Join(h["Content-Encoding"], ","); enc != "" && !strings.EqualFold(enc, "identity") {
		x.fail(http.StatusUnsupportedMediaType, invalidRequest("content-encoding %.40q is not supported: send the body as it is", enc))
		return false
	}
	if ct := h["Content-Type"]; len(ct) != 1 || !media.IsJSON(ct[0]) {
		x.fail(http.StatusUnsupportedMediaType, invalidRequest("content-type must be application/json, in UTF-8"))
		return false
	}
	x.accept = media.ParseAccept(h["Accept"])
	return true
}

// freeBody is how much a caller may send before its token is looked at. The
// gateway authenticates every call itself; this keeps strangers from filling
// the memory with bodies that will be refused.
const freeBody = 64 << 10

func (x *exchange) identified() bool {
	_, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile)
	if err != nil {
		x.w.Header().Set("Connection", "close")
		x.refuse(err)
	}
	return err == nil
}

// readBody reads the whole body, within the limit and the time for it.
func (x *exchange) readBody() ([]byte, bool) {
	limit := x.s.opts.MaxBody
	if x.r.ContentLength > limit {
		x.w.Header().Set("Connection", "close")
		x.fail(http.StatusRequestEntityTooLarge, tooLarge(limit))
		return nil, false
	}
	if (x.r.ContentLength < 0 || x.r.ContentLength > freeBody) && !x.identified() {
		return nil, false
	}
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(time.Now().Add(x.s.opts.BodyTimeout)) // best effort: not every transport has one
	src := http.MaxBytesReader(x.w, x.r.Body, limit)
	// What was announced is not reserved before it comes.
	var buf bytes.Buffer
	buf.Grow(int(min(max(x.r.ContentLength, 0), 16<<10)) + bytes.MinRead)
	_, err := buf.ReadFrom(src)
	_ = rc.SetReadDeadline(time.Time{})
	if _, big := errors.AsType[*http.MaxBytesError](err); big {
		x.fail(http.StatusRequestEntityTooLarge, tooLarge(limit))
		return nil, false
	}
	if err != nil {
		x.w.Header().Set("Connection", "close")
		x.fail(http.StatusBadRequest, invalidRequest("the body did not arrive whole"))
		return nil, false
	}
	x.size = buf.Len()
	return buf.Bytes(), true
}

func tooLarge(limit int64) *wire.Error {
	return &wire.Error{Code: codeTooLarge, Message: "invalid request: the body is larger than " + itoa(limit) + " bytes"}
}

// dispatch finds the method in the table and runs it. A panic below it becomes
// an internal error of this request alone.
func (x *exchange) dispatch() {
	defer func() {
		if v := recover(); v != nil {
			id := newLogID()
			x.s.panics.Add(1)
			x.s.opts.Log.Error("panic in a request", "id", id, "method", x.msg.Method, "panic", v, "stack", string(debug.Stack()))
			x.fail(http.StatusInternalServerError, internalError(id))
		}
		if x.reply != nil {
			x.reply.Close()
		}
	}()
	if x.msg.IsNotification() {
		x.notified()
		return
	}
	era := legacyEra
	if x.modern {
		era = modernEra
	}
	for i := range methods {
		if m := &methods[i]; m.name == x.msg.Method && m.eras&era != 0 && m.run != nil && (!m.streams || x.s.opts.Hub != nil) {
			m.run(x)
			return
		}
	}
	status := http.StatusOK
	if x.modern {
		status = http.StatusNotFound
	}
	x.fail(status, &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found: " + clip(x.msg.Method)})
}

// notified takes a notification: unknown ones are ignored, as JSON-RPC says.
func (x *exchange) notified() {
	if x.session == nil { // else openLegacy did it
		if _, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile); err != nil {
			x.refuse(err)
			return
		}
	}
	if x.session != nil && x.msg.Method == "notifications/cancelled" {
		x.session.cancelCall(wire.Member(x.msg.Params, "requestId"))
	}
	x.w.WriteHeader(http.StatusAccepted)
}

// callContext is the context that the request's work runs in. In the stateless
// revision the end of the connection is its cancellation; in the earlier ones
// it is not: only notifications/cancelled and the end of the session are.
// ok is false if the answer was given.
func (x *exchange) callContext() (ctx context.Context, done func(), ok bool) {
	if x.modern {
		ctx, x.over = context.WithCancel(x.r.Context())
		return ctx, x.over, true
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	if err := x.session.begin(x.msg.ID, cancel); err != nil {
		cancel(nil)
		x.fail(http.StatusOK, err)
		return nil, nil, false
	}
	x.over = sync.OnceFunc(func() { x.session.end(x.msg.ID); cancel(nil) })
	return ctx, x.over, true
}

// close comes before the last byte of an answer: whoever has read it may use the
// request's id again.
func (x *exchange) close() {
	if x.over != nil {
		x.over()
	}
}

// finish answers a call.
func (x *exchange) finish(status int, msg []byte, ok bool) {
	x.close()
	x.reply.Finish(status, msg, ok)
}

// newReply begins the answer to a call. done ends the call.
func (x *exchange) newReply(hears reply.Hears, done func()) *reply.Reply {
	o := &x.s.opts
	r := reply.Options{
		W: x.w, Hears: hears, JSON: x.accept.JSON, Stream: x.accept.Stream, Cancel: done,
		StreamAfter: o.StreamAfter, KeepAlive: o.KeepAlive, WriteTimeout: o.WriteTimeout,
	}
	if x.session != nil {
		r.Version, r.Tails = x.session.version, x.session.tails
	}
	return reply.New(r)
}

// fail answers with a JSON-RPC error.
func (x *exchange) fail(status int, e *wire.Error) {
	if x.reply != nil {
		x.finish(status, wire.AppendError(nil, x.msg.ID, e), false)
		return
	}
	x.close()
	writeError(x.w, status, x.msg.ID, e)
}

// result answers with a raw result.
func (x *exchange) result(raw json.RawMessage) {
	x.close()
	writeJSON(x.w, http.StatusOK, wire.AppendResult(make([]byte, 0, len(raw)+64), x.msg.ID, raw))
}

func writeError(w http.ResponseWriter, status int, id json.RawMessage, e *wire.Error) {
	writeJSON(w, status, wire.AppendError(nil, id, e))
}

var jsonContentType = []string{wire.TypeJSON}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonContentType
	h["Content-Length"] = []string{itoa(int64(len(body)))}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// only returns the one value of a header; ok is false if it was sent twice.
func only(h http.Header, name string) (value string, ok bool) {
	switch v := h[name]; len(v) {
	case 0:
		return "", true
	case 1:
		return v[0], true
	}
	return "", false
}

// clip bounds text that came from outside, for a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
