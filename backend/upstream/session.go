package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/backend/outcome"
	"sallyport.dev/sallyport/backend/upstream/asked"
	"sallyport.dev/sallyport/backend/upstream/environ"
	"sallyport.dev/sallyport/backend/upstream/failure"
	"sallyport.dev/sallyport/backend/upstream/greeting"
	"sallyport.dev/sallyport/backend/upstream/link"
	"sallyport.dev/sallyport/backend/upstream/param"
	"sallyport.dev/sallyport/backend/upstream/pipe"
	"sallyport.dev/sallyport/backend/upstream/request"
	"sallyport.dev/sallyport/backend/upstream/result"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/wire"
	"sallyport.dev/sallyport/wire/ask"
)

// The eras of the protocol.
const (
	eraModern = "modern" // stateless: each request carries its metadata
	eraLegacy = "legacy" // a session begins with initialize
)

// session is a connection whose era is known.
type session struct {
	s        *server
	link     link.Link
	era      string
	version  string
	says     greeting.Greeting
	echoes   atomic.Bool   // it has what this gateway has of it
	answered atomic.Bool   // a request was answered since
	params   sync.Map      // tool digest → []param.Header
	room     asked.Room    // calls that are under way
	level    asked.Level   // of log lines, that a legacy server was told
	stale    chan struct{} // holds one: what it was given does not hold any more
}

// errProbeKilled: the program ended instead of answering server/discover.
var errProbeKilled = errors.New("it ended when asked server/discover")

// ids are never used twice in one gateway, so that a late answer can meet no
// other call.
var ids atomic.Int64

// connect starts a server and finds out how to speak with it. The process
// outlives ctx's deadline: that bounds the handshake only.
func (s *server) connect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Connect)
	defer cancel()
	v, err := s.give(ctx)
	switch {
	case err != nil:
		return nil, err
	case s.URL != "":
		return s.connectWeb(ctx)
	}
	spec := LaunchSpec{Name: s.Name, Argv: s.Argv, Env: environ.Of(s.o.Environ, v.Env), Own: v.Env, Confinement: s.Confinement}
	spec.Confinement.Inject = v.Inject
	p, err := s.o.Launchers[s.Isolation].Launch(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	se := s.newSession()
	return s.meet(ctx, se, se.pipe(p))
}

func (s *server) newSession() *session {
	se := &session{s: s, stale: make(chan struct{}, 1)}
	se.room.Asked = func() { s.asks.Store(true) }
	return se
}

// pipe speaks to a program, or to what behaves like one.
func (se *session) pipe(p pipe.Process) *pipe.Pipe {
	s := se.s
	return pipe.New(p, pipe.Options{
		Server: s.Name, Most: s.o.MaxMessage, Grace: s.o.Grace, Room: &se.room,
		Note: s.note, Words: s.lastWords, Heard: s.heard, Log: s.o.Log,
	})
}

// meet finds out how to speak over a link, and ends it where that fails.
func (s *server) meet(ctx context.Context, se *session, l link.Link) (*session, error) {
	se.link = l
	if err := se.greet(ctx); err != nil {
		select {
		case <-l.Done(): // how it ended tells more than that it did
			if !errors.Is(err, errProbeKilled) {
				err = l.Err()
			}
		default:
			if errors.Is(err, context.DeadlineExceeded) {
				err = s.silent(err)
			}
		}
		l.Close(s.o.Grace)
		return nil, err
	}
	return se, nil
}

// silent is that a server did not greet in time. What a program most often waits
// for is the network, in an environment that is not the operator's.
func (s *server) silent(err error) error {
	message := fmt.Sprintf("it has not answered within %s of its start, and is started again", s.o.Connect)
	if s.URL != "" {
		return fmt.Errorf("it has not answered within %s: %w", s.o.Connect, err)
	}
	if words := s.lastWords(3); len(words) > 0 {
		message += "; its last words: " + strings.Join(slices.Compact(words), " | ")
	}
	return fmt.Errorf("%s; a program that downloads first may need longer, or a proxy or registry in its --env: %w", message, err)
}

// fail turns what went wrong with a call that was sent into an error for the caller.
func (s *server) fail(err error) error { return failure.Of(err, s.Name, s.o.MaxMessage) }

// greet finds the era: server/discover first; whatever else than an answer of
// the modern era comes back, or nothing in time, means initialize.
func (se *session) greet(ctx context.Context) error {
	s := se.s
	s.mu.Lock()
	plain := s.plain
	s.mu.Unlock()
	var wants error // an authorisation; one of the legacy era may greet without
	if !plain {
		modern, err := se.discover(ctx, s.o.Probe)
		if sallyport.CodeOf(err) == sallyport.AuthorizationRequired {
			wants, err = err, nil
		}
		if modern && err == nil {
			err = se.loop()
		}
		if modern || err != nil {
			return err
		}
	}
	err := se.initialize(ctx)
	if _, refused := errors.AsType[*wire.Error](err); refused && !plain { // a modern one that was slow to start
		if modern, _ := se.discover(ctx, s.o.Connect); modern {
			err = nil
		}
	}
	if err != nil {
		return cmp.Or(wants, err)
	}
	return se.loop()
}

// loop is an error where the server is this gateway, or leads back to it: each
// would list what the other lists, without end.
func (se *session) loop() error {
	if own := se.s.o.Instance; own == "" || !slices.Contains(se.says.Reaches, own) {
		return nil
	}
	return se.leadsBack()
}

