package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/limit/gcra"
	"sallyport.dev/sallyport/limit/share"
	"sallyport.dev/sallyport/mcpserver/asking"
	"sallyport.dev/sallyport/mcpserver/stream"
	"sallyport.dev/sallyport/wire"
)

// An owner is the principal that a session is bound to. The session id alone
// is no credential: every request has a token, and it must be the owner's.
type owner struct{ tenant, id, onBehalfOf string }

// A session of the earlier revisions. It holds nothing but its owner, the
// calls in flight, the level of log lines that the client wants and what its
// stream has to say.
type session struct {
	id       string
	owner    owner
	logLevel atomic.Int32
	version  string // of the protocol
	can      sallyport.Abilities
	asking   asking.Desk // what the client is asked
	used     time.Time   // guarded by the table's mu

	box     stream.Box    // what its stream has to say
	tails   *stream.Tails // what the streams of its calls said
	ended   *stream.Signal
	hearing sync.Mutex     // guards what follows
	ear     *stream.Ear    // nil until it is first needed
	stream  *stream.Signal // ends the stream that is open, nil if there was none

	mu    sync.Mutex
	calls map[string]context.CancelCauseFunc // by wire.IDKey; nil once the session has ended
	limit int
}

// begin notes a request as in flight.
func (s *session) begin(id json.RawMessage, cancel context.CancelCauseFunc) *wire.Error {
	key := wire.IDKey(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.calls == nil:
		return invalidRequest("the session has ended")
	case s.calls[key] != nil:
		return invalidRequest("id %.80s is already in flight in this session: each request needs its own", id)
	case len(s.calls) >= s.limit:
		return &wire.Error{Code: codeRateLimited, Message: "more than " + itoa(int64(s.limit)) + " requests of this session are in flight: wait for some to end"}
	}
	s.calls[key] = cancel
	return nil
}

func (s *session) end(id json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, wire.IDKey(id))
}

// cancelCall cancels the call with the given id, if it is in flight.
func (s *session) cancelCall(id json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[wire.IDKey(id)]; cancel != nil {
		cancel(&sallyport.Cancellation{By: "client"})
	}
}

func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) == 0
}

// cancelAll ends the session's calls, those in flight and those to come.
func (s *session) cancelAll(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.calls {
		cancel(&sallyport.Cancellation{By: by})
	}
	s.calls = nil
}

// A sessionTable holds the sessions, bounded in all and for each principal:
// one principal can displace none but its own.
type sessionTable struct {
	opts *Options

	mu      sync.Mutex
	byID    map[string]*session
	byOwner map[owner][]*session // the oldest first
	alarms  *gcra.Table          // by who uses others' sessions
	kept    *share.Pool          // of calls' streams, by all sessions
}

func newSessionTable(opts *Options) *sessionTable {
	return &sessionTable{opts: opts, byID: map[string]*session{}, byOwner: map[owner][]*session{}, kept: stream.NewKept(), alarms: gcra.NewTable(gcra.Rate{Every: time.Minute, Burst: 1}, 1024)}
}

// open makes a session. A principal that has its fill loses its oldest idle one.
func (t *sessionTable) open(who owner, version string, can sallyport.Abilities, now time.Time) (string, error) {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	s := &session{
		id: base64.RawURLEncoding.EncodeToString(raw[:]), owner: who, version: version, can: can, used: now, ended: stream.NewSignal(),
		calls: map[string]context.CancelCauseFunc{}, limit: t.opts.CallsPerSession, tails: stream.NewTails(t.kept, who.tenant, who.id),
	}
	s.logLevel.Store(int32(wire.LogRank("info")))
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byOwner[who]) >= t.opts.SessionsPerPrincipal && !t.makeRoom(who) {
		return "", errNoRoom
	}
	if len(t.byID) >= t.opts.Sessions {
		t.sweep(now)
		if len(t.byID) >= t.opts.Sessions {
			return "", errNoRoom
		}
	}
	t.byID[s.id] = s
	t.byOwner[who] = append(t.byOwner[who], s)
	return s.id, nil
}

// misused raises the alarm, once in a burst: nobody comes by the id of another's
// session but by taking it. Preconditions: t.mu is held.
func (t *sessionTable) misused(by, of owner, now time.Time) {
	if t.alarms.Add(by.tenant+"\x00"+by.id, now) {
		t.opts.Log.Warn("a session was asked for by another than its owner", "tenant", by.tenant, "principal", by.id, "owner_tenant", of.tenant, "owner", of.id)
	}
}

// makeRoom ends the longest unused idle session of who. Preconditions: t.mu is held.
func (t *sessionTable) makeRoom(who owner) bool {
	var oldest *session
	for _, s := range t.byOwner[who] {
		if s.idle() && (oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
	}
	if oldest != nil {
		t.drop(oldest, "session")
	}
	return oldest != nil
}

// find returns the session if it is who's and lives.
func (t *sessionTable) find(id string, who owner, now time.Time) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s != nil && s.owner != who {
		t.misused(who, s.owner, now)
	}
	if s == nil || s.owner != who {
		return nil
	}
	if t.expired(s, now) {
		t.drop(s, "session")
		return nil
	}
	s.used = now
	return s
}

func (t *sessionTable) expired(s *session, now time.Time) bool {
	return now.Sub(s.used) > t.opts.SessionIdle && s.idle()
}

// touch says that a session is in use.
func (t *sessionTable) touch(s *session, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used = now
}

func (t *sessionTable) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s, "session")
}

func (t *sessionTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byID {
		t.drop(s, "shutdown")
	}
}

// sweep drops what has expired. Preconditions: t.mu is held.
func (t *sessionTable) sweep(now time.Time) {
	for _, s := range t.byID {
		if t.expired(s, now) {
			t.drop(s, "session")
		}
	}
}

// drop ends one session; by says who wants it. Preconditions: t.mu is held.
func (t *sessionTable) drop(s *session, by string) {
	if t.byID[s.id] != s {
		return
	}
	delete(t.byID, s.id)
	rest := t.byOwner[s.owner][:0]
	for _, o := range t.byOwner[s.owner] {
		if o != s {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 {
		delete(t.byOwner, s.owner)
	} else {
		t.byOwner[s.owner] = rest
	}
	s.cancelAll(by)
	go s.silence() // it tells servers, which this lock need not wait for
}
