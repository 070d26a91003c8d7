package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"sallyport.dev/sallyport/backend/upstream/sse"
	"sallyport.dev/sallyport/backend/upstream/status"
	"sallyport.dev/sallyport/backend/upstream/web"
	"sallyport.dev/sallyport/httponce"
	"sallyport.dev/sallyport/wire"
)

// connectWeb connects to a server behind a URL: over streamable HTTP, and where
// that is refused over HTTP+SSE, as servers of 2024-11-05 speak. Which of the two
// it was is tried first the next time.
func (s *server) connectWeb(ctx context.Context) (*session, error) {
	s.mu.Lock()
	older := s.older
	s.mu.Unlock()
	if older {
		se, err := s.connectOlder(ctx)
		if !errors.Is(err, sse.ErrOther) {
			return se, err
		}
		s.set(func() { s.older, s.plain = false, false }) // it was replaced
	}
	se := s.newSession()
	se, err := s.meet(ctx, se, se.web())
	if err == nil || older || !mayBeOlder(err) {
		return se, err
	}
	se, why := s.connectOlder(ctx)
	if errors.Is(why, sse.ErrOther) || ctx.Err() != nil {
		return nil, err
	}
	return se, why
}

// web speaks to a server over streamable HTTP.
func (se *session) web() *web.Link {
	s := se.s
	return web.New(web.Options{
		Server: s.Name, URL: s.URL, Way: s.way(), Most: s.o.MaxMessage, Given: s.given, Room: &se.room, Heard: s.heard,
		ID:     func() int64 { return ids.Add(1) },
		Modern: func() bool { return se.era == eraModern }, Version: func() string { return se.version },
	})
}

// way is how requests go out.
func (s *server) way() http.RoundTripper {
	if s.Config.HTTP != nil {
		return s.Config.HTTP
	}
	return s.o.HTTP
}

// mayBeOlder tells whether a server said no to initialize in a way in which one
// would that knows no POST at this address.
func mayBeOlder(err error) bool {
	if e, ok := errors.AsType[*status.Error](err); ok {
		return e.Code >= 400 && e.Code < 500 && !e.Credential()
	}
	_, rpc := errors.AsType[*wire.Error](err)
	return rpc
}

// connectOlder connects over HTTP+SSE. The error wraps sse.ErrOther where the
// server does not speak it.
func (s *server) connectOlder(ctx context.Context) (*session, error) {
	probe, cancel := context.WithTimeout(ctx, s.o.Probe)
	defer cancel()
	address, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	v, err := s.give(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := sse.Open(probe, sse.Options{Client: httponce.Client(s.way()), URL: address, Header: v.Header, Most: s.o.MaxMessage})
	switch {
	case err != nil && probe.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%w: it names no endpoint within %v", sse.ErrOther, s.o.Probe)
	case err != nil:
		return nil, err
	}
	s.set(func() { s.older, s.plain = true, true })
	se := s.newSession()
	return s.meet(ctx, se, se.pipe(conn))
}
