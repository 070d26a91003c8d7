package mcpserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/mcpserver/media"
	"sallyport.dev/sallyport/mcpserver/reading"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/wire"
)

// filter reads what a client wants to hear of; ok is false for more than one stream can
// tell of.
func (x *exchange) filter() (w stream.Wants, uris []string, ok bool) {
	f := wire.Member(x.msg.Params, "notifications")
	on := func(name string) bool { return string(wire.Member(f, name)) == "true" }
	w = stream.Wants{Tools: on("toolsListChanged"), Prompts: on("promptsListChanged"), Resources: on("resourcesListChanged")}
	for v := range wire.Elements(wire.Member(f, "resourceSubscriptions")) {
		if uri, ok := wire.String(v); ok && !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
		if len(uris) > stream.MaxFollows {
			return w, nil, false
		}
	}
	return w, uris, true
}

// listen serves subscriptions/listen: a stream of what changes, until the client
// hangs up, its right ends or the gateway stops.
func (x *exchange) listen() {
	if !wire.IsObject(wire.Member(x.msg.Params, "notifications")) {
		x.fail(http.StatusOK, badParams("params.notifications must be an object: what to hear of"))
		return
	}
	if wire.Path(x.msg.Params, "notifications", "taskIds") != nil && !x.needsTasks() { // none is told of: they are asked for
		return
	}
	wants, uris, ok := x.filter()
	if !ok {
		x.fail(http.StatusOK, badParams("params.notifications.resourceSubscriptions names more than %d resources: listen on several streams", stream.MaxFollows))
		return
	}
	box, end := &stream.Box{}, stream.NewSignal()
	tag := json.RawMessage(`{"` + wire.MetaSubscription + `":` + string(x.msg.ID) + `}`)
	tell := func(method string, params json.RawMessage) {
		if params == nil {
			params = json.RawMessage("{}")
		}
		if tagged, err := wire.SetMember(params, "_meta", tag); err == nil { // an object of ours
			box.Put(wire.AppendNotification(nil, method, tagged))
		}
	}
	ear, err := x.s.opts.Hub.Listen(x.r.Context(), stream.Caller{Credential: x.credential, Profile: x.profile}, wants, tell, end.Fire)
	if err != nil {
		x.refuse(err)
		return
	}
	defer ear.Close()
	box.Lead(wire.AppendNotification(nil, "notifications/subscriptions/acknowledged", x.honoured(ear, wants, uris, tag)))
	stream.Outlet{
		Box: box, Stop: end.C, KeepAlive: x.s.opts.KeepAlive, WriteTimeout: x.s.opts.WriteTimeout, Alive: x.stillGood,
		End: wire.AppendResult(nil, x.msg.ID, append(append([]byte(`{"resultType":"complete","_meta":`), tag...), '}')),
	}.Serve(x.w, x.r)
}

// honoured follows the resources that the caller may read, and tells what of the
// filter it will hear.
func (x *exchange) honoured(ear *stream.Ear, w stream.Wants, uris []string, tag json.RawMessage) json.RawMessage {
	b := append(append([]byte(`{"_meta":`), tag...), `,"notifications":{`...)
	for _, f := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", w.Tools}, {"promptsListChanged", w.Prompts}, {"resourcesListChanged", w.Resources}} {
		if f.on {
			b = append(append(append(b, '"'), f.name...), `":true,`...)
		}
	}
	b = append(b, `"resourceSubscriptions":[`...)
	comma := ""
	for _, uri := range uris {
		if x.follow(ear, uri) == nil {
			b, comma = wire.AppendString(append(b, comma...), uri), ","
		}
	}
	return append(b, "]}}"...)
}

// follow runs the operation that lets the caller hear of a resource.
func (x *exchange) follow(ear *stream.Ear, uri string) error {
	who, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile)
	if err != nil {
		return err
	}
	_, err = x.s.gateway.Call(x.r.Context(), sallyport.Request{
		Credential: x.credential, Profile: x.profile, Door: "mcp", Size: x.size, Operation: sallyport.Operation{Kind: sallyport.Subscribe, Target: uri},
	})
	if err != nil {
		return err
	}
	if t, ok := x.s.opts.Hub.Sees(who, x.profile, uri); ok && ear.Follow(t) {
		return nil
	}
	return stream.ErrTooMany
}

// stillGood reports whether the caller's right to listen goes on.
func (x *exchange) stillGood() bool {
	_, err := x.s.gateway.Identify(x.r.Context(), x.credential, x.profile)
	return err == nil
}

