package mcpserver

import (
	"net/http"

	"sallyport.dev/sallyport/mcpserver/batch"
	"sallyport.dev/sallyport/mcpserver/media"
	"sallyport.dev/sallyport/wire"
)

// several takes a batch: one message after the other, each as if it had come by
// itself from a client that reads no streams. done is false where the session's
// revision has no batches.
func (x *exchange) several(body []byte) (done bool) {
	if id, once := only(x.r.Header, wire.HeaderSessionID); !once || id == "" {
		return false
	}
	if !x.openLegacy() {
		return true
	}
	if x.session.version != wire.Version2025_03_26 {
		return false
	}
	parts, e := batch.Split(body)
	if e != nil {
		x.fail(http.StatusBadRequest, e)
		return true
	}
	var out []byte
	ids := map[string]bool{}
	for _, part := range parts {
		if answer := x.oneOf(part, ids, len(out) > batch.Enough); len(answer) > 0 {
			out = append(append(out, ','), answer...)
		}
	}
	if out == nil {
		x.w.WriteHeader(http.StatusAccepted)
		return true
	}
	out[0] = '['
	writeJSON(x.w, http.StatusOK, append(out, ']'))
	return true
}

// oneOf is the answer to one message of a batch. ids are those of the requests before
// it, none of which the client has an answer to.
func (x *exchange) oneOf(part []byte, ids map[string]bool, enough bool) []byte {
	w := &batch.Answer{}
	one := &exchange{s: x.s, w: w, r: x.r, profile: x.profile, credential: x.credential, accept: media.Accepted{JSON: true}, size: len(part)}
	msg, err := wire.ParseMessage(part)
	one.msg = msg
	id := wire.IDKey(msg.ID)
	switch {
	case err == nil && msg.IsRequest() && ids[id]:
		one.fail(http.StatusOK, invalidRequest("id %.80s is already in flight in this session: each request needs its own", msg.ID))
	case err == nil && msg.Method == "initialize":
		one.fail(http.StatusBadRequest, invalidRequest("initialize comes by itself, not in a batch"))
	case err == nil && msg.IsRequest() && enough:
		one.fail(http.StatusOK, &wire.Error{Code: codeTooLarge, Message: "the answers to this batch are too large already: nothing was done for this one, send it by itself"})
	default:
		one.take(err)
	}
	if err == nil && !msg.IsRequest() {
		return nil
	}
	ids[id] = true
	return w.Body
}
