package mcpserver

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// openLegacy finds the session of a request of the earlier revisions, or
// answers and reports false. initialize has none yet.
func (x *exchange) openLegacy() bool {
	if !x.accept.JSON && !x.accept.Stream && len(x.r.Header["Accept"]) > 0 {
		x.fail(http.StatusNotAcceptable, invalidRequest("accept must list application/json and text/event-stream"))
		return false
	}
	if x.msg.Method == "initialize" && x.msg.IsRequest() {
		return true
	}
	return x.findSession()
}

// findSession finds it for a request with any method of HTTP.
func (x *exchange) findSession() bool {
	version, once := only(x.r.Header, wire.HeaderProtocolVersion)
	if !once || version != "" && !slices.Contains(supported[1:], version) {
		x.fail(http.StatusBadRequest, unsupportedVersion(version))
		return false
	}
	id, once := only(x.r.Header, wire.HeaderSessionID)
	if !once || id == "" {
		x.fail(http.StatusBadRequest, invalidRequest("Mcp-Session-Id is missing: call initialize first, or send a stateless request (protocol version 2026-07-28, with params._meta)"))
		return false
	}
	who, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile)
	if err != nil {
		x.refuse(err)
		return false
	}
	if x.session = x.s.sessions.find(id, ownerOf(who), time.Now()); x.session == nil {
		// Without an id: for clients the status alone means "initialize again".
		writeError(x.w, http.StatusNotFound, nil, invalidRequest("there is no such session, or no longer: call initialize again"))
		return false
	}
	return true
}

func (x *exchange) initialize() {
	asked, ok := wire.String(wire.Member(x.msg.Params, "protocolVersion"))
	if !ok {
		x.fail(http.StatusOK, badParams("params.protocolVersion must be a string"))
		return
	}
	who, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile)
	if err != nil {
		x.refuse(err)
		return
	}
	version := asked
	if !slices.Contains(supported[1:], asked) {
		version = supported[1] // the newest that has initialize; the client decides
	}
	id, err := x.s.sessions.open(ownerOf(who), version, ask.Abilities(wire.Member(x.msg.Params, "capabilities")), time.Now())
	if err != nil {
		x.refuse(err)
		return
	}
	b := wire.AppendString([]byte(`{"protocolVersion":`), version)
	b = append(append(b, `,"capabilities":`...), x.s.caps...)
	b = append(append(b, `,"serverInfo":`...), x.s.info...)
	if x.s.opts.Instructions != "" {
		b = wire.AppendString(append(b, `,"instructions":`...), x.s.opts.Instructions)
	}
	if reaches := x.s.reaches(); reaches != "" {
		b = append(b, `,"_meta":{`+reaches+"}"...)
	}
	x.w.Header()[wire.HeaderSessionID] = []string{id}
	x.result(append(b, '}'))
}

// endSession serves DELETE.
func (x *exchange) endSession() {
	if !x.authorize() || !x.findSession() {
		return
	}
	x.s.sessions.remove(x.session)
	x.w.WriteHeader(http.StatusNoContent)
}

// ownerOf names the principal that a session is bound to.
func ownerOf(who sallyport.Principal) owner {
	return owner{tenant: who.Tenant, id: who.ID, onBehalfOf: who.OnBehalfOf}
}

var errNoRoom = &sallyport.Error{
	Code: sallyport.Unavailable, Step: sallyport.Receive,
	Message: "too many sessions are open", Hint: "try again later, or use protocol version 2026-07-28, which has no sessions",
	RetryAfter: time.Minute, Err: errors.New("session table is full"),
}