// ear is the session's, made when it is first needed.
func (x *exchange) ear() (*stream.Ear, error) {
	s := x.session
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if s.ear != nil {
		return s.ear, nil
	}
	tell := func(method string, params json.RawMessage) { s.box.Put(wire.AppendNotification(nil, method, params)) }
	all := stream.Wants{Tools: true, Prompts: true, Resources: true}
	e, err := x.s.opts.Hub.Listen(x.r.Context(), stream.Caller{Credential: x.credential, Profile: x.profile}, all, tell, s.hangUp)
	if err != nil {
		return nil, err
	}
	if s.ended.Fired() { // meanwhile
		e.Close()
		return nil, errNoRoom
	}
	s.ear = e
	return e, nil
}

// hear serves GET: the stream of a session. A newer one takes the place of an
// older; a client that lost it comes back with the id of the last event.
func (x *exchange) hear() {
	if v, _ := only(x.r.Header, wire.HeaderProtocolVersion); x.s.opts.Hub == nil || wire.Modern(v) {
		x.w.Header().Set("Allow", "POST, DELETE")
		writeError(x.w, http.StatusMethodNotAllowed, nil, invalidRequest("use POST; there is no stream to GET"))
		return
	}
	if !x.authorize() {
		return
	}
	if x.accept = media.ParseAccept(x.r.Header["Accept"]); !x.accept.Stream {
		x.fail(http.StatusNotAcceptable, invalidRequest("accept must list text/event-stream"))
		return
	}
	if !x.findSession() {
		return
	}
	s := x.session
	after := s.box.End()
	if id, once := only(x.r.Header, wire.HeaderLastEventID); !once || id != "" {
		if tail, after, ours := s.tails.Find(id); ours {
			x.resume(tail, after)
			return
		}
		var ok bool
		if after, ok = s.box.ParseID(id); !ok {
			x.fail(http.StatusBadRequest, invalidRequest("Last-Event-ID is not one of this session's stream"))
			return
		}
	}
	if _, err := x.s.gateway.List(x.r.Context(), x.credential, x.profile, "", x.size); err != nil {
		x.refuse(err)
		return
	}
	e, err := x.ear()
	if err != nil {
		x.refuse(err)
		return
	}
	stop := s.takeStream()
	e.Renew(x.credential)
	stream.Outlet{
		Box: &s.box, After: after, IDs: true, Prime: s.version >= wire.Version2025_11_25, Stop: stop,
		KeepAlive: x.s.opts.KeepAlive, WriteTimeout: x.s.opts.WriteTimeout,
		Alive: func() bool { x.s.sessions.touch(s, time.Now()); return x.stillGood() },
	}.Serve(x.w, x.r)
}

// resume goes on with the stream of a call, which a client lost.
func (x *exchange) resume(tail *stream.Tail, after uint64) {
	if tail == nil {
		x.fail(http.StatusBadRequest, invalidRequest("Last-Event-ID is of a call whose stream is not kept, or no longer: call again, with the same idempotency key if it had one"))
		return
	}
	s := x.session
	tail.Serve(x.w, x.r, after, stream.Outlet{
		Stop: s.ended.C, KeepAlive: x.s.opts.KeepAlive, WriteTimeout: x.s.opts.WriteTimeout,
		Alive: func() bool { x.s.sessions.touch(s, time.Now()); return x.stillGood() },
	})
}

// takeStream ends the session's stream that is open, and returns what ends the
// next one.
func (s *session) takeStream() <-chan struct{} {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if s.stream != nil {
		s.stream.Fire()
	}
	s.stream = stream.NewSignal()
	if s.ended.Fired() {
		s.stream.Fire()
	}
	return s.stream.C
}

// hangUp ends the session's stream, which a client with a new token opens again.
func (s *session) hangUp() {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if s.stream != nil {
		s.stream.Fire()
	}
}

// silence ends the session's stream, and what it hears.
func (s *session) silence() {
	s.ended.Fire()
	s.tails.Close()
	s.hangUp()
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if s.ear != nil {
		s.ear.Close()
	}
}

func (x *exchange) subscribe() {
	op, err := reading.Operation(sallyport.ReadResource, x.msg.Params)
	if err != nil {
		x.fail(http.StatusOK, badParams("%v", err))
		return
	}
	e, err := x.ear()
	if err == nil {
		err = x.follow(e, op.Target)
	}
	if err != nil {
		x.refuseReading(sallyport.ReadResource, err)
		return
	}
	x.result([]byte("{}"))
}

func (x *exchange) unsubscribe() {
	uri, _ := wire.String(wire.Member(x.msg.Params, "uri"))
	x.session.hearing.Lock()
	e := x.session.ear
	x.session.hearing.Unlock()
	if e != nil {
		e.Unfollow(uri)
	}
	x.result([]byte("{}"))
}
