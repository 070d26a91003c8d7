package mcpserver

import (
	"encoding/json"
	"net/http"

	"sallyport.dev/sallyport/wire"
)

// isModern tells the two eras apart: a request that carries its protocol
// version in _meta is of the stateless one, and so is one whose header says so
// and that only forgot to. initialize without it always opens a session.
func (x *exchange) isModern() bool {
	if wire.Member(x.meta, wire.MetaProtocolVersion) != nil {
		return true
	}
	v, _ := only(x.r.Header, wire.HeaderProtocolVersion)
	return wire.Modern(v) && x.msg.Method != "initialize"
}

// checkModern verifies the metadata of a stateless request, and that the
// headers say what the body says: a proxy may have decided by them.
func (x *exchange) checkModern() bool {
	if !x.accept.JSON || !x.accept.Stream {
		x.fail(http.StatusNotAcceptable, invalidRequest("accept must list application/json and text/event-stream"))
		return false
	}
	if e := x.modernFault(); e != nil {
		x.fail(http.StatusBadRequest, e)
		return false
	}
	return true
}

func (x *exchange) modernFault() *wire.Error {
	if x.msg.IsNotification() && x.meta == nil {
		return nil // the revision defines no metadata for notifications
	}
	if !wire.IsObject(x.meta) {
		return badParams("params._meta must be an object with %s and %s", wire.MetaProtocolVersion, wire.MetaClientCapabilities)
	}
	version, ok := wire.String(wire.Member(x.meta, wire.MetaProtocolVersion))
	if !ok {
		return badParams("params._meta needs the string %s", wire.MetaProtocolVersion)
	}
	if e := x.checkHeader(wire.HeaderProtocolVersion, version, "params._meta"); e != nil {
		return e
	}
	if !wire.Modern(version) {
		return unsupportedVersion(version)
	}
	if !wire.IsObject(wire.Member(x.meta, wire.MetaClientCapabilities)) {
		return badParams("params._meta needs the object %s", wire.MetaClientCapabilities)
	}
	if x.msg.IsNotification() {
		return nil
	}
	if e := x.checkHeader(wire.HeaderMethod, x.msg.Method, "method"); e != nil {
		return e
	}
	var of, what string
	switch x.msg.Method {
	case "tools/call":
		of, what = "name", "the tool to call"
	case "prompts/get":
		of, what = "name", "the prompt to get"
	case "resources/read":
		of, what = "uri", "the resource to read"
	case "tasks/get", "tasks/cancel", "tasks/update":
		of, what = "taskId", "the task"
	default:
		return nil
	}
	name, ok := wire.String(wire.Member(x.msg.Params, of))
	if !ok {
		return badParams("params.%s must be a string: %s", of, what)
	}
	return x.checkHeader(wire.HeaderName, name, "params."+of)
}

// checkHeader verifies that a header is there once and says want, which the
// body has at where.
func (x *exchange) checkHeader(header, want, where string) *wire.Error {
	v, once := only(x.r.Header, header)
	switch {
	case !once:
		return mismatch("%s was sent more than once", header)
	case v == "":
		return mismatch("%s is missing; it must equal %s in the body", header, where)
	}
	if header == wire.HeaderName {
		plain, err := wire.DecodeHeader(v)
		if err != nil {
			return mismatch("%s %v", header, err)
		}
		v = plain
	}
	if v != want {
		return mismatch("%s is %q, but %s in the body is %q", header, clip(v), where, clip(want))
	}
	return nil
}

func (x *exchange) discover() {
	if _, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile); err != nil {
		x.refuse(err)
		return
	}
	b := append([]byte(`{"resultType":"complete","supportedVersions":`+supportedJSON+`,"capabilities":`), x.s.caps[:len(x.s.caps)-1]+`,"extensions":{"`+tasksExtension+`":{}}}`...)
	if x.s.opts.Instructions != "" {
		b = wire.AppendString(append(b, `,"instructions":`...), x.s.opts.Instructions)
	}
	tail := x.s.listTail()
	if reaches := x.s.reaches(); reaches != "" {
		tail = tail[:len(tail)-1] + "," + reaches + "}"
	}
	x.result(append(append(b, tail...), '}'))
}

// reaches is a member of _meta by which gateways find loops, "" if there is none.
func (s *Server) reaches() string {
	if s.opts.Reaches == nil {
		return ""
	}
	b, _ := json.Marshal(s.opts.Reaches()) // a list of strings
	return `"` + wire.MetaReaches + `":` + string(b)
}

// listTail ends every result that a client may keep. Keeping it between
// callers is never allowed: each may see another list.
func (s *Server) listTail() string {
	return `,"ttlMs":` + itoa(s.opts.ListTTL.Milliseconds()) + `,"cacheScope":"private","_meta":{"` +
		wire.MetaServerInfo + `":` + string(s.info) + `}`
}