func (se *session) leadsBack() error {
	return &sallyport.Error{
		Code: sallyport.Invalid, Step: sallyport.Execute, Err: sallyport.ErrNotExecuted,
		Message: fmt.Sprintf("server %q leads back to this gateway, so it is not used", se.s.Name), Hint: "remove it here, or this gateway there",
	}
}

// Reaches names the gateways that are behind the servers, as they say.
func (b *Backend) Reaches() []string {
	b.mu.Lock()
	servers := slices.Collect(maps.Values(b.servers))
	b.mu.Unlock()
	var all []string
	for _, s := range servers {
		s.mu.Lock()
		if s.se != nil {
			all = append(all, s.se.says.Reaches...)
		}
		s.mu.Unlock()
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (se *session) discover(ctx context.Context, patience time.Duration) (modern bool, err error) {
	se.era, se.version = eraModern, wire.Version2026_07_28
	probe, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := se.request(probe, "server/discover", nil, true)
	if err == nil && m.Error.Offers(se.version) { // the protocol has a client choose from those, and try again
		m, err = se.request(probe, "server/discover", nil, true)
	}
	if err != nil {
		if e, ok := errors.AsType[*status.Error](err); ok && e.Credential() {
			return false, se.s.fail(err)
		}
		if errors.Is(err, link.ErrNoConnection) || ctx.Err() != nil || sallyport.CodeOf(err) == sallyport.AuthorizationRequired {
			return false, err
		}
		select {
		case <-se.link.Done():
			se.s.set(func() { se.s.plain = true })
			return false, errProbeKilled
		default:
			return false, nil
		}
	}
	if m.Error != nil {
		return false, greeting.Modern(m.Error)
	}
	se.says, modern = greeting.Discovered(m.Result, se.version)
	return modern, nil
}

func (se *session) initialize(ctx context.Context) error {
	se.era, se.version = eraLegacy, ""
	params := append([]byte(`{"protocolVersion":"`+wire.Version2025_11_25+`","capabilities":`), ask.Capabilities(asked.All)...)
	params = append(append(params, `,"clientInfo":`...), se.s.o.clientInfo()...)
	m, err := se.request(ctx, "initialize", append(params, '}'), true)
	if err == nil && m.Error != nil {
		err = m.Error
	}
	if err != nil {
		return se.s.fail(err)
	}
	if se.says, se.version, err = greeting.Initialized(m.Result); err != nil {
		return err
	}
	return se.link.Send(ctx, wire.Message{Method: "notifications/initialized"})
}

func (o *Options) clientInfo() json.RawMessage {
	return append(append([]byte(`{"name":"sallyport","version":`), wire.Quote(o.Version)...), '}')
}

// request sends a request of the gateway's own.
func (se *session) request(ctx context.Context, method string, params json.RawMessage, quiet bool) (wire.Message, error) {
	if params == nil {
		params = json.RawMessage(`{}`)
	}
	if se.era == eraModern {
		var err error
		if params, err = wire.SetMember(params, "_meta", append(se.meta().Open(nil, json.RawMessage(`{}`)), '}')); err != nil {
			return wire.Message{}, err
		}
	}
	return se.link.Exchange(ctx, link.Request{
		ID: ids.Add(1), Method: method, Params: params, Quiet: quiet, Notify: func(sallyport.Notice) {}, Lists: strings.HasSuffix(method, "/list"),
	})
}

// meta is what each request says about the session.
func (se *session) meta() request.Meta {
	return request.Meta{Modern: se.era == eraModern, Version: se.version, Client: se.s.o.clientInfo()}
}

// callTool runs one job on the server.
func (se *session) callTool(ctx context.Context, job sallyport.Job) (sallyport.Output, error) {
	if se.echoes.Load() {
		return sallyport.Output{}, se.leadsBack()
	}
	r := link.Request{Method: "tools/call", Name: job.Tool.Origin.Name}
	if _, ok := se.link.(*web.Link); ok {
		header, err := se.callHeader(job)
		if err != nil {
			return sallyport.Output{}, outcome.Unavailable(err, fmt.Sprintf("tool %q cannot be called: %v", job.Tool.Name, err), "ask the operator of the server")
		}
		r.Header = header
	}
	m, err := se.call(ctx, job, r)
	if err == nil && m.Error != nil {
		err = m.Error
		if m.Error.Code == wire.CodeHeaderMismatch {
			se.s.askList() // our idea of its parameters is old
		}
	}
	if err != nil {
		if errors.Is(err, link.ErrMalformed) {
			return result.Malformed(err.Error()), nil
		}
		return sallyport.Output{}, se.s.fail(err)
	}
	se.answered.Store(true)
	return result.Output(m.Result), nil
}

// callHeader is what an HTTP request says in headers about a call.
func (se *session) callHeader(job sallyport.Job) (map[string]string, error) {
	if se.era != eraModern {
		return request.Header(job, nil), nil
	}
	var params []param.Header
	if known, ok := se.params.Load(job.Tool.Digest); ok && job.Tool.Digest != "" {
		params, _ = known.([]param.Header)
	} else {
		var err error
		if params, err = param.Headers(job.Tool.InputSchema); err != nil {
			return nil, err
		}
		se.params.Store(job.Tool.Digest, params)
	}
	return request.Header(job, params), nil
}
